"""The list of chats: found by title and text, renamed, pinned, removed and put back, and saved as files."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from metier.surfaces.chat.chat_store import ChatStore
from metier.surfaces.chat.items import TextItem, UserItem
from surfaces.web.browser import SKILLS, Site, Watch, answered, new_page, say, serving
from surfaces.web.test_pages_axe import findings
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser

ATTACK = "</textarea></title><script>window.ran=1</script><img src=x onerror=window.ran=1>[x](javascript:window.ran=1)"


def chat(site: Site, title: str, *said: str) -> str:
    """A chat as turns leave it."""
    store = ChatStore(site.app.store)
    made = store.create()
    store.change(made, title=title)
    for text in said:
        store.keep(made, [UserItem(text=text), TextItem(text=f"About {text}", done=True, step=0)])
    return made


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_chats_are_renamed_pinned_removed_and_put_back(
    world: World, chromium: Browser, watch: Watch, axe: str, width: int, theme: str
) -> None:
    world.skill(f"{SKILLS}/notes")
    found: dict[str, list[str]] = {}
    with serving(world) as site, new_page(chromium, watch, width, "dark" if theme == "dark" else "light") as page:
        ids = [
            chat(site, f"Chat {number:02d}", "the weather in Rome" if number == 7 else "nothing")
            for number in range(60)
        ]
        page.goto(site.url)
        if width < 800:
            page.locator("[data-chats-toggle]").click()
        beside = page.locator("[data-chats] li a")
        expect(beside).to_have_count(41)
        expect(beside.last).to_have_text("20 more")
        page.goto(f"{site.url}/chat/{ids[7]}")
        # The menu of the chat renames and pins it; a reload and another page show the same.
        menu = page.locator("[data-chat-menu]")
        menu.locator("summary").click()
        found["menu"] = findings(page, axe)
        page.get_by_label("Title").fill("Roman weather")
        page.get_by_role("button", name="Rename").click()
        expect(page).to_have_title("Roman weather · Metier")
        menu.locator("summary").click()
        page.get_by_role("button", name="Pin to the top").click()
        expect(page.locator("[data-toast]")).to_have_text("The chat is pinned.")
        page.goto(f"{site.url}/chats")
        expect(page.locator(".day").first).to_have_text("Pinned")
        rows = page.locator(".chat-row")
        expect(rows.first).to_contain_text("Roman weather")
        expect(rows).to_have_count(50)
        expect(page.locator(".pager p")).to_have_text("1–50 of 60")
        found["chats"] = findings(page, axe)
        page.get_by_role("link", name="Next").click()
        expect(rows).to_have_count(10)
        page.get_by_role("link", name="Previous").click()
        # Removing can be taken back, from the list and from the chat.
        rows.get_by_role("button", name="Remove Roman weather").click()
        expect(page.locator(".removed")).to_contain_text("The chat was removed.")
        expect(page.locator(".pager p")).to_have_text("1–50 of 59")
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("[data-title]")).to_have_text("Roman weather")
        menu.locator("summary").click()
        menu.locator("[data-chat-remove]").click()
        expect(page.locator(".removed")).to_be_visible()
        found["removed"] = findings(page, axe)
        page.get_by_role("button", name="Undo").click()
        expect(page.locator(".item.user")).to_contain_text("the weather in Rome")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert {name: notes for name, notes in found.items() if notes} == {}
    assert watch.heard == []


def test_a_chat_is_saved_as_markdown_json_and_a_page_that_runs_nothing(
    world: World, page: Page, tmp_path: Path
) -> None:
    world.skill(f"{SKILLS}/notes", description="Notes. Use when asked.")
    with serving(world) as site:
        hostile = chat(site, f"Hostile {ATTACK}", ATTACK)
        page.goto(f"{site.url}/chat/{hostile}")
        saved: dict[str, str] = {}
        for kind in ("md", "json", "html"):
            page.locator("[data-chat-menu]").evaluate("one => { one.open = true }")
            with page.expect_download() as download:
                page.locator(f"[data-chat-export={kind}]").click()
            assert (
                download.value.suggested_filename
                == f"Hostile-textarea-title-script-window.ran-1-script-img-src-x.{kind}"
            )
            target = tmp_path / f"chat.{kind}"
            download.value.save_as(target)
            saved[kind] = target.read_text()
        assert saved["md"].startswith("# Hostile </textarea>")
        assert f"## You\n\n{ATTACK}\n" in saved["md"]
        assert [one["type"] for one in json.loads(saved["json"])["items"]] == ["user", "text"]
        assert "<script" not in saved["html"].lower()
        assert "src=" not in saved["html"].replace("src=x onerror", "")
        page.goto((tmp_path / "chat.html").as_uri())
        expect(page.locator(".user")).to_have_text(ATTACK)
        assert page.evaluate("window.ran") is None
        assert page.locator("script, img, iframe, link, a[href^=javascript]").count() == 0
        # A new chat has its menu as soon as it has an id.
        page.goto(site.url)
        expect(page.locator("[data-chat-menu]")).to_be_hidden()
        say(page, "hello")
        answered(page)
        expect(page.locator("[data-chat-menu]")).to_be_visible()
        href = page.locator("[data-chat-export=md]").get_attribute("href")
        assert href == f"{page.url.removeprefix(site.url)}/export.md"
