"""Who may talk to the server: the gate that every request passes before anything else sees it.

A server on loopback answers only requests that were meant for it: the Host header must name it, so that a page on
another site cannot reach it through a name of its own (DNS rebinding), and the Origin header, where a browser sends
one, must be its own. Anywhere else a token is needed besides. Bodies and rates are bounded.
"""

import hmac
import ipaddress
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metier import limits
from metier.errors import ConfigError

BODY_BYTES: Final = 4 * limits.MIB
REQUESTS_PER_SECOND: Final = 500.0
BURST: Final = 2_000.0
CLIENTS: Final = 10_000
"""Addresses whose rate is remembered; the one that has been silent longest is forgotten first."""

LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_OPEN_PATHS: Final = frozenset(("/healthz",))


@dataclass(frozen=True, slots=True)
class Gate:
    """The rules of one server. `hosts` are the names it answers to; without a token it must be on loopback."""

    hosts: frozenset[str] = LOOPBACK
    token: str = ""
    body_bytes: int = BODY_BYTES
    rate: float = REQUESTS_PER_SECOND
    burst: float = BURST

    @classmethod
    def for_address(cls, host: str, token: str = "", names: tuple[str, ...] = ()) -> "Gate":
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
        return cls(frozenset((*LOOPBACK, host.lower(), *(name.lower() for name in names))), token)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code, self.message = status, code, message
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
        try:
            self._check(scope)
        except _Refused as refused:
            body = {"error": {"code": refused.code, "message": refused.message}}
            await JSONResponse(body, refused.status)(scope, receive, send)
            return
        await self.app(scope, _Bounded(receive, self.gate.body_bytes), _with_headers(send))

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = _name(headers.get("host", ""))
        if host not in self.gate.hosts:
            raise _Refused(421, "WRONG_HOST", "this server does not answer to that name")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise _Refused(403, "WRONG_ORIGIN", "requests from other sites are refused")
        self._limit(scope)
        if self.gate.token and scope["path"] not in _OPEN_PATHS:
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self.gate.token}".encode()):
                raise _Refused(401, "UNAUTHORIZED", "a valid token is needed in the Authorization header")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.gate.body_bytes:
            raise _Refused(413, "TOO_LARGE", f"a request may have {self.gate.body_bytes:,} bytes")

    def _limit(self, scope: Scope) -> None:
        """A bucket of tokens for each address, filled at the rate."""
        client = scope.get("client")
        address = client[0] if client else ""
        now = time.monotonic()
        left, last = self._buckets.pop(address, (self.gate.burst, now))
        left = min(self.gate.burst, left + (now - last) * self.gate.rate)
        self._buckets[address] = (max(left - 1, 0.0), now)
        while len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            raise _Refused(429, "TOO_MANY_REQUESTS", "too many requests; slow down")


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()


class _Bounded:
    """A body that ends the request once it is larger than allowed, whatever its headers said."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._left = receive, limit

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                return {"type": "http.disconnect"}
        return message


def _with_headers(send: Send) -> Send:
    """Headers that every answer carries: nothing is guessed, framed or kept."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            headers += [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
            headers += [(b"x-frame-options", b"DENY"), (b"cross-origin-resource-policy", b"same-origin")]
            message = {**message, "headers": headers}
        await send(message)

    return wrapped
