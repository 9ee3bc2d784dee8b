"""The pages of the web app: chat, skills, prompt, usage and activity, and the routes of all pages.

The server renders them and small scripts update them. They contain no rules of their own: they ask `App`, `Skills` and
the store, as every other surface does.
"""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from metier.surfaces.chat.chat_search import ChatSearch
from metier.surfaces.web.access import Access
from metier.surfaces.web.login import LoginPages
from metier.surfaces.web.pages.activity import ActivityPages
from metier.surfaces.web.pages.catalog import CatalogPages
from metier.surfaces.web.pages.chat import ChatPages
from metier.surfaces.web.pages.chat_export import ChatExport
from metier.surfaces.web.pages.chat_list import ChatListPages
from metier.surfaces.web.pages.editor import EditorPages
from metier.surfaces.web.pages.importing import ImportPages
from metier.surfaces.web.pages.overview import Overviews
from metier.surfaces.web.pages.palette import PalettePages
from metier.surfaces.web.pages.previews import PreviewPages
from metier.surfaces.web.pages.prompts import PromptPages
from metier.surfaces.web.pages.rules import RulePages
from metier.surfaces.web.pages.usage import UsagePages
from metier.surfaces.web.site import Page, Site, wants_html

if TYPE_CHECKING:
    from metier.surfaces.web.api import Api

__all__ = ["error_page", "routes"]


def routes(api: "Api", access: Access) -> list[Route]:
    """The routes of all pages, beside the operations of an API."""
    site = Site(api.app, api.hide_paths, locked=bool(access.token))
    search = ChatSearch(api.chats.store)
    listed = ChatListPages(site, api, search)
    login, chat = LoginPages(site, access), ChatPages(site, api, search)
    overviews = Overviews()
    skills, prompts, activity = CatalogPages(site, overviews), PromptPages(site), ActivityPages(site)
    editor, rules, previews = EditorPages(site, overviews), RulePages(site), PreviewPages(site, api)
    palette = PalettePages(site, overviews, search)
    table: list[tuple[str, str, Page]] = [
        ("GET", "/login", login.show),
        ("POST", "/login", login.sign_in),
        ("POST", "/logout", login.sign_out),
        ("GET", "/", chat.new),
        ("GET", "/chat/{chat_id}", chat.chat),
        ("GET", "/chat/{chat_id}/stream", chat.stream),
        ("GET", "/chat/{chat_id}/spent", chat.spent),
        ("GET", "/chat/{chat_id}/export.{kind}", ChatExport(site, api).file),
        ("GET", "/files/{chat_id}/{digest}", previews.show),
        ("GET", "/files/{chat_id}/{digest}/image", previews.image),
        ("GET", "/files/{chat_id}/{digest}/frame", previews.frame),
        ("GET", "/chats", listed.index),
        ("POST", "/chats/{chat_id}", listed.change),
        ("GET", "/skills", skills.listing),
        ("POST", "/skills/mode", skills.switch),
        ("POST", "/skills/refresh", skills.rescan),
        ("GET", "/skills/{name:path}", skills.skill),
        ("GET", "/edit/new", editor.new),
        ("POST", "/edit/new", editor.create),
        ("POST", "/edit/offer", ImportPages(site).offer),
        ("POST", "/edit/put-back", editor.put_back),
        ("GET", "/edit/{key}", editor.show),
        ("POST", "/edit/{key}/check", editor.check),
        ("POST", "/edit/{key}/preview", editor.preview),
        ("POST", "/edit/{key}/save", editor.save),
        ("GET", "/edit/{key}/history", editor.versions),
        ("POST", "/edit/{key}/restore", editor.restore),
        ("POST", "/edit/{key}/remove", editor.remove),
        ("GET", "/palette", palette.find),
        ("GET", "/shortcuts", palette.shortcuts),
        ("GET", "/rules", rules.index),
        ("POST", "/rules/revoke", rules.revoke),
        ("GET", "/prompt", prompts.prompt),
        ("GET", "/usage", UsagePages(site).index),
        ("GET", "/activity", activity.index),
        ("GET", "/activity/{session_id}", activity.session),
        ("GET", "/activity/{session_id}/replay", activity.verdict),
        ("GET", "/activity/{session_id}/artifacts/{digest}", activity.artifact),
    ]
    made = [Route(path, site.served(page), methods=[method]) for method, path, page in table]
    return [Route("/static/{version}/{name}", site.static, methods=["GET"]), *made]


def error_page(request: Request, status: int, message: str) -> Response | None:
    """An error page for a browser; `None` for other clients."""
    if not wants_html(request):
        return None
    title = "Page not found" if status == 404 else "Something went wrong"
    api: Api = request.app.api
    return Site(api.app, api.hide_paths).error(request, status, title, message)
