"""Rules are shown, explained and revoked in the browser, a key opens the shortcuts, and motion can be switched off."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from metier.surfaces.web.guard import Gate
from surfaces.web.browser import EXAMPLES, TOKEN, Site, Watch, new_page, serving
from surfaces.web.test_pages_axe import findings
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser


def test_rules_are_shown_explained_and_revoked(world: World, page: Page, axe: str) -> None:
    rules = {"permissions": {"deny": [{"tool": "skill_run", "skill_name": "no-run"}]}}
    with serving(world, Gate(token=TOKEN), roots=[str(EXAMPLES)], settings=rules) as site:
        page.goto(f"{site.url}/rules")
        answers = Path(site.app.config.answers_file)
        answers.parent.mkdir(parents=True, exist_ok=True)
        answers.write_text('[[allow]]\ntool = "skill_load"\nskill_name = "csv-profile"\n')
        page.reload()
        rows = page.locator("[data-rules] .row")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("deny")
        expect(rows.first.get_by_role("button")).to_have_count(0)
        page.get_by_label("Skill").fill("no-run")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator(".verdict")).to_contain_text("Denied. deny rule: tool = 'skill_run'")
        page.select_option("#tool", "skill_load")
        page.get_by_label("Skill").fill("csv-profile")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator(".verdict")).to_contain_text("Allowed. allow rule: tool = 'skill_load'")
        assert findings(page, axe) == []
        rows.nth(1).get_by_role("button", name="Revoke").click()
        expect(page.locator(".note.good")).to_contain_text("taken back")
        expect(rows).to_have_count(1)
        assert "csv-profile" not in answers.read_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_key_opens_the_shortcuts_and_dialogs_move_only_for_those_who_want_it(
    site: Site, chromium: Browser, watch: Watch, axe: str, width: int
) -> None:
    with new_page(chromium, watch, width) as page:
        page.goto(f"{site.url}/rules")
        page.locator("h1").click()
        page.keyboard.press("?")
        page.wait_for_url(f"{site.url}/shortcuts")
        expect(page.get_by_role("heading", level=1)).to_have_text("Keyboard shortcuts")
        assert findings(page, axe) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.goto(site.url)
        name = """() => { document.querySelector('.chat-head [data-model-open]').click();
          return getComputedStyle(document.querySelector('dialog[open]')).animationName }"""
        assert page.evaluate(name) == "appear"
        page.emulate_media(reduced_motion="reduce")
        page.reload()
        assert page.evaluate(name) == "none"
    assert watch.heard == []
