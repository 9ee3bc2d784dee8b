"""What the endpoints and pages of a server share: one value, templates, static files, headers and filters.

A page is complete without scripts; they only make it quicker to use. Nothing is loaded from other sites and no script
or style is inline, as the Content-Security-Policy requires. The address of static files contains the digest of all of
them, so a browser can cache them forever and still gets a new version at once.
"""

import hashlib
import json
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property, partial
from inspect import iscoroutinefunction
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from metier.app import App
from metier.catalog.build import Catalog
from metier.errors import MetierError, PolicyDenied, ResourceNotFound, SkillNotFound
from metier.files.text import utf8, visible
from metier.skills import Skills
from metier.surfaces.chat import Chats, NoSuchChat
from metier.surfaces.chat.known_chats import KnownChats
from metier.surfaces.rpc import CatalogShown
from metier.surfaces.web.access import Access
from metier.surfaces.web.health import StoreHealth
from metier.surfaces.web.hide_paths import PathHider
from metier.surfaces.web.markdown import answer_html, to_html
from metier.surfaces.web.overview import Overviews
from metier.surfaces.web.sse import EventFeed
from metier.values.skill import Counts

_HERE: Final = os.path.dirname(os.path.abspath(__file__))
_STATIC: Final = os.path.join(_HERE, "static")
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
THEMES: Final = ("light", "dark")

_FIELDS: Final = 100
"""Fields of a form; no form here has as many."""

Form = Mapping[str, str]
"""The fields of a form, by name."""

