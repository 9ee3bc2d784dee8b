"""A real server in a thread, pages of a real browser, and what people do on them."""

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page

from metier.app import App
from metier.surfaces.web.guard import Gate
from surfaces.web.processes import running
from worlds import World

SKILLS = ".agents/skills"
TOKEN = "the-token-of-the-tests"
"""Servers ask for it, and pages have it; see `new_page`."""
EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "skills"


@dataclass
class Site:
    """A running server: its address, and what it serves."""

    url: str
    app: App
    world: World


_ENDED: Final[set[str]] = set()
"""The addresses of servers that have ended."""


@contextlib.contextmanager
def serving(
    world: World,
    gate: Gate | None = None,
    *,
    profile: str | None = None,
    roots: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> Generator[Site]:
    """A server on a port of its own."""
    given: dict[str, Any] = {"profile": profile, "roots": roots, "settings": settings}
    app = App(world.project, home=world.home, surface="http", store="memory:", **given)
    with running(app, gate or Gate(token=TOKEN)) as (_, url):
        _ENDED.discard(url)
        try:
            yield Site(url, app, world)
        finally:
            _ENDED.add(url)


@dataclass
class Watch:
    """The errors of a page. A test that expects one removes it. A page may outlive its server, which it then misses."""

    heard: list[str] = field(default_factory=list[str])

    def listen(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.heard.append(f"pageerror: {error}"))
        page.on("dialog", self._dialog)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.location["url"].startswith(tuple(f"{url}/" for url in _ENDED)):
            self.heard.append(f"console: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.heard.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextlib.contextmanager
def new_page(
    chromium: Browser, watch: Watch, width: int = 1280, theme: Literal["light", "dark"] = "light", token: str = TOKEN
) -> Generator[Page]:
    """A page in a browser profile of its own. It sends the token, so that it need not sign in."""
    context = chromium.new_context(
        viewport={"width": width, "height": 860},
        color_scheme=theme,
        extra_http_headers={"authorization": f"Bearer {token}"} if token else {},
    )
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(20_000)
    made = context.new_page()
    watch.listen(made)
    try:
        yield made
    finally:
        context.close()


# --- the chat ---


def say(page: Page, text: str) -> None:
    """Type a message and send it."""
    page.locator("[data-message]").fill(text)
    page.locator("[data-message]").press("Enter")


def answered(page: Page) -> None:
    """Wait for the end of a turn."""
    page.wait_for_selector('main[data-status="idle"] [data-items] > :last-child:not([data-growing])')
