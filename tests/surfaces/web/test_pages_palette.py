"""The command palette finds chats, skills and actions with the keyboard alone, and motion can be switched off."""

import pytest
from playwright.sync_api import Browser, expect

from surfaces.web.browser import Site, Watch, new_page
from surfaces.web.test_pages_axe import findings
from surfaces.web.test_pages_chats import ATTACK, chat

pytest_plugins = ["surfaces.web.page_fixtures"]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_palette_goes_to_chats_skills_and_actions(
    site: Site, chromium: Browser, watch: Watch, axe: str, width: int
) -> None:
    made = chat(site, f"Roman weather {ATTACK}", "sun and rain")
    with new_page(chromium, watch, width) as page:
        page.goto(f"{site.url}/usage")
        page.keyboard.press("Control+k")
        palette = page.locator("dialog.palette")
        field = palette.get_by_role("combobox")
        expect(field).to_be_focused()
        options = palette.get_by_role("option")
        expect(options.first).to_contain_text("Roman weather")
        assert findings(page, axe) == []
        field.fill("roman")
        expect(options).to_have_count(1)
        expect(options.first).to_contain_text("<script>")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{site.url}/chat/{made}")
        if width < 800:
            page.locator("[data-palette]").click()
        else:
            page.keyboard.press("Control+k")
        field.fill("csv-profile")
        expect(options.first).to_contain_text("csv-profile")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{site.url}/skills/csv-profile")
        page.keyboard.press("Control+k")
        field.fill("dark")
        expect(options.first).to_contain_text("Light or dark")
        page.keyboard.press("Enter")
        expect(palette).to_be_hidden()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.keyboard.press("Control+k")
        field.fill("key")
        expect(options.nth(1)).to_contain_text("Keyboard shortcuts")
        page.keyboard.press("ArrowDown")
        expect(field).to_have_attribute("aria-activedescendant", "palette-1")
        assert findings(page, axe) == []
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Keyboard shortcuts")
        assert findings(page, axe) == []
        page.keyboard.press("Control+k")
        field.fill("zzzz nothing")
        expect(palette).to_contain_text("Nothing has these words.")
        page.keyboard.press("Escape")
        expect(palette).to_be_hidden()
        page.goto(f"{site.url}/rules")
        page.locator("h1").click()
        page.keyboard.press("?")
        page.wait_for_url(f"{site.url}/shortcuts")
        # Motion is only for those who want it.
        durations = """() => { document.querySelector('[data-palette]').click();
          const one = document.querySelector('dialog.palette'); return getComputedStyle(one).animationName }"""
        assert page.evaluate(durations) == "appear"
        page.emulate_media(reduced_motion="reduce")
        page.reload()
        assert page.evaluate(durations) == "none"
        assert page.evaluate("window.ran") is None
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert watch.heard == []
