"""Downloads a file over HTTPS, and finds a skill in the index of a site.

The caller permits every connection first. A connection uses the address that was checked, uses no proxy, and is limited
in bytes and time. Plain HTTP works only for this machine. A redirect or an entry of an index may lead only to the
public internet or to the host that the user named, so that no server can make requests in the user's own network.
"""

import contextlib
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from typing import Final, Literal, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from metier import __version__, limits
from metier.errors import InstallError
from metier.files.addresses import is_public, parse_address
from metier.files.digests import is_digest
from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_list, is_table
from metier.sources.install.archive import refuse

INDEX: Final = "/.well-known/agent-skills/index.json"
SCHEMA: Final = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_REDIRECTS: Final = (301, 302, 303, 307, 308)


class Listed(NamedTuple):
    """Where the index of a site says a skill is."""

    url: str
    digest: str
    kind: Literal["skill-md", "archive"]


# --- URLs ---


def is_remote(source: str) -> bool:
    return "://" in source


def without_secrets(url: str) -> str:
    """Return a URL, valid or not, without user, password and query, for messages and records."""
    return re.sub("//[^/?#]*@", "//", url).partition("?")[0]


def check_url(url: str) -> SplitResult:
    """Return the parts of a URL. Forms that two programs could interpret differently are refused."""
    plain = without_secrets(url)
    if not url.isascii() or not url.isprintable() or any(char in url for char in '\\ "<>'):
        refuse("bad-url", f"not a plain URL: {plain!r}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        refuse("bad-url", f"not a URL: {plain!r} ({error})")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK):
        refuse("bad-url", f"only https is supported: {plain!r}", "plain http works only for this machine")
    if not host or "@" in parts.netloc or port == 0:
        refuse("bad-url", f"a URL must have a host and no user or password: {plain!r}")
    decoded = re.sub("%2e", ".", parts.path, flags=re.IGNORECASE)
    if any(part in (".", "..") for part in re.split("/|%2f|%5c", decoded, flags=re.IGNORECASE)):
        refuse("bad-url", f"the path of a URL must not contain . or ..: {plain!r}")
    return parts._replace(netloc=parts.netloc.lower(), path=parts.path or "/", fragment="")


def origin(url: str) -> str:
    parts = check_url(url)
    return f"{parts.scheme}://{parts.netloc}"


def shown(url: str) -> str:
    """Return a URL without its query, which may contain access tokens, for messages and records."""
    return urlunsplit(check_url(url)._replace(query=""))


def index_of(url: str) -> str:
    """Return the URL of the index: a site has it at a fixed path. It is empty for the URL of an archive."""
    parts = check_url(url)
    if parts.path == "/" and not parts.query:
        return urlunsplit(parts._replace(path=INDEX))
    return urlunsplit(parts) if parts.path.endswith("/index.json") else ""


# --- requests ---


class Client:
    """Makes the requests of one install. `permit` is called with each URL before a connection, and raises to refuse."""

    def __init__(self, named: str, permit: Callable[[str], None]) -> None:
        self._named, self._permit = origin(named), permit
        self._until = time.monotonic() + limits.INSTALL_SECONDS

    def get(self, url: str, limit: int) -> tuple[str, bytes]:
        """Return the final URL after redirects, and its content."""
        for _ in range(limits.INSTALL_REDIRECTS + 1):
            parts = check_url(url)
            url = urlunsplit(parts)
            self._permit(url)
            answer = self._ask(parts, limit)
            if isinstance(answer, bytes):
                return url, answer
            url = urljoin(url, answer)
        raise InstallError(f"too many redirects, the last one to {shown(url)}", reason="redirects")

    def _ask(self, parts: SplitResult, limit: int) -> bytes | str:
        """Return the body of the response, or the target of a redirect."""
        place = shown(urlunsplit(parts))
        try:
            with self._connected(parts) as connection:
                target = urlunsplit(("", "", parts.path, parts.query, ""))
                headers = {"User-Agent": f"metier/{__version__}", "Accept-Encoding": "identity", "Connection": "close"}
                connection.request("GET", target, headers=headers)
                with connection.getresponse() as response:
                    answer = _answer(response, limit, place)
            self._left()  # a response that the alarm cut off looks like a short one
            return answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = time.monotonic() >= self._until
            why = f"it took more than {limits.INSTALL_SECONDS} seconds" if late else str(error) or type(error).__name__
            raise InstallError(f"{place} cannot be read: {why}", reason="unreachable") from error

    @contextlib.contextmanager
    def _connected(self, parts: SplitResult) -> Generator[http.client.HTTPConnection, None, None]:
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        address = self._address(parts, host, port)
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(socket.create_connection((address, port), timeout=self._left()))
            connection = stack.enter_context(contextlib.closing(http.client.HTTPConnection(host, port)))
            if parts.scheme == "https":
                raw = stack.enter_context(ssl.create_default_context().wrap_socket(raw, server_hostname=host))
            connection.sock = raw
            # A server that sends a byte now and then never reaches the socket timeout. The alarm ends it.
            alarm = threading.Timer(self._left(), _hang_up, [raw])
            alarm.daemon = True
            alarm.start()
            stack.callback(alarm.cancel)
            yield connection

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _address(self, parts: SplitResult, host: str, port: int) -> str:
        """Resolve the host once, check its addresses, and return the one to use."""
        found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        addresses = [parse_address(one) for one in found]
        if parts.scheme == "http" and not all(address.is_loopback for address in addresses):
            refuse("bad-url", f"{host} is not this machine; plain http works only for this machine")
        if f"{parts.scheme}://{parts.netloc}" != self._named and not all(map(is_public, addresses)):
            refuse("private-address", f"a server referred to {host}, which is not on the public internet")
        return found[0]


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _answer(response: http.client.HTTPResponse, limit: int, place: str) -> bytes | str:
    if response.status in _REDIRECTS:
        return response.headers.get("Location") or refuse("redirects", f"{place} redirects without a location")
    if response.status != 200:
        refuse("not-found", f"{place} responded with status {response.status}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        refuse("bad-answer", f"{place} responded in an encoding that was not requested")
    declared = response.headers.get("Content-Length", "")
    if declared.isdigit() and int(declared) > limit:
        refuse("too-large", f"{place} has more than {limit:,} bytes")
    data = response.read(limit + 1)
    if len(data) > limit:
        refuse("too-large", f"{place} has more than {limit:,} bytes")
    if declared.isdigit() and len(data) != int(declared):
        refuse("unreachable", f"{place} ended before all its bytes arrived")
    return data


# --- the index of a site ---


def find(data: bytes, base: str, name: str) -> Listed:
    """Return the entry of an index with a name. `base` is the URL of the index."""
    try:
        content: object = parse_json(data)
    except (ValueError, RecursionError):
        content = None
    listed = as_table(content).get("skills")
    if not is_table(content) or not is_list(listed):
        refuse("bad-index", f"{shown(base)} is not an index of skills")
    schema = content.get("$schema")
    if schema != SCHEMA:
        found = f"its $schema is {str(schema)[:80]!r}" if schema else "it has no $schema, as in version 0.1"
        refuse("unknown-index", f"{shown(base)} has an unsupported version: {found}", f"supported: {SCHEMA}")
    entries = [(str(entry.get("name", "")), entry) for entry in listed if is_table(entry)]
    named = [entry for other, entry in entries if other == name]
    if len(named) != 1:
        offered = ", ".join(sorted(other for other, _ in entries)[:20]) or "nothing"
        what = "name the skill to install" if not name else f"it lists {name!r} {len(named)} times"
        refuse("not-found", f"{shown(base)}: {what}", f"it offers {offered}")
    kind, url, digest = (named[0].get(key) for key in ("type", "url", "digest"))
    if kind not in ("skill-md", "archive") or not isinstance(url, str):
        refuse("bad-index", f"the entry {name} in {shown(base)} has no known type or no url")
    if not is_digest(digest):
        refuse("bad-index", f"the entry {name} in {shown(base)} has no SHA-256 digest")
    return Listed(urlunsplit(check_url(urljoin(base, url))), digest, kind)
