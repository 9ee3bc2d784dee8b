"""Signs people in with the token or with the link that the server printed, and out again.

A link has its code behind a `#`, which browsers send to no server: not in the request, so it is in no log, and not in
the Referer header. A script of the page hands it over as a form, as people do with the token.
"""

from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from metier.surfaces.web.access import DAYS, Access, cookie_name
from metier.surfaces.web.guard import LOGIN, address_of
from metier.surfaces.web.site import Site, back_to, form, see_other


@dataclass(frozen=True)
class LoginPages:
    """The page that asks for the token, and signing in and out."""

    site: Site
    access: Access

    async def show(self, request: Request) -> Response:
        wanted = back_to(request.query_params.get("next", ""))
        return await self._ask(request, 200, wanted) if self.access.token else see_other(wanted)

    async def sign_in(self, request: Request) -> Response:
        given = await form(request)
        wanted, code = back_to(given.get("next", "")), given.get("code", "")
        access = self.access
        if not access.token:
            return see_other(wanted)
        if access.is_token(given.get("token", "").strip()) or access.take_code(code):
            answer = see_other(wanted)
            answer.set_cookie(
                cookie_name(request.headers),
                await access.sign_ins.begin(),
                max_age=DAYS * 86_400,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )
            return answer
        if await access.signed_in(request.headers):
            return see_other(wanted)  # the link was opened a second time
        if not await access.wrong.wait(address_of(request.scope)):
            return await self._ask(request, 429, wanted, "Too many attempts. Wait some seconds, then try again.")
        used = "This link was used already, or the server was started again. Enter the token."
        return await self._ask(request, 401, wanted, used if code else "That is not the token of this server.")

    async def sign_out(self, request: Request) -> Response:
        sign_in = await self.access.signed_in(request.headers) if self.access.token else ""
        if sign_in:
            await self.access.sign_ins.end(sign_in)
        answer = see_other(LOGIN)
        answer.delete_cookie(cookie_name(request.headers), httponly=True, samesite="strict")
        return answer

    async def _ask(self, request: Request, status: int, wanted: str, wrong: str = "") -> Response:
        return await run_in_threadpool(self.site.page, request, "login.html", status, wanted=wanted, wrong=wrong)
