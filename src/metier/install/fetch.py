"""Getting one file over HTTPS, and finding a skill in a site's index.

Every connection is permitted by the caller first, goes to the address that was looked at and to no proxy, and is
bounded in bytes and in time. Plain HTTP is spoken to this machine only. What a server says (a redirect, an entry of its
index) leads only to addresses of the public internet, or back to the host that the user named: nobody else's server can
make us ask something in the user's own network.
"""

import contextlib
import http.client
import ipaddress
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, cast
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from metier import __version__, limits
from metier.errors import InstallError
from metier.files.digests import is_digest

INDEX: Final = "/.well-known/agent-skills/index.json"
SCHEMA: Final = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_CHUNK: Final = 64 * limits.KIB


@dataclass(frozen=True, slots=True)
class Listed:
    """A skill as an index offers it."""

    name: str
    kind: Literal["skill-md", "archive"]
    url: str
    digest: str


def refuse(reason: str, message: str, hint: str = "") -> NoReturn:
    raise InstallError(message, reason=reason, hint=hint)


# --- addresses ---


def is_remote(source: str) -> bool:
    return "://" in source


def without_secrets(url: str) -> str:
    """A URL for messages and records, also one that is none: without user, password and query."""
    return re.sub("//[^/?#]*@", "//", url).partition("?")[0]


