"""The usage page: figures of real sessions, filters, and what to do where there is nothing."""

import pytest
from playwright.sync_api import Page, expect

from metier import usage
from surfaces.web.browser import Site

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
    page.set_viewport_size({"width": 390, "height": 844})  # a phone scrolls the table alone
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    table = page.get_by_role("region", name="Skills")
    table.evaluate("one => one.scrollTo(one.scrollWidth, 0)")
    expect(page.get_by_role("columnheader", name="Last used")).to_be_in_viewport()
    row.get_by_role("link", name="csv-profile").click()
    expect(page.locator("h1")).to_contain_text("csv-profile")
