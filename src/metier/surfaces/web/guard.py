"""The gate that every request passes before anything else handles it.

The Host header must name the server, so that a page on another site cannot reach it through a name of its own (DNS
rebinding). The Origin header, if a browser sends one, must be the server's own. Everything but the sign-in and the
health check needs the token. Request bodies and request rates are limited in size and time.
"""

import asyncio
import ipaddress
import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metier import limits
from metier.errors import ConfigError, StoreError
from metier.surfaces.web.access import SLOWEST_SECONDS, Access

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

_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,253}))(?::([0-9]{1,5}))?")
"""A Host header: an IPv6 address in brackets or a name, and a port. Anything else is refused, not repaired."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The rules of one server. `hosts` are the names it answers to. Without a token, whoever connects may use it."""

    hosts: frozenset[str] = LOOPBACK
    token: str = ""
    body_bytes: int = BODY_BYTES
    body_seconds: float = BODY_SECONDS
    rate: float = limits.REQUESTS_PER_SECOND
    """Requests per second from one address; 0 means no limit."""
    burst: float = limits.REQUESTS_PER_SECOND * BURST
    slowest: float = SLOWEST_SECONDS
    """The longest delay of a wrong token, in seconds."""

    @classmethod
    def for_address(
        cls, host: str, token: str = "", names: tuple[str, ...] = (), rate: float = limits.REQUESTS_PER_SECOND
    ) -> "Gate":
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
            if not (_HOST.fullmatch(name) and _name(name) == _plain(name)):
                raise ConfigError(f"{name!r} is not a host name", key="name", hint="give it without a port")
        hosts = frozenset((*LOOPBACK, *(_plain(name) for name in (host, *names) if name)))
        return cls(hosts=hosts, token=token, rate=rate, burst=max(rate * BURST, 1.0))


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    if host in LOOPBACK:
        return True
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

    def __init__(self, app: ASGIApp, gate: Gate, access: Access) -> None:
        self.app, self.gate, self.access = app, gate, access
        self._buckets: OrderedDict[tuple[str, bool], tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        answer = _Answer(send)
        body = _Bounded(receive, self.gate, answer)
        try:
            sign_in = await self._check(scope)
            incoming = partial(self.access.sign_ins.receive, sign_in, body) if sign_in else body
            await self.app(scope, incoming, answer)
            if sign_in and body.whole and answer.started and not answer.complete:  # the browser signed out
                await answer({"type": "http.response.body"})
        except _RequestRefused as refused:
            # The rest of a refused body must not be read as the next request.
            headers = {**(refused.headers or {}), **({} if body.whole else {"connection": "close"})}
            shown = {"error": {"code": refused.code, "message": refused.message}}
            await JSONResponse(shown, refused.status, headers)(scope, receive, answer)

    async def _check(self, scope: Scope) -> str:
        """Refuse what may not come in. Return the sign-in of the browser, if that is what lets the request in."""
        headers = Headers(scope=scope)
        self._check_host(scope, headers)
        self._check_site(headers)
        is_known, sign_in = await self._identify(headers)
        self._limit(scope, is_known)
        if not is_known:
            await self._refuse_stranger(scope, headers)
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < 16) or int(length) > self.gate.body_bytes:
            raise _too_large(self.gate)
        return sign_in

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        given = headers.getlist("host")
        if len(given) != 1 or _name(given[0]) not in self.gate.hosts:
            raise _RequestRefused(421, "WRONG_HOST", "this server does not answer to that host name")
        path: str = scope["path"]
        if not path.startswith("/"):
            # A URL here names a host, too, and it would count for more than the header.
            raise _RequestRefused(400, "WRONG_TARGET", "the target of a request must be a path")

    async def _identify(self, headers: Headers) -> tuple[bool, str]:
        """Whether the client has the token or signed in with it, and its sign-in."""
        if not self.gate.token or self.access.sends_token(headers):
            return True, ""
        try:
            sign_in = await self.access.signed_in(headers)
        except StoreError as error:
            message = "it cannot be checked now whether you are signed in; try again"
            raise _RequestRefused(503, "STORE_UNAVAILABLE", message) from error
        return bool(sign_in), sign_in

    async def _refuse_stranger(self, scope: Scope, headers: Headers) -> None:
        """Refuse a client without the token, except where none is needed. A wrong token is refused slowly."""
        path: str = scope["path"]
        if path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return
        if self.access.has_bearer(headers) and not await self.access.wrong.wait(address_of(scope)):
            raise _too_often()
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

    def _limit(self, scope: Scope, is_known: bool) -> None:
        """Limit the rate with one token bucket per address, so that strangers at it cannot use up the owner's."""
        if not self.gate.rate:
            return
        place = (address_of(scope), is_known)
        now = time.monotonic()
        left, last = self._buckets.pop(place, (self.gate.burst, now))
        left = min(self.gate.burst, left + (now - last) * self.gate.rate)
        self._buckets[place] = (max(left - 1, 0.0), now)
        while len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            raise _too_often()


def _too_often() -> _RequestRefused:
    return _RequestRefused(429, "TOO_MANY_REQUESTS", "too many requests; slow down", {"retry-after": "1"})


def _too_large(gate: Gate) -> _RequestRefused:
    return _RequestRefused(413, "TOO_LARGE", f"a request may have at most {gate.body_bytes:,} bytes")


def address_of(scope: Scope) -> str:
    """The address of the client, which is empty on a Unix socket."""
    client = scope.get("client")
    return client[0] if client else ""


@lru_cache(maxsize=64)
def _name(host: str) -> str:
    """The name in a Host header, without the port, or an empty string if it is not a valid one."""
    found = _HOST.fullmatch(host)
    if found is None or int(found[3] or 0) > 65_535:
        return ""
    return _plain(found[1] if found[1] is not None else found[2])


def _plain(name: str) -> str:
    """A host name or address in the one form in which names are compared."""
    try:
        return str(ipaddress.IPv6Address(name.removeprefix("[").removesuffix("]")))
    except ValueError:
        return name.lower()


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
