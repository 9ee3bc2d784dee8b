"""What every page shares: templates, static files, headers, and how a value of a skill gets onto a page.

A page is whole when it arrives: scripts only make it quicker to use. Nothing comes from elsewhere, no script or style
is inline, and the Content-Security-Policy says so. Static files are known by the digest of them all, so that a browser
may keep them for ever and still sees a new version at once.
"""

import gzip
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from metier.app import App
from metier.errors import MetierError, PolicyDenied, ResourceNotFound, SkillNotFound
from metier.files.text import utf8, visible
from metier.skills import Skills
from metier.web.guard import Gate
from metier.web.markdown import to_html

_HERE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
THEMES: Final = ("light", "dark")
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_COMPRESSED: Final = 1_000
"""Answers from this many bytes on are compressed."""

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file, read once."""

    content: bytes
    packed: bytes
    media_type: str
    etag: str


@dataclass(frozen=True)
class Site:
    """The pages of one `App`. `veil` shortens the paths of this machine in what is sent, where a profile wants that."""

    app: App
    gate: Gate
    veil: Callable[[Any], Any]

    def skills(self) -> Skills:
        return self.app.skills()

    # --- static files ---

    @cached_property
    def assets(self) -> Mapping[str, Asset]:
        folder = os.path.join(_HERE, "static")
        found: dict[str, Asset] = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as stream:
                content = stream.read()
            etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
            found[name] = Asset(content, gzip.compress(content, 9, mtime=0), _TYPES[os.path.splitext(name)[1]], etag)
        return found

    @cached_property
    def version(self) -> str:
        """The digest of all static files; it is a part of their addresses."""
        return hashlib.sha256("".join(f"{n}{a.etag}" for n, a in self.assets.items()).encode()).hexdigest()[:12]

    async def static(self, request: Request) -> Response:
        asset = self.assets.get(request.path_params["name"])
        if asset is None:
            return Response(status_code=404)
        current = request.path_params["version"] == self.version
        headers = {
            "etag": asset.etag,
            "cache-control": "public, max-age=31536000, immutable" if current else "no-cache",
            "vary": "accept-encoding",
        }
        if request.headers.get("if-none-match") == asset.etag:
            return Response(status_code=304, headers=headers)
        if _takes_gzip(request):
            return Response(asset.packed, headers=headers | {"content-encoding": "gzip"}, media_type=asset.media_type)
        return Response(asset.content, headers=headers, media_type=asset.media_type)

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
        filters: dict[str, Callable[..., Any]] = {
            "visible": visible, "block": _block, "markdown": _markdown, "size": size, "ago": ago, "clock": clock,
            "segment": segment, "query": _query,
        }  # fmt: skip
        made.filters.update(filters)
        return made

    def render(self, template: str, **given: Any) -> str:
        return self.templates.get_template(template).render(static=f"/static/{self.version}", **given)

    def page(self, request: Request, template: str, status: int = 200, **given: Any) -> Response:
        """A page, or the part of one that a script asked for."""
        theme = request.cookies.get("theme", "")
        config = self.app.config
        place = os.path.basename(config.place.project) or config.place.project
        text = self.render(
            template, theme=theme if theme in THEMES else "", here=request.url.path, place=place,
            place_path=config.place.project, profile_name=config.profile.name, locked=bool(self.gate.token), **given,
        )  # fmt: skip
        return html(request, self.veil(text), status)

    def error(self, request: Request, status: int, title: str, message: str, way_out: str = "") -> Response:
        return self.page(request, "error.html", status, title=title, message=message, way_out=way_out)

    def guarded(self, endpoint: Endpoint) -> Endpoint:
        """An endpoint whose refusals are pages, too."""

        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except MetierError as error:
                status, title = _refusal(error)
                return await run_in_threadpool(self.error, request, status, title, str(error))

        return answer


def _refusal(error: MetierError) -> tuple[int, str]:
    if isinstance(error, (SkillNotFound, ResourceNotFound)):
        return 404, "Not found"
    return (403, "Refused") if isinstance(error, PolicyDenied) else (422, "This did not work")


def html(request: Request, text: str, status: int = 200) -> Response:
    """An HTML answer with the headers of a page."""
    content = utf8(text)
    headers = {"content-security-policy": CSP, "cache-control": "no-store", "vary": "accept-encoding, cookie"}
    if len(content) >= _COMPRESSED and _takes_gzip(request):
        content = gzip.compress(content, 5, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(content, status, headers, "text/html")


def wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


async def form(request: Request) -> dict[str, str]:
    """The fields of a form."""
    try:
        return dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))
    except (ValueError, ClientDisconnect):
        return {}


def whole(text: str | None, default: int, low: int = 0, high: int = 10**9) -> int:
    """A whole number of a query, within bounds; whatever is no number is the default."""
    return min(max(int(text), low), high) if text and text.isascii() and text.isdigit() and len(text) < 10 else default


def back_to(wanted: str, default: str = "/") -> str:
    """An address of this server to go to; anything else is the default."""
    return wanted if wanted.startswith("/") and not wanted.startswith(("//", "/\\")) else default


def see(address: str) -> Response:
    """Look there next."""
    return RedirectResponse(address, 303)


# --- filters of the templates ---


def _block(text: object) -> str:
    return visible(text, lines=True)


def _markdown(text: str) -> Markup:
    return Markup(to_html(text))  # noqa: S704 - cleaned there


def segment(text: object) -> str:
    """A part of an address, whatever it holds."""
    return quote(utf8(str(text)), safe="")


def _query(given: Mapping[str, object]) -> str:
    kept = {key: utf8(str(value)) for key, value in given.items() if value not in (None, "")}
    return urlencode(kept)


def size(count: int) -> str:
    """Bytes for people."""
    if count < 1_000:
        return f"{count} B"
    return f"{count / 1_000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def clock(ms: int) -> str:
    """A moment, for a machine and for those without scripts: the page's script shows it in the reader's own time."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(ms: int) -> str:
    """How long ago a moment was, in one unit."""
    seconds = max(0, datetime.now(UTC).timestamp() - ms / 1000)
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
