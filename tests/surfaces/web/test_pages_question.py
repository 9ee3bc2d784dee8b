"""The question card of the chat: everything that a person must see, keys that answer, and no text that is obeyed."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Locator, Page, expect

from asked import BEFORE, IN_DIFF, REQUEST, ask_about_it, missing, regranted
from metier import Question
from metier.running.grants.folder import FolderGrant
from surfaces.web.browser import SKILLS, Site, answered, say, serving
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser

ATTACK = "<script>window.ran=1</script><img src=x onerror=window.ran=1>'\"</textarea></title>\x1b[2J\u202e"
SCRIPT = "#!/bin/sh\necho to-stdout\n"
SETTINGS = {"permissions": {"allow": [{"tool": "run_unsandboxed"}]}}


@pytest.fixture
def asking(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    world.skill(f"{SKILLS}/runner", files={"scripts/go.sh": SCRIPT})
    monkeypatch.setattr(Question, "of", Question.of)  # it is there again after the test
    with serving(world, settings=SETTINGS) as site:
        yield site


def asked(page: Page, site: Site) -> Locator:
    """A question that waits, on the page of its chat."""
    page.goto(site.url)
    say(page, "/runner run scripts/go.sh")
    card = page.locator(".ask.waiting")
    expect(card).to_be_visible()
    return card


@pytest.mark.parametrize("before", ["", BEFORE], ids=["script", "diff"])
def test_every_fact_is_seen_on_the_card_also_after_a_reload(asking: Site, page: Page, before: str) -> None:
    ask_about_it(before=before)
    card = asked(page, asking)
    for _ in range(2):
        assert missing(card.inner_text(), bool(before)) == [], "without a click"
        expect(page.locator(".ask.waiting pre").first).to_be_visible()
        page.reload()
    chat = page.url.rsplit("/", 1)[1]
    items = page.request.get(f"{asking.url}/api/chats/{chat}").json()["items"]
    assert [missing(one["question"]["text"], bool(before)) for one in items if one["type"] == "ask"] == [[]]
    if before:
        expect(card.locator(".removed")).to_have_text(IN_DIFF[0])
        expect(card.locator(".added")).to_have_text(IN_DIFF[1])
        card.locator("summary", has_text="The whole text").click()
        expect(card.locator("details pre")).to_contain_text("echo to-stdout")  # the text of the script that would run


def test_a_key_answers_the_only_question_which_shows_the_script(asking: Site, page: Page) -> None:
    file = asking.world.home / ".config/metier/permissions.toml"
    for key, state, rules in (("n", "Not allowed", 0), ("y", "Allowed once", 0), ("a", "Always allowed", 1)):
        card = asked(page, asking)
        expect(card.get_by_role("heading")).to_have_text("Run scripts/go.sh of the skill runner?")
        expect(card.locator("pre")).to_have_text(SCRIPT.removesuffix("\n"))
        expect(card).to_contain_text("It has no network.")
        if key == "n":  # any place outside of the message
            page.evaluate("document.activeElement.blur()")
        else:
            page.keyboard.press("Escape")
            expect(page.locator(".ask.waiting")).to_be_focused()
        page.keyboard.press(key)
        answered(page)
        expect(page.locator(".ask h2")).to_contain_text(state)
        expect(page.locator(".terminal")).to_have_count(0 if key == "n" else 1)
        assert (file.read_text().count("[[allow]]") if file.exists() else 0) == rules


def test_typing_a_message_answers_nothing(asking: Site, page: Page) -> None:
    asked(page, asking)
    expect(page.locator("[data-message]")).to_be_focused()
    page.keyboard.type("any yarn")
    expect(page.locator("[data-message]")).to_have_value("any yarn")
    page.locator(".chat-head [data-model-open]").click()
    page.select_option("#provider", "openai")
    page.locator("#model-name").press_sequentially("yan")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Save").focus()
    page.keyboard.press("y")
    page.keyboard.press("Escape")
    for keys in ("Control+y", "Alt+n", "Meta+a", "x", "Enter"):
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press(keys)
    expect(page.locator(".ask.waiting")).to_be_visible()
    page.get_by_role("button", name="No").click()
    answered(page)
    expect(page.locator(".ask.no")).to_have_count(1)


def test_hostile_names_arguments_and_scripts_are_text(asking: Site, page: Page) -> None:
    hostile = replace(
        regranted(REQUEST, FolderGrant(path=ATTACK, cwd=ATTACK)),
        skill_name=ATTACK,
        path=f"scripts/{ATTACK}",
        detail=f"{ATTACK}\n" * 1_000 + "x" * 5_000,
        arguments=(ATTACK, "x" * 9_000),
        folder=f"/srv/{ATTACK}",
        digest=ATTACK,
        scope=ATTACK,
    )
    for before in ("", f"{ATTACK}\nold\n"):
        ask_about_it(hostile, before)
        card = asked(page, asking)
        shown = card.inner_text()
        for words in ("<script>window.ran=1</script>", r"\x1b[2J\u202e", "Not shown: "):
            assert words in shown
        assert page.evaluate("window.ran") is None
        assert card.locator("script, img, [onerror], [style]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        card.get_by_text("All of it, ").click()
        expect(card.locator("dd details pre")).to_contain_text("x" * 9_000)
    ask_about_it(replace(REQUEST, detail=f"#!/bin/sh\n:{' ' * 3_000}evil\n"))
    pre = asked(page, asking).locator("pre").first
    assert pre.evaluate("one => one.scrollWidth <= one.clientWidth"), "wrapped, and not hidden at the side"