Page = Callable[..., Response] | Callable[..., Awaitable[Response]]
"""What answers a request to a `Site`. One that is no coroutine function is called in a worker thread, and also gets the
form of a POST."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


def encode(data: object) -> bytes:
    """Data as JSON. Characters that UTF-8 cannot encode become question marks."""
    return utf8(_ENCODER.encode(data))


class StaticFolder(StaticFiles):
    """The static files, which a browser keeps as long as their address has the current version."""

    def __init__(self, site: "Site") -> None:
        super().__init__(directory=_STATIC)
        self._site = site

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        current = scope["path_params"]["version"] == self._site.version
        answer.headers["cache-control"] = "public, max-age=31536000, immutable" if current else "no-cache"
        return answer


class ServedCatalog(CatalogShown, kw_only=True):
    json_keys = ("profile", "skills", "errors", "diagnostics", "shadowed", "skipped", "counts")

    profile: str
    counts: Counts


class Site:
    """What the endpoints and pages of one `App` need. `document` is the OpenAPI document of its endpoints."""

    def __init__(self, app: App, access: Access, document: bytes) -> None:
        self.app, self.access, self.document = app, access, document
        self.chats = Chats(app)
        self.known_chats = KnownChats(self.chats.store)
        self.hide_paths = PathHider(app)
        self.feed = EventFeed(app.store, self.hide_paths)
        self.overviews = Overviews()
        self.store_health = StoreHealth(app.store)
        self._catalog: tuple[Catalog, bytes] | None = None
        self._encoding = threading.Lock()
        self._seen: tuple[Catalog | None, dict[str, Skills]] = (None, {})
        self._seeing = threading.Lock()

    def skills(self, profile: str = "") -> Skills:
        """The skills, as the given profile sees them. They are kept until the main catalog changes."""
        main = self.app.skills()
        if profile in ("", main.profile.name):
            return main
        with self._seeing:
            if self._seen[0] is not main.catalog:
                self._seen = (main.catalog, {})
            if profile not in self._seen[1]:
                self._seen[1][profile] = seen_by(main, profile)
            return self._seen[1][profile]

    def catalog(self) -> bytes:
        """The catalog as JSON, encoded once. A catalog is the same object until its content changes."""
        found = self.app.skills()
        known = self._catalog
        if known is not None and known[0] is found.catalog:
            return known[1]
        with self._encoding:
            catalog = found.catalog
            if self._catalog is None or self._catalog[0] is not catalog:
                listed = ServedCatalog.of(found, profile=found.profile.name, counts=found.counts)
                self._catalog = (catalog, encode(self.hide_paths(listed.as_dict())))
            return self._catalog[1]

    # --- static files ---

    @cached_property
    def version(self) -> str:
        """The digest of all static files, which is part of their addresses."""
        digest = hashlib.sha256()
        for name in sorted(os.listdir(_STATIC)):
            with open(os.path.join(_STATIC, name), "rb") as stream:
                digest.update(stream.read())
        return digest.hexdigest()[:12]

    # --- pages ---

    @cached_property
    def templates(self) -> Environment:
        made = Environment(
            loader=FileSystemLoader(os.path.join(_HERE, "templates")),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Callable[..., object]] = {
            "visible": visible,
            "block": partial(visible, lines=True),
            "markdown": _markdown,
            "answer": _answer,
            "size": size,
            "ago": ago,
            "clock": clock,
            "segment": segment,
            "query": _query,
        }
        made.filters.update(filters)
        return made

    def render(self, template: str, **given: object) -> str:
        return self.templates.get_template(template).render(static=f"/static/{self.version}", **given)

    def page(self, request: Request, template: str, status: int = 200, **given: object) -> Response:
        """A page, or the part of a page that a script asked for."""
        theme = request.cookies.get("theme", "")
        config = self.app.config
        place = os.path.basename(config.place.project) or config.place.project
        text = self.render(
            template,
            theme=theme if theme in THEMES else "",
            here=request.url.path,
            place=place,
            place_path=config.place.project,
            profile_name=config.profile.name,
            off="" if config.profile.enabled else config.profile.off_hint,
            reads_once=config.profile.catalog.refresh == "start",
            **{"locked": bool(self.access.token), **given},  # whether people sign in, and so can sign out
        )
        headers = {"content-security-policy": CSP, "cache-control": "no-store", "vary": "cookie"}
        return Response(utf8(self.hide_paths(text)), status, headers, "text/html")

    def error(
        self, request: Request, status: int, title: str, message: str, way_out: str = "", **given: object
    ) -> Response:
        return self.page(request, "error.html", status, title=title, message=message, way_out=way_out, **given)

    def served(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        """A page as the endpoint of a route. Its errors are pages, too."""

        async def answer(request: Request) -> Response:
            answers: Callable[..., Any] = page
            try:
                if iscoroutinefunction(page):
                    return await answers(self, request)
                given = [await form(request)] if request.method == "POST" else []
                return await run_in_threadpool(answers, self, request, *given)
            except MetierError as error:
                return await run_in_threadpool(self.error, request, *_refusal(error))

        return answer


def seen_by(skills: Skills, profile: str) -> Skills:
    """The skills of the same place, as another profile sees them."""
    place = skills.settings.place
    named = [root.path for root in skills.roots if root.explicit]
    return Skills.discover(place.cwd, profile=profile, home=place.home, roots=named)


def _refusal(error: MetierError) -> tuple[int, str, str, str]:
    if isinstance(error, NoSuchChat):
        return 404, "Chat not found", str(error), "It may have been removed."
    if isinstance(error, SkillNotFound | ResourceNotFound):
        return 404, "Not found", str(error), ""
    status, title = (403, "Refused") if isinstance(error, PolicyDenied) else (422, "Something went wrong")
    return status, title, str(error), ""


async def form(request: Request) -> dict[str, str]:
    """The fields of a form."""
    try:
        sent = (await request.body()).decode("utf-8", "replace")
        return dict(parse_qsl(sent, keep_blank_values=True, max_num_fields=_FIELDS))
    except (ValueError, ClientDisconnect):
        return {}


def whole(text: str | None, default: int, low: int = 0, high: int = 10**9) -> int:
    """A whole number from a query, within bounds, or the default if the text is not a number."""
    return min(max(int(text), low), high) if text and text.isascii() and text.isdigit() and len(text) < 10 else default


def back_to(wanted: str, default: str = "/") -> str:
    """An address on this server to return to, or the default for any other address."""
    return wanted if wanted.startswith("/") and not wanted.startswith(("//", "/\\")) else default


def see_other(address: str) -> Response:
    """Redirect the browser to another page."""
    return RedirectResponse(address, 303)


# --- template filters ---


def _markdown(text: str) -> Markup:
    return Markup(to_html(text))  # noqa: S704 - to_html sanitizes it


def _answer(text: str) -> Markup:
    return Markup(answer_html(text))  # noqa: S704 - to_html sanitizes it


def segment(text: object) -> str:
    """Any text as one segment of an address."""
    return quote(utf8(str(text)), safe="")


def _query(given: Mapping[str, object]) -> str:
    kept = {key: utf8(str(value)) for key, value in given.items() if value not in (None, "")}
    return urlencode(kept)


def size(count: int) -> str:
    """A number of bytes, with a unit."""
    if count < 1_000:
        return f"{count} B"
    return f"{count / 1_000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def clock(ms: int) -> str:
    """A time in UTC. Scripts show it in the reader's time zone."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(ms: int) -> str:
    """How long ago a time was, in one unit."""
    seconds = max(0, datetime.now(UTC).timestamp() - ms / 1000)
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
