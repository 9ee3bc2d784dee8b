"""The catalog in the browser: search as you type, switches, and the page of a skill."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from surfaces.web.browser import EXAMPLES, SKILLS, Site, Watch, serving
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser


def names(page: Page) -> list[str]:
    return page.locator(".row .title > a, .row .title > bdi").all_inner_texts()


def test_the_list_and_the_pages_tell_every_state_and_its_reason(site: Site, page: Page, watch: Watch) -> None:
    page.goto(f"{site.url}/skills")
    rows = page.locator(".row")
    expect(rows.filter(has_text="house-style")).to_contain_text("hides it from the model")
    page.locator(".tabs").get_by_text("Broken").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("anchors")
    expect(rows.locator(".culprit")).to_contain_text("line 4 │ metadata: &a {x: *a}")
    page.locator(".row .title a").click()
    expect(page.locator(".note.bad")).to_contain_text("metadata: &a {x: *a}")
    page.goto(f"{site.url}/skills?kind=shadowed")
    expect(rows).to_contain_text("another skill with this name is used", ignore_case=True)
    expect(rows).to_contain_text(str(EXAMPLES / "release-notes"))
    page.locator(".row .title a").click()
    expect(page.locator(".content")).to_contain_text("Another skill with this name is used")
    page.goto(f"{site.url}/skills")
    site.world.skill(f"{SKILLS}/brand-new")
    page.get_by_role("button", name="Rescan").click()
    expect(page.locator(".rows")).to_contain_text("brand-new")
    page.get_by_role("button", name="Switch between light and dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert '<html lang="en" data-theme="dark">' in page.request.get(f"{site.url}/prompt").text(), "from the first paint"
    watch.heard.clear()  # the browser reports the status of the page of a broken skill


def test_typing_searches_at_once_and_a_server_that_is_gone_is_told(site: Site, page: Page, watch: Watch) -> None:
    page.goto(f"{site.url}/skills")
    search = page.get_by_role("searchbox", name="Search skills")
    search.press_sequentially("duplicate rows in a csv")
    expect(page.locator(".row .title a").first).to_have_text("csv-profile")
    expect(page).to_have_url(f"{site.url}/skills?q=duplicate+rows+in+a+csv")
    search.fill("zzzz")
    expect(page.locator("[data-list]")).to_contain_text("No matches")
    expect(page.get_by_role("status").first).to_have_text("No matches")
    page.get_by_role("link", name="Show all skills").click()
    expect(page.locator(".row")).not_to_have_count(0)
    page.goto(f"{site.url}/skills?q=ouse-sty")  # a part of a word
    assert names(page) == ["house-style"]
    page.route("**/skills?*", lambda route: route.abort())
    search.fill("csv")
    expect(page.locator("[data-toast]")).to_have_text("The server cannot be reached.")
    assert names(page) == ["house-style"]
    watch.heard.clear()


def test_a_skill_is_switched_off_and_pinned_with_the_keyboard_and_it_lasts(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/skills?q=csv-profile")
    row = page.locator(".row").filter(has_text="csv-profile").first
    switch = row.get_by_role("switch")
    switch.focus()
    page.keyboard.press("Space")
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(switch).to_be_focused()
    assert not site.app.skills()["csv-profile"].enabled
    page.keyboard.press("Space")
    expect(switch).to_have_attribute("aria-checked", "true")
    row.get_by_role("button", name="Pin csv-profile").press("Enter")
    expect(row).to_contain_text("pinned")
    page.reload()
    expect(row).to_contain_text("pinned")
    assert site.app.skills()["csv-profile"].mode == "pinned"


def test_a_skills_page_shows_its_text_files_fields_hosts_and_uses(site: Site, page: Page) -> None:
    site.app.session(surface="cli").load("csv-profile")
    page.goto(f"{site.url}/skills/csv-profile")
    expect(page.get_by_role("heading", level=1)).to_have_text("csv-profile")
    expect(page.locator(".prose h3").first).to_be_visible()
    expect(page.locator(".uses")).to_contain_text("cli · 1 loaded")
    expect(page.locator(".hosts > li")).not_to_have_count(0)
    expect(page.locator(".hosts > li").first).to_contain_text("standard")
    page.locator(".files").get_by_text("references/pitfalls.md").click()
    expect(page.locator("#file")).to_contain_text((EXAMPLES / "csv-profile/references/pitfalls.md").read_text()[:40])
    page.get_by_role("link", name="csv-profile").click()
    page.select_option("#mode", "manual")
    expect(page.locator(".badges")).to_contain_text("hidden")
    assert site.app.skills()["csv-profile"].mode == "manual"


def test_skills_that_share_a_name_each_have_their_page(world: World, page: Page) -> None:
    world.skill(f"{SKILLS}/one/notes", name="notes", description="The first.")
    world.skill(f"~/{SKILLS}/notes", description="The second.")
    with serving(world, profile="codelia") as site:
        page.goto(f"{site.url}/skills/notes")
        expect(page).to_have_url(f"{site.url}/skills?q=notes")
        expect(page.locator(".row")).to_have_count(2)
        for words in ("The first.", "The second."):
            page.goto(f"{site.url}/skills?q=notes")
            page.locator(".row").filter(has_text=words).locator(".title a").click()
            expect(page.locator(".head")).to_contain_text(words)


def test_a_link_opens_a_file_of_the_skill_and_what_is_none_is_explained(world: World, page: Page) -> None:
    files = {"references/a.md": b"the file", "assets/x.bin": bytes(range(256))}
    world.skill(f"{SKILLS}/odd", body="See [it](./references/a.md#part).\n", files=files)
    with serving(world) as site:
        page.goto(f"{site.url}/skills/odd")
        page.get_by_role("link", name="it", exact=True).click()
        expect(page.locator("#file")).to_have_text("the file")
        page.goto(f"{site.url}/skills/odd?file=assets/x.bin")
        expect(page.locator(".note.bad")).to_contain_text("binary files are not supported")
        page.goto(f"{site.url}/skills/odd?file=../../../secret")
        expect(page.locator(".note.bad")).to_contain_text("path traversal")


def test_a_catalog_without_skills_says_where_to_put_one_and_a_large_one_comes_in_pages(
    world: World, page: Page
) -> None:
    with serving(world) as site:
        page.goto(f"{site.url}/skills")
        expect(page.locator(".empty")).to_contain_text("No skills yet")
        expect(page.locator(".folders")).to_contain_text(str(Path(world.project, SKILLS)))
        for number in range(120):
            world.skill(f"{SKILLS}/skill-{number:03}")
        site.app.refresh()
        page.reload()
        expect(page.locator(".row")).to_have_count(50)
        page.get_by_role("link", name="Next").click()
        expect(page.locator(".row").first).to_contain_text("skill-050")
        page.get_by_role("link", name="Next").click()
        expect(page.locator(".row")).to_have_count(20)
        expect(page.locator(".pager p")).to_have_text("101–120 of 120")
