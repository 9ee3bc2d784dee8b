"""Activity, prompt and usage in the browser: live timelines, replays, what a model sees, and figures."""

import pytest
from playwright.sync_api import Page, expect

from metier import usage
from surfaces.web.browser import SKILLS, Site, serving
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser


def test_sessions_are_listed_filtered_and_a_long_one_is_shown_from_its_end(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/activity")
    expect(page.locator(".empty")).to_contain_text("No activity yet")
    first = site.app.session(surface="cli")
    first.load("csv-profile")
    first.call("skill_read", {"name": "csv-profile", "path": "../x"})
    site.app.session(surface="mcp").load("regex-workbench")
    page.reload()
    rows = page.locator(".row")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="csv-profile")).to_contain_text("1 refused")
    page.get_by_label("Surface").select_option("mcp")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("regex-workbench")
    for number in range(80):
        first.search(f"query {number}")
    page.goto(f"{site.url}/activity/{first.id}")
    expect(page.locator(".line")).to_have_count(200)
    expect(page.locator(".line").last).to_contain_text("Answer")
    page.get_by_role("link", name="Earlier events").click()
    expect(page.locator(".line").first).to_contain_text("Session started")


def test_a_timeline_grows_while_it_is_watched_is_filtered_and_looking_writes_nothing(site: Site, page: Page) -> None:
    session = site.app.session(surface="cli")
    session.load("csv-profile")
    page.goto(f"{site.url}/activity/{session.id}")
    expect(page.locator("[data-live]")).to_be_visible()
    lines = page.locator(".line")
    session.read("csv-profile", "references/pitfalls.md")
    last = site.app.store.last_seq(session.id)
    expect(page.locator(".line .subject").filter(has_text="csv-profile: references/pitfalls.md")).to_be_visible()
    seen = lines.evaluate_all("all => all.map(one => Number(one.dataset.seq))")
    assert seen == list(range(len(seen)))
    read = lines.filter(has=page.locator(".subject", has_text="csv-profile: references/pitfalls.md"))
    read.locator("summary").click()
    read.get_by_role("link", name="digest").click()
    expect(page.locator("#artifact")).to_contain_text("#")
    page.goto(f"{site.url}/activity/{session.id}")
    page.locator(".tabs").get_by_text("Loads").click()
    expect(page.locator(".line .word").first).to_have_text("Loaded")
    page.locator(".tabs").get_by_text("Scripts").click()
    expect(page.locator(".empty")).to_contain_text("No events")
    page.get_by_role("link", name="Compare with today").click()
    expect(page.locator(".verdict")).to_be_visible()
    assert site.app.store.last_seq(session.id) == last


def test_a_replay_gives_its_verdict_and_today_differs_once_a_skill_has_changed(world: World, page: Page) -> None:
    world.skill(f"{SKILLS}/notes", body="first")
    with serving(world) as site:
        session = site.app.session()
        session.load("notes")
        page.goto(f"{site.url}/activity/{session.id}")
        page.get_by_role("link", name="Replay").click()
        expect(page.locator(".verdict")).to_contain_text("Identical, byte for byte.")
        page.get_by_role("link", name="Compare with today").click()
        expect(page.locator(".verdict")).to_contain_text("No differences.")
        world.skill(f"{SKILLS}/notes", body="second")
        page.get_by_role("link", name="Compare with today").click()
        expect(page.locator(".verdict")).to_contain_text("1 difference")
        page.locator(".verdict summary").click()
        expect(page.locator(".then-now")).to_contain_text("second")


def test_the_prompt_follows_message_budget_and_profile(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/prompt")
    text = page.locator("#prompt-text")
    expect(text).to_contain_text("<available_skills>")
    shown = site.app.skills().prompt()
    expect(page.locator(".figures")).to_contain_text(f"{len(shown.text):,}")
    expect(page.locator(".left")).to_contain_text("hidden from the model")
    page.get_by_label("Message").fill("duplicate rows in a csv")
    page.get_by_label("Budget").fill("700")
    expect(page.locator(".left")).to_contain_text("no room")
    assert text.text_content() == site.app.skills().prompt("duplicate rows in a csv", 700).text
    page.get_by_label("Profile", exact=True).select_option("codelia")
    expect(text).to_contain_text("<skills_context>")
    expect(page.locator(".table tbody tr")).not_to_have_count(0)
    expect(page.locator(".table .chosen")).to_contain_text("codelia")


def test_the_page_shows_what_models_were_offered_and_what_became_of_it(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/usage")
    expect(page.locator(".empty")).to_contain_text("No sessions yet")
    session = site.app.session(surface="cli")
    session.prompt()
    session.call("skill_load", {"name": "csv-profile"})
    session.load("house-style")
    session.call("skill_read", {"name": "csv-profile", "path": "../x"})
    page.reload()
    (used,) = [one for one in usage(site.app.store).skills if one.name == "csv-profile"]
    row = page.locator("[data-usage] tbody tr").filter(has_text="csv-profile")
    cells = ["csv-profile", "1", "", "1", "", "", "1", f"{used.tokens:,}", f"{used.share:.1%}", "just now"]
    expect(row.locator("td")).to_have_text(cells)
    expect(page.locator("section", has=page.locator("#unused"))).to_contain_text("regex-workbench")
    page.get_by_label("Order").select_option("name")
    names = sorted(one.name for one in usage(site.app.store).skills)
    expect(page.locator("[data-usage] tbody tr td:first-child")).to_have_text(names)
    page.set_viewport_size({"width": 390, "height": 844})  # a phone scrolls the table alone
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    table = page.get_by_role("region", name="Skills")
    table.evaluate("one => one.scrollTo(one.scrollWidth, 0)")
    expect(page.get_by_role("columnheader", name="Last used")).to_be_in_viewport()
    row.get_by_role("link", name="csv-profile").click()
    expect(page.locator("h1")).to_contain_text("csv-profile")