def check_url(url: str) -> SplitResult:
    """The parts of a URL that may be asked; everything that two programs could read differently is refused."""
    told = without_secrets(url)
    if not url.isascii() or not url.isprintable() or any(char in url for char in '\\ "<>'):
        refuse("bad-url", f"not a plain URL: {told!r}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        refuse("bad-url", f"not a URL: {told!r} ({error})")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK):
        refuse("bad-url", f"only https is spoken: {told!r}", "plain http goes to this machine only")
    if not host or "@" in parts.netloc or port == 0:
        refuse("bad-url", f"a URL here has a host and no user or password: {told!r}")
    decoded = re.sub("%2e", ".", parts.path, flags=re.IGNORECASE)
    if any(part in (".", "..") for part in re.split("/|%2f|%5c", decoded, flags=re.IGNORECASE)):
        refuse("bad-url", f"the path of a URL must not have . or .. in it: {told!r}")
    return parts._replace(netloc=parts.netloc.lower(), path=parts.path or "/", fragment="")


def origin(url: str) -> str:
    parts = check_url(url)
    return f"{parts.scheme}://{parts.netloc}"


def shown(url: str) -> str:
    """A URL for people and records: without its query, where access tokens stand."""
    return urlunsplit(check_url(url)._replace(query=""))


def index_of(url: str) -> str:
    """The index that a URL stands for: a bare site has one at a fixed place. Empty for the URL of an archive."""
    parts = check_url(url)
    if parts.path == "/" and not parts.query:
        return urlunsplit(parts._replace(path=INDEX))
    return urlunsplit(parts) if parts.path.endswith("/index.json") else ""


# --- asking ---


class Client:
    """Asks on behalf of one install. `permit` is called with each URL before anything is sent, and raises to refuse."""

    def __init__(self, named: str, permit: Callable[[str], None]) -> None:
        self._named, self._permit = origin(named), permit
        self._until = time.monotonic() + limits.INSTALL_SECONDS

    def get(self, url: str, limit: int) -> tuple[str, bytes]:
        """The content at a URL, and the URL at which it was in the end."""
        for _ in range(limits.INSTALL_REDIRECTS + 1):
            parts = check_url(url)
            url = urlunsplit(parts)
            self._permit(url)
            answer = self._ask(parts, limit)
            if isinstance(answer, bytes):
                return url, answer
            url = urljoin(url, answer)
        refuse("redirects", f"{shown(url)} is one redirect too many")

    def _ask(self, parts: SplitResult, limit: int) -> bytes | str:
        """The body of the answer, or where it says the answer is."""
        place = shown(urlunsplit(parts))
        try:
            with self._connected(parts) as connection:
                target = urlunsplit(("", "", parts.path, parts.query, ""))
                headers = {"User-Agent": f"metier/{__version__}", "Accept-Encoding": "identity", "Connection": "close"}
                connection.request("GET", target, headers=headers)
                with connection.getresponse() as response:
                    answer = _answer(response, limit, place)
            self._left()  # an answer that was ended for its slowness looks like a short one
            return answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = time.monotonic() >= self._until
            why = f"it took more than {limits.INSTALL_SECONDS} seconds" if late else str(error) or type(error).__name__
            raise InstallError(f"{place} cannot be read: {why}", reason="unreachable") from error

    @contextlib.contextmanager
    def _connected(self, parts: SplitResult) -> Generator[http.client.HTTPConnection, None, None]:
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        address = self._address(parts, host, port)
        raw = socket.create_connection((address, port), timeout=self._left())
        connection = http.client.HTTPConnection(host, port)
        alarm = None
        try:
            if parts.scheme == "https":
                raw = ssl.create_default_context().wrap_socket(raw, server_hostname=host)
            connection.sock = raw
            # A server that sends one byte now and then never runs into a timeout: this ends it.
            alarm = threading.Timer(self._left(), _hang_up, [raw])
            alarm.daemon = True
            alarm.start()
            yield connection
        finally:
            if alarm is not None:
                alarm.cancel()
            connection.close()
            raw.close()

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _address(self, parts: SplitResult, host: str, port: int) -> str:
        """The address to connect to: looked up once, judged, and used as it is."""
        found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        addresses = [ipaddress.ip_address(one.partition("%")[0]) for one in found]
        if parts.scheme == "http" and not all(address.is_loopback for address in addresses):
            refuse("bad-url", f"{host} is not this machine, and plain http goes nowhere else")
        if f"{parts.scheme}://{parts.netloc}" != self._named and not all(map(is_public, addresses)):
            refuse("private-address", f"a server led to {host}, which is not on the public internet")
        return found[0]


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address belongs to everyone, and hides none that does not."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.sixtofour or (address.teredo or (None, None))[1]
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast


_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _answer(response: http.client.HTTPResponse, limit: int, place: str) -> bytes | str:
    if response.status in _REDIRECTS:
        return response.headers.get("Location") or refuse("redirects", f"{place} redirects to nowhere")
    if response.status != 200:
        refuse("not-found", f"{place} answers {response.status}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        refuse("bad-answer", f"{place} answers in an encoding that was not asked for")
    return _body(response, limit, place)


def _body(response: http.client.HTTPResponse, limit: int, place: str) -> bytes:
    announced = response.headers.get("Content-Length", "")
    if announced.isdigit() and int(announced) > limit:
        refuse("too-large", f"{place} has more than {limit:,} bytes")
    data = bytearray()
    while chunk := response.read(_CHUNK):
        data += chunk
        if len(data) > limit:
            refuse("too-large", f"{place} has more than {limit:,} bytes")
    if announced.isdigit() and len(data) != int(announced):
        refuse("unreachable", f"{place} was cut off")
    return bytes(data)


# --- the index of a site ---


def find(data: bytes, base: str, name: str) -> Listed:
    """The entry of an index that bears a name. `base` is where the index was."""
    try:
        content: Any = json.loads(data)
        schema, listed = content.get("$schema"), content["skills"]
        entries = [cast("Mapping[str, Any]", entry) for entry in listed if isinstance(entry, dict)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InstallError(f"{shown(base)} is no index of skills", reason="bad-index") from error
    if schema != SCHEMA:
        said = f"its $schema is {str(schema)[:80]!r}" if schema else "it has no $schema, as in version 0.1"
        refuse("unknown-index", f"{shown(base)} is of a version that is not known here: {said}", f"known: {SCHEMA}")
    names = [str(entry.get("name", "")) for entry in entries]
    if names.count(name) != 1:
        offered = ", ".join(sorted(names)[:20]) or "nothing"
        what = "name the skill" if not name else f"{name!r} is there {names.count(name)} times"
        refuse("not-found", f"{shown(base)}: {what}", f"it offers {offered}")
    entry = entries[names.index(name)]
    kind, url, digest = entry.get("type"), entry.get("url"), entry.get("digest")
    if kind not in ("skill-md", "archive") or not isinstance(url, str):
        refuse("bad-index", f"the entry of {name} in {shown(base)} has no known type, or no url")
    if not is_digest(digest):
        refuse("bad-index", f"the entry of {name} in {shown(base)} has no SHA-256 digest")
    return Listed(name, kind, urlunsplit(check_url(urljoin(base, url))), digest)
