"""The gate that every request passes before anything else handles it.

The Host header must name the server, so that a page on another site cannot reach it through a name of its own (DNS
rebinding). The Origin header, if a browser sends one, must be the server's own. A server that is not on loopback also
requires a token. Request bodies and request rates are limited in size and time.
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
"""For the whole body of a request. A slower client is cut off."""
BURST: Final = 4.0
"""A client may send this many seconds' worth of requests at once."""
CLIENTS: Final = 10_000
"""Addresses whose rate is remembered. The one that has been silent longest is forgotten first."""

LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
LOGIN: Final = "/login"
OPEN_PATHS: Final = frozenset(("/healthz", LOGIN))
OPEN_FOLDER: Final = "/static/"
COOKIE: Final = "metier_token"


@dataclass(frozen=True, slots=True)
class Gate:
    """The rules of one server. `hosts` are the names it answers to. A server without a token must be on loopback."""

    hosts: frozenset[str] = LOOPBACK
    token: str = ""
    body_bytes: int = BODY_BYTES
    body_seconds: float = BODY_SECONDS
    rate: float = RATE
    """Requests per second from one address; 0 means no limit."""
    burst: float = RATE * BURST

    @property
    def cookie(self) -> str:
        """The cookie of a browser that signed in. It is derived from the token, so no browser stores the token."""
        return hmac.new(self.token.encode(), b"metier cookie", "sha256").hexdigest() if self.token else ""

    @classmethod
    def for_address(cls, host: str, token: str = "", names: tuple[str, ...] = (), rate: float = RATE) -> "Gate":
        """The gate for an address to listen on. An address that others can reach needs a token."""
        local = host in LOOPBACK or _is_loopback(host)
        if not local and not token:
            raise ConfigError(
                f"listening on {host} needs a token, because others can connect",
                key="host",
                hint="set METIER_TOKEN, or listen on 127.0.0.1",
            )
        if token and len(token) < 16:
            raise ConfigError("the token is too short", key="token", hint="use at least 16 random characters")
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise ConfigError("the token has characters that a header cannot contain", key="token")
        hosts = frozenset((*LOOPBACK, host.lower(), *(name.lower() for name in names)))
        return cls(hosts=hosts, token=token, rate=rate, burst=max(rate * BURST, 1.0))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _RequestRefused(Exception):
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
        except _RequestRefused as refused:
            # The rest of a refused body must not be read as the next request.
            headers = {**(refused.headers or {}), **({} if body.whole else {"connection": "close"})}
            shown = {"error": {"code": refused.code, "message": refused.message}}
            await JSONResponse(shown, refused.status, headers)(scope, receive, answer)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = _name(headers.get("host", ""))
        if host not in self.gate.hosts:
            raise _RequestRefused(421, "WRONG_HOST", "this server does not answer to that host name")
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
            raise _RequestRefused(
                303, "UNAUTHORIZED", "sign in first", {"location": f"{LOGIN}?next={quote(path, safe='')}"}
            )
        wanted = {"www-authenticate": "Bearer"}
        raise _RequestRefused(401, "UNAUTHORIZED", "the Authorization header must have a valid token", wanted)

    def _check_site(self, headers: Headers) -> None:
        """Refuse requests of other sites, as the browser reports them. Another site may only link to a page here."""
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != headers.get("host", "").lower():
            raise _RequestRefused(403, "WRONG_ORIGIN", "requests from other sites are refused")
        followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and (origin is not None or not followed):
            raise _RequestRefused(403, "WRONG_ORIGIN", "requests from other sites are refused")

    def _limit(self, scope: Scope) -> None:
        """Limit the rate with one token bucket per address."""
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
            raise _RequestRefused(429, "TOO_MANY_REQUESTS", "too many requests; slow down", {"retry-after": "1"})


def _too_large(gate: Gate) -> _RequestRefused:
    return _RequestRefused(413, "TOO_LARGE", f"a request may have at most {gate.body_bytes:,} bytes")


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
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
    """A request body that is refused once it is larger or slower than allowed, whatever its headers say.

    If the answer has started already, the client counts as disconnected.
    """

    def __init__(self, receive: Receive, gate: Gate, answer: "_Answer") -> None:
        self._receive, self._gate, self._answer, self._left = receive, gate, answer, gate.body_bytes
        self._deadline: float | None = None
        self.whole = False
        """Whether the whole body has arrived. The next message is then the client's disconnect."""

    async def __call__(self) -> Message:
        if self.whole:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._gate.body_seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            return self._refuse(
                _RequestRefused(408, "TOO_SLOW", f"a body must arrive within {self._gate.body_seconds:g} s")
            )
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
            if self._left < 0:
                return self._refuse(_too_large(self._gate))
        return message

    def _refuse(self, refused: _RequestRefused) -> Message:
        if not self._answer.started:
            raise refused
        return {"type": "http.disconnect"}


class _Answer:
    """Adds the security headers that every answer carries."""

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
