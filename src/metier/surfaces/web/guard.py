"""The gate that every request passes before anything else handles it.

The Host header must name the server, so that a page on another site cannot reach it through a name of its own (DNS
rebinding). The Origin header, if a browser sends one, must be the server's own. Everything but the sign-in and the
health check needs the token, and a body has a limit. Who may send how much how fast is for a proxy in front to say.
"""

import re
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metier import limits
from metier.errors import ConfigError, StoreError
from metier.files.addresses import is_loopback
from metier.surfaces.web.access import Access

BODY_BYTES: Final = 4 * limits.MIB
LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "[::1]"))
LOGIN: Final = "/login"
OPEN_PATHS: Final = frozenset(("/healthz", LOGIN))
OPEN_FOLDER: Final = "/static/"

_HOST: Final = re.compile(r"\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253}")
_NAMED: Final = "metier.named"
"""Where a request keeps that its Host header is one of ours."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The rules of one server. Without a token, whoever connects may use it."""

    hosts: frozenset[str] = LOOPBACK
    """The names that it answers to, as a Host header has them: without a port, an IPv6 address in brackets."""
    token: str = ""
    body_bytes: int = BODY_BYTES

    @classmethod
    def for_address(cls, host: str, token: str = "", names: tuple[str, ...] = ()) -> "Gate":
        """The gate for an address to listen on. An address that others can reach needs a token."""
        if not token and not is_loopback(host):
            raise ConfigError(
                f"listening on {host} needs a token, because others can connect",
                key="host",
                hint="set METIER_TOKEN, or listen on 127.0.0.1",
            )
        if token and len(token) < 16:
            raise ConfigError("the token is too short", key="token", hint="use at least 16 random characters")
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise ConfigError("the token has characters that a header cannot contain", key="token")
        for name in names:
            if not _HOST.fullmatch(name.lower()):
                raise ConfigError(f"{name!r} is not a host name", key="name", hint="give it without a port")
        own = f"[{host}]" if ":" in host else host
        return cls(hosts=LOOPBACK.union(name.lower() for name in (own, *names) if name), token=token)


class _RequestRefused(Exception):
    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        self.status, self.code, self.message, self.headers = status, code, message, headers
        super().__init__(message)


class Guard:
    """The gate as middleware."""

    def __init__(self, app: ASGIApp, gate: Gate, access: Access) -> None:
        self.app, self.gate, self.access = app, gate, access
        self._hosts = TrustedHostMiddleware(_name_ours, sorted(gate.hosts), www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            await self._check_host(scope, receive)
            sign_in = await self._check(scope)
            incoming = self._bounded(receive, answer)
            if sign_in:
                incoming = partial(self.access.receive, sign_in, incoming)
            await self.app(scope, incoming, answer)
            if sign_in and answer.started and not answer.complete:  # the browser signed out
                await answer({"type": "http.response.body"})
        except _RequestRefused as refused:
            shown = {"error": {"code": refused.code, "message": refused.message}}
            await JSONResponse(shown, refused.status, refused.headers)(scope, receive, answer)

    async def _check_host(self, scope: Scope, receive: Receive) -> None:
        await self._hosts(scope, receive, _say_nothing)  # its own refusal does not have the form of our errors
        if not scope.pop(_NAMED, False):
            raise _RequestRefused(421, "WRONG_HOST", "this server does not answer to that host name")
        if not scope["path"].startswith("/"):
            # A URL here names a host, too, and it would count for more than the header.
            raise _RequestRefused(400, "WRONG_TARGET", "the target of a request must be a path")

    async def _check(self, scope: Scope) -> str:
        """Refuse what may not come in. Return the sign-in of the browser, if that is what lets the request in."""
        headers, path = Headers(scope=scope), scope["path"]
        _check_site(headers)
        if not self.gate.token or self.access.sends_token(headers):
            return ""
        try:
            sign_in = await self.access.signed_in(headers)
        except StoreError as error:
            message = "it cannot be checked now whether you are signed in; try again"
            raise _RequestRefused(503, "STORE_UNAVAILABLE", message) from error
        if sign_in or path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return sign_in
        if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
            there = {"location": f"{LOGIN}?next={quote(path, safe='')}"}
            raise _RequestRefused(303, "UNAUTHORIZED", "sign in first", there)
        wanted = {"www-authenticate": "Bearer"}
        raise _RequestRefused(401, "UNAUTHORIZED", "the Authorization header must have a valid token", wanted)

    def _bounded(self, receive: Receive, answer: "_Answer") -> Receive:
        """A body that is refused once it is larger than allowed, whatever its headers say."""
        left = self.gate.body_bytes

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left >= 0:
                return message
            if answer.started:
                return {"type": "http.disconnect"}
            said = f"a request may have at most {self.gate.body_bytes:,} bytes"
            raise _RequestRefused(413, "TOO_LARGE", said, {"connection": "close"})

        return bounded


async def _name_ours(scope: Scope, receive: Receive, send: Send) -> None:
    scope[_NAMED] = True


async def _say_nothing(message: Message) -> None:
    pass


def _check_site(headers: Headers) -> None:
    """Refuse requests of other sites, as the browser reports them. Another site may only link to a page here."""
    origin, host = headers.get("origin"), headers.get("host", "")
    is_foreign = origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}")
    navigates = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    is_link = navigates and origin is None
    if is_foreign or (headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link):
        raise _RequestRefused(403, "WRONG_ORIGIN", "requests from other sites are refused")


class _Answer:
    """Adds the security headers that every answer carries."""

    def __init__(self, send: Send) -> None:
        self._send, self.started, self.complete = send, False, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = list(message.get("headers", ()))
            headers += [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"same-origin")]
            headers += [(b"cross-origin-resource-policy", b"same-origin")]
            if not any(name == b"x-frame-options" for name, _ in headers):
                headers += [(b"x-frame-options", b"DENY")]  # the preview of an HTML file is a frame of our own page
            message = {**message, "headers": headers}
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)
