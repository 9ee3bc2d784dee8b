"""The door of a server that others can reach: a person gives the token once and is known by a cookie from then on.

The cookie holds what the gate derives from the token, never the token, and no script can read it.
"""

import hmac
from dataclasses import dataclass
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from metier.web import guard
from metier.web.pages.site import Site, back_to, form, see

_DAYS: Final = 30


@dataclass(frozen=True)
class Door:
    """See the module."""

    site: Site

    async def ask(self, request: Request) -> Response:
        wanted = back_to(request.query_params.get("next", ""))
        if not self.site.gate.token:
            return see(wanted)
        return await run_in_threadpool(self.site.page, request, "login.html", wanted=wanted, wrong=False)

    async def enter(self, request: Request) -> Response:
        given = await form(request)
        wanted = back_to(given.get("next", ""))
        gate = self.site.gate
        if not gate.token or not hmac.compare_digest(given.get("token", "").strip().encode(), gate.token.encode()):
            return await run_in_threadpool(self.site.page, request, "login.html", 401, wanted=wanted, wrong=True)
        answer = see(wanted)
        answer.set_cookie(
            guard.COOKIE, gate.cookie, max_age=_DAYS * 86_400, httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    async def leave(self, request: Request) -> Response:
        answer = see("/login")
        answer.delete_cookie(guard.COOKIE, httponly=True, samesite="strict")
        return answer
