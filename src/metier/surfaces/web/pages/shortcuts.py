"""The page of keyboard shortcuts."""

from starlette.requests import Request
from starlette.responses import Response

from metier.surfaces.web.site import Site


def show(site: Site, request: Request) -> Response:
    return site.page(request, "shortcuts.html")
