"""The pages of the web app: chat, skills, prompt, usage and activity, and the routes of all pages.

The server renders them and small scripts update them. They contain no rules of their own: they ask `App`, `Skills` and
the store, as every other surface does.
"""

from typing import Final

from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from metier.surfaces.web import login
from metier.surfaces.web.pages import activity, catalog, chat, previews, prompts, rules, usage
from metier.surfaces.web.site import Page, Site, StaticFolder


def _shortcuts(site: Site, request: Request) -> Response:
    return site.page(request, "shortcuts.html")


_PAGES: Final[tuple[tuple[str, str, Page], ...]] = (
    ("GET", "/login", login.show),
    ("POST", "/login", login.sign_in),
    ("POST", "/logout", login.sign_out),
    ("GET", "/", chat.chat),
    ("GET", "/chat/{chat_id}", chat.chat),
    ("GET", "/chat/{chat_id}/stream", chat.stream),
    ("GET", "/chat/{chat_id}/spent", chat.spent),
    ("GET", "/chat/{chat_id}/export.{kind}", chat.export),
    ("GET", "/files/{chat_id}/{digest}", previews.show),
    ("GET", "/files/{chat_id}/{digest}/image", previews.image),
    ("GET", "/files/{chat_id}/{digest}/frame", previews.frame),
    ("GET", "/chats", chat.index),
    ("POST", "/chats/{chat_id}", chat.change),
    ("GET", "/skills", catalog.listing),
    ("POST", "/skills/mode", catalog.switch),
    ("POST", "/skills/refresh", catalog.rescan),
    ("GET", "/skills/{name:path}", catalog.skill),
    ("GET", "/shortcuts", _shortcuts),
    ("GET", "/rules", rules.index),
    ("POST", "/rules/revoke", rules.revoke),
    ("GET", "/prompt", prompts.prompt),
    ("GET", "/usage", usage.index),
    ("GET", "/activity", activity.index),
    ("GET", "/activity/{session_id}", activity.session),
    ("GET", "/activity/{session_id}/replay", activity.verdict),
    ("GET", "/activity/{session_id}/artifacts/{digest}", activity.artifact),
)


def routes(site: Site) -> list[BaseRoute]:
    packed = [Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=6, thread_minimum_size=10_000)]
    made = [Route(path, site.served(page), methods=[method], middleware=packed) for method, path, page in _PAGES]
    return [Mount("/static/{version}", StaticFolder(site), middleware=packed), *made]
