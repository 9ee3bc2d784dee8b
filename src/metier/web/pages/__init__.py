"""The pages that people open: chat, skills, prompt, activity, and the door where a token is asked for.

They are rendered here and made livelier by small scripts; they decide nothing, and ask `App`, `Skills` and the store
as every other surface does.
"""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from metier.web.guard import Gate
from metier.web.pages.activity import ActivityPages
from metier.web.pages.catalog import CatalogPages
from metier.web.pages.chat import ChatPages
from metier.web.pages.login import Door
from metier.web.pages.overview import Overviews
from metier.web.pages.prompts import PromptPages
from metier.web.pages.site import Endpoint, Site, wants_html

if TYPE_CHECKING:
    from metier.web.api import Api

__all__ = ["error_page", "routes"]


def routes(api: "Api", gate: Gate) -> list[Route]:
    """The routes of all pages, beside the operations of an API."""
    site = Site(api.app, gate, api.veil)
    door, chat = Door(site), ChatPages(site, api)
    skills, prompts, activity = CatalogPages(site, Overviews()), PromptPages(site), ActivityPages(site)
    table: list[tuple[str, str, Endpoint]] = [
        ("GET", "/login", door.ask),
        ("POST", "/login", door.enter),
        ("POST", "/logout", door.leave),
        ("GET", "/", chat.new),
        ("GET", "/chat/{chat_id}", chat.chat),
        ("GET", "/chat/{chat_id}/stream", chat.stream),
        ("GET", "/skills", skills.listing),
        ("POST", "/skills/mode", skills.switch),
        ("POST", "/skills/refresh", skills.look_again),
        ("GET", "/skills/{name:path}", skills.skill),
        ("GET", "/prompt", prompts.prompt),
        ("GET", "/activity", activity.index),
        ("GET", "/activity/{session_id}", activity.session),
        ("GET", "/activity/{session_id}/replay", activity.verdict),
        ("GET", "/activity/{session_id}/artifacts/{digest}", activity.artifact),
    ]
    made = [Route(path, site.guarded(endpoint), methods=[method]) for method, path, endpoint in table]
    return [Route("/static/{version}/{name}", site.static, methods=["GET"]), *made]


def error_page(request: Request, status: int, message: str) -> Response | None:
    """A page for what cannot be answered, where a person asked; `None` where a program did."""
    if not wants_html(request):
        return None
    title = "There is no such page" if status == 404 else "This did not work"
    api: Api = request.app.api
    return Site(api.app, Gate(), api.veil).error(request, status, title, message)
