"""The page of shortcuts opens with a key, and motion can be switched off."""

import pytest
from playwright.sync_api import Browser, expect

from surfaces.web.browser import Site, Watch, new_page
from surfaces.web.test_pages_axe import findings

pytest_plugins = ["surfaces.web.page_fixtures"]

pytestmark = pytest.mark.browser


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
