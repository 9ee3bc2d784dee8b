"""Who may talk to the server: the gate that every request passes before anything else sees it.

A server on loopback answers only requests that were meant for it: the Host header must name it, so that a page on
another site cannot reach it through a name of its own (DNS rebinding), and the Origin header, where a browser sends
one, must be its own. Anywhere else a token is needed besides. Bodies and rates are bounded, in size and in time.
"""

import asyncio
import hmac
import ipaddress
import time
from collections import OrderedDict
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metier import limits
from metier.errors import ConfigError
from metier.web import RATE

BODY_BYTES: Final = 4 * limits.MIB
BODY_SECONDS: Final = 20.0
"""For the whole body of a request; who sends slower is cut off."""
BURST: Final = 4.0
"""Seconds of the rate that may be asked for at once."""
CLIENTS: Final = 10_000
"""Addresses whose rate is remembered; the one that has been silent longest is forgotten first."""

LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
LOGIN: Final = "/login"
OPEN_PATHS: Final = frozenset(("/healthz", LOGIN))
OPEN_FOLDER: Final = "/static/"
COOKIE: Final = "metier_token"


@dataclass(frozen=True, slots=True)
class Gate:
    """The rules of one server. `hosts` are the names it answers to; without a token it must be on loopback."""

    hosts: frozenset[str] = LOOPBACK
    token: str = ""
    body_bytes: int = BODY_BYTES
    body_seconds: float = BODY_SECONDS
    rate: float = RATE
    """Requests a second from one address; 0 means no limit."""
    burst: float = RATE * BURST

    @property
    def cookie(self) -> str:
        """What a browser that signed in sends instead of the token, made from it, so that no jar holds the token."""
        return hmac.new(self.token.encode(), b"metier cookie", "sha256").hexdigest() if self.token else ""

    @classmethod
    def for_address(cls, host: str, token: str = "", names: tuple[str, ...] = (), rate: float = RATE) -> "Gate":
        """The gate for an address to listen on; one that others can reach needs a token."""
        local = host in LOOPBACK or _is_loopback(host)
        if not local and not token:
            raise ConfigError(
                f"listening on {host} lets others in, and needs a token",
                key="host",
                hint="set METIER_TOKEN, or listen on 127.0.0.1",
            )
        if token and len(token) < 16:
            raise ConfigError("the token is too short", key="token", hint="use at least 16 random characters")
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise ConfigError("the token has characters that no header may have", key="token")
        hosts = frozenset((*LOOPBACK, host.lower(), *(name.lower() for name in names)))
        return cls(hosts, token, rate=rate, burst=max(rate * BURST, 1.0))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        self.status, self.code, self.message, self.headers = status, code, message, headers
        super().__init__(message)


class Guard:
    """The gate as middleware."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self.app, self.gate = app, gate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        answer = _Answer(send)
        body = _Bounded(receive, self.gate, answer)
        try:
            self._check(scope)
            await self.app(scope, body, answer)
        except _Refused as refused:
            # What is left of a body that was refused would be taken for the next request.
            headers = {**(refused.headers or {}), **({} if body.whole else {"connection": "close"})}
            shown = {"error": {"code": refused.code, "message": refused.message}}
            await JSONResponse(shown, refused.status, headers)(scope, receive, answer)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = _name(headers.get("host", ""))
        if host not in self.gate.hosts:
            raise _Refused(421, "WRONG_HOST", "this server does not answer to that name")
        self._check_site(headers)
        self._limit(scope)
        self._check_token(scope, headers)
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < 16) or int(length) > self.gate.body_bytes:
            raise _too_large(self.gate)

    def _check_token(self, scope: Scope, headers: Headers) -> None:
        path: str = scope["path"]
        if not self.gate.token or path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return
        given = headers.get("authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {self.gate.token}".encode()):
            return
        if hmac.compare_digest(_cookie(headers).encode(), self.gate.cookie.encode()):
            return
        if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
            raise _Refused(303, "UNAUTHORIZED", "sign in first", {"location": f"{LOGIN}?next={quote(path, safe='')}"})
        wanted = {"www-authenticate": "Bearer"}
        raise _Refused(401, "UNAUTHORIZED", "a valid token is needed in the Authorization header", wanted)

    def _check_site(self, headers: Headers) -> None:
        """A browser says where a request comes from. Another site may link to a page here, and do nothing else."""
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != headers.get("host", "").lower():
            raise _Refused(403, "WRONG_ORIGIN", "requests from other sites are refused")
        followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and (origin is not None or not followed):
            raise _Refused(403, "WRONG_ORIGIN", "requests from other sites are refused")

    def _limit(self, scope: Scope) -> None:
        """A bucket of tokens for each address, filled at the rate."""
        if not self.gate.rate:
            return
        client = scope.get("client")
        address = client[0] if client else ""
        now = time.monotonic()
        left, last = self._buckets.pop(address, (self.gate.burst, now))
        left = min(self.gate.burst, left + (now - last) * self.gate.rate)
        self._buckets[address] = (max(left - 1, 0.0), now)
        while len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            raise _Refused(429, "TOO_MANY_REQUESTS", "too many requests; slow down", {"retry-after": "1"})


def _too_large(gate: Gate) -> _Refused:
    return _Refused(413, "TOO_LARGE", f"a request may have {gate.body_bytes:,} bytes")


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()


def _cookie(headers: Headers) -> str:
    jar = SimpleCookie()
    try:
        jar.load(headers.get("cookie", ""))
    except CookieError:
        return ""
    return jar[COOKIE].value if COOKIE in jar else ""


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


class _Bounded:
    """A body that is refused once it is larger or slower than allowed, whatever its headers said.

    Where the answer has begun already, without it, the client counts as gone.
    """

    def __init__(self, receive: Receive, gate: Gate, answer: "_Answer") -> None:
        self._receive, self._gate, self._answer, self._left = receive, gate, answer, gate.body_bytes
        self._deadline: float | None = None
        self.whole = False
        """Whether all of it has come; then the next message is that the client went away."""

    async def __call__(self) -> Message:
        if self.whole:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._gate.body_seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            return self._refuse(_Refused(408, "TOO_SLOW", f"a body must come within {self._gate.body_seconds:g} s"))
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
            if self._left < 0:
                return self._refuse(_too_large(self._gate))
        return message

    def _refuse(self, refused: _Refused) -> Message:
        if not self._answer.started:
            raise refused
        return {"type": "http.disconnect"}


class _Answer:
    """What is sent, with headers that every answer carries: nothing is guessed, framed or kept."""

    def __init__(self, send: Send) -> None:
        self._send, self.started = send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = list(message.get("headers", ()))
            headers += [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"same-origin")]
            headers += [(b"x-frame-options", b"DENY"), (b"cross-origin-resource-policy", b"same-origin")]
            message = {**message, "headers": headers}
        await self._send(message)
