"""axe finds nothing serious or critical on any page, in light and dark, on a screen and on a phone."""

import re
from typing import Literal, TypedDict

import pytest
from playwright.sync_api import Browser, Page, expect

from surfaces.web.browser import Site, Watch, answered, new_page, say
from surfaces.web.in_parts import ELEMENTS, SHIFTS, moved_in_parts

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser

STILL = """() => Promise.allSettled(document.getAnimations()
    .filter(one => one.effect.getTiming().iterations !== Infinity).map(one => one.finished))"""
"""Colours are half-way while a dialog appears."""
RUN = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"


class AxeNode(TypedDict):
    target: list[str]
    failureSummary: str


class AxeViolation(TypedDict):
    id: str
    impact: str
    nodes: list[AxeNode]


def findings(page: Page, axe: str) -> list[str]:
    page.evaluate(STILL)
    page.evaluate(axe)
    found: list[AxeViolation] = page.evaluate(RUN)
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_no_page_has_a_serious_finding(
    site: Site, chromium: Browser, watch: Watch, axe: str, theme: Literal["light", "dark"], width: int
) -> None:
    session = site.app.session(surface="cli")
    session.load("csv-profile")
    session.call("skill_load", {"name": "nope"})
    session.prompt()
    found: dict[str, list[str]] = {}
    with new_page(chromium, watch, width, theme) as page:
        page.goto(site.url)
        found["new chat"] = findings(page, axe)
        page.locator("[data-message]").press_sequentially("/c")
        expect(page.get_by_role("option").first).to_be_visible()
        found["completion"] = findings(page, axe)
        say(page, "/skills-system-validation read assets/fixture.json")
        answered(page)
        page.locator('[data-card="load"] summary').click()
        say(page, "run scripts/echo.sh hello")
        expect(page.locator(".ask.waiting")).to_be_visible()
        found["chat"] = findings(page, axe)
        page.locator(".chat-head [data-model-open]").click()
        page.select_option("#provider", "openai")
        found["model"] = findings(page, axe)
        trail = f"/activity/{session.id}"
        catalog = ("/skills", "/skills?kind=broken", "/skills?q=zzzz", "/skills/csv-profile")
        for path in (*catalog, "/skills/csv-profile?file=SKILL.md", "/prompt?budget=900", "/usage", "/activity", trail):
            page.goto(site.url + path, wait_until="networkidle" if "activity" not in path else "load")
            found[path] = findings(page, axe)
    with new_page(chromium, watch, width, theme, token="") as stranger:
        stranger.goto(f"{site.url}/skills")
        expect(stranger.get_by_label("Token")).to_be_visible()
        found["sign in"] = findings(stranger, axe)
    assert {name: notes for name, notes in found.items() if notes} == {}
    assert watch.heard == []


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_moves_while_a_page_comes_in_wherever_it_is_cut(
    site: Site, chromium: Browser, watch: Watch, width: int
) -> None:
    session = site.app.session()
    session.load("csv-profile")
    late = {"/skills/csv-profile": ".hosts", "/prompt": ".table"}
    with new_page(chromium, watch, width) as page:
        for path in ("/", "/skills", *late, "/usage", "/activity", f"/activity/{session.id}"):
            page.goto(site.url + path)
            page.wait_for_selector(late.get(path, "main"))
            assert page.evaluate(SHIFTS) == [], path
        for path, places in {"/": ELEMENTS, "/skills": re.compile('(?=<div class="switches">)')}.items():
            assert moved_in_parts(page, site.url, path, places) == []


def test_a_page_can_be_used_with_the_keyboard_alone(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/skills")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("main").get_by_role("link", name="Rules")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox")).to_be_focused()
