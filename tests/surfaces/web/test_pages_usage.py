"""The usage page: figures of real sessions, filters, and what to do where there is nothing."""

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from metier import usage
from surfaces.web.browser import SKILLS, Site, serving
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser


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
    row.get_by_role("link", name="csv-profile").click()
    expect(page.locator("h1")).to_contain_text("csv-profile")


def test_old_sessions_are_left_out_by_the_filter_and_gone_skills_have_no_link(world: World, page: Page) -> None:
    world.skill(f"{SKILLS}/notes")
    old = int((datetime.now(UTC) - timedelta(days=9)).timestamp() * 1000)
    with serving(world) as site:
        world.skill("~/elsewhere/gone")
        elsewhere = world.discover(roots=[world.home / "elsewhere"])
        elsewhere.session(store=site.app.store, id="early", clock=lambda: old).load("gone")
        site.app.session().load("notes")
        page.goto(f"{site.url}/usage")
        rows = page.locator("[data-usage] tbody tr")
        expect(rows).to_have_count(2)
        assert rows.filter(has_text="gone").get_by_role("link").count() == 0
        page.get_by_label("Time").select_option("7d")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("notes")


def test_a_phone_shows_the_whole_table_by_scrolling_it_alone(site: Site, page: Page) -> None:
    session = site.app.session()
    session.prompt()
    session.load("csv-profile")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}/usage")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    table = page.get_by_role("region", name="Skills")
    table.evaluate("one => one.scrollTo(one.scrollWidth, 0)")
    expect(page.get_by_role("columnheader", name="Last used")).to_be_in_viewport()
