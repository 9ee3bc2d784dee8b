"""Signs people in to a server with a token: they enter the token once and get a cookie.

The cookie is derived from the token and never contains it, and no script can read it.
"""

import hmac
from dataclasses import dataclass
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from metier.web import guard
from metier.web.site import Site, back_to, form, see_other

_DAYS: Final = 30


@dataclass(frozen=True)
class LoginPages:
    """The page that asks for the token, and signing in and out."""

    site: Site

    async def show(self, request: Request) -> Response:
        wanted = back_to(request.query_params.get("next", ""))
        if not self.site.gate.token:
            return see_other(wanted)
        return await run_in_threadpool(self.site.page, request, "login.html", wanted=wanted, wrong=False)

    async def sign_in(self, request: Request) -> Response:
        given = await form(request)
        wanted = back_to(given.get("next", ""))
        gate = self.site.gate
        if not gate.token or not hmac.compare_digest(given.get("token", "").strip().encode(), gate.token.encode()):
            return await run_in_threadpool(self.site.page, request, "login.html", 401, wanted=wanted, wrong=True)
        answer = see_other(wanted)
        answer.set_cookie(
            guard.COOKIE,
            gate.cookie,
            max_age=_DAYS * 86_400,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def sign_out(self, request: Request) -> Response:
        answer = see_other("/login")
        answer.delete_cookie(guard.COOKIE, httponly=True, samesite="strict")
        return answer
