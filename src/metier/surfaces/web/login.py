"""Signs people in with the token or with the link that the server printed, and out again.

A link has its code behind a `#`, which browsers send to no server: not in the request, so it is in no log, and not in
the Referer header. A script of the page hands it over as a form, as people do with the token.
"""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from metier.surfaces.web.access import DAYS, cookie_name
from metier.surfaces.web.guard import LOGIN
from metier.surfaces.web.site import Site, back_to, form, see_other


async def show(site: Site, request: Request) -> Response:
    wanted = back_to(request.query_params.get("next", ""))
    return await _ask(site, request, 200, wanted) if site.access.token else see_other(wanted)


async def sign_in(site: Site, request: Request) -> Response:
    given = await form(request)
    wanted, code = back_to(given.get("next", "")), given.get("code", "")
    access = site.access
    if not access.token:
        return see_other(wanted)
    if access.is_token(given.get("token", "").strip()) or access.take_code(code):
        answer = see_other(wanted)
        answer.set_cookie(
            cookie_name(request.headers),
            await access.begin(),
            max_age=DAYS * 86_400,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer
    if await access.signed_in(request.headers):
        return see_other(wanted)  # the link was opened a second time
    used = "This link was used already, or the server was started again. Enter the token."
    return await _ask(site, request, 401, wanted, used if code else "That is not the token of this server.")


async def sign_out(site: Site, request: Request) -> Response:
    sign_in = await site.access.signed_in(request.headers) if site.access.token else ""
    if sign_in:
        await site.access.end(sign_in)
    answer = see_other(LOGIN)
    answer.delete_cookie(cookie_name(request.headers), httponly=True, samesite="strict")
    return answer


async def _ask(site: Site, request: Request, status: int, wanted: str, wrong: str = "") -> Response:
    return await run_in_threadpool(site.page, request, "login.html", status, wanted=wanted, wrong=wrong)
