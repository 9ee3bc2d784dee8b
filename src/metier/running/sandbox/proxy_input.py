"""Reads what a script sends to the proxy, strictly: the head of a request, and the first message of a TLS client.

Whatever two programs could read in two ways is refused: a line that ends in anything but CR LF, a folded header, two
lengths of a body, a Host header that names another host than the request line. The invariant: the head that goes to a
server is written anew from what was checked, and says that the connection ends after this request.

A tunnel to an allowed address says nothing about the site behind it: servers of large networks choose the site by the
name in the first message. So the name must be that of the tunnel.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from metier.limits import KIB
from metier.values.network import canonical_host, split_port
from metier.values.value import Value

HEAD_BYTES: Final = 32 * KIB
HEADERS: Final = 100

_REQUEST_LINE: Final = re.compile(rb"([A-Z][A-Z-]{0,30}) ([\x21-\x7e]{1,8192}) HTTP/1\.([01])")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_DROPPED: Final = frozenset(
    b"connection host keep-alive te trailer upgrade http2-settings content-length transfer-encoding "
    b"proxy-authorization proxy-authenticate proxy-connection".split()
)
"""Headers for the connection to the proxy, and those that are written anew."""

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_HOST_NAME: Final = 0
_LONGEST: Final = 64 * KIB


class BadProxyRequest(ValueError):
    """The request is not one that a proxy can pass on."""


class ProxyRequest(Value):
    """A request that was understood. `head` is what the server gets; it is empty for a tunnel."""

    host: str
    port: int
    tunnel: bool
    head: bytes = b""
    length: int = 0
    """The bytes of the body."""
    chunked: bool = False
    """Whether the body comes in chunks instead."""


def read_request(head: bytes) -> ProxyRequest:
    """Understand a head, without the empty line at its end. Raises `BadProxyRequest`."""
    first, *lines = head.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise BadProxyRequest("the request line is not valid")
    if len(lines) > HEADERS:
        raise BadProxyRequest("there are too many headers")
    method, target, minor = match.groups()
    headers: list[tuple[bytes, bytes]] = []
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadProxyRequest("a header is not valid")
        headers.append((header[1], header[2]))
    if method == b"CONNECT":
        host, port = _authority(target.decode("ascii"), None)
        _check_host(headers, host, port, None)
        return ProxyRequest(host, port, tunnel=True)
    host, port, path = _absolute(target.decode("ascii"))
    _check_host(headers, host, port, 80)
    if minor == b"1" and not _values(headers, b"host"):
        raise BadProxyRequest("there is no Host header")
    length, chunked = _body(headers)
    named = f"[{host}]" if ":" in host else host
    written = [
        b"%s %s HTTP/1.1" % (method, path.encode("ascii")),
        b"Host: " + (named if port == 80 else f"{named}:{port}").encode("ascii"),
        *(b"%s: %s" % header for header in headers if header[0].lower() not in _dropped(headers)),
        *([b"Transfer-Encoding: chunked"] if chunked else []),
        *([b"Content-Length: %d" % length] if _values(headers, b"content-length") else []),
        b"Connection: close",
    ]
    return ProxyRequest(
        host, port, tunnel=False, head=b"\r\n".join(written) + b"\r\n\r\n", length=length, chunked=chunked
    )


def _absolute(target: str) -> tuple[str, int, str]:
    """The host, the port and the path of an address that is requested over plain HTTP."""
    if not target.lower().startswith("http://") or "\\" in target or "#" in target:
        raise BadProxyRequest("the request line must have an address with http://")
    try:
        parts = urlsplit(target)
    except ValueError as error:
        raise BadProxyRequest("the address is not valid") from error
    host, port = _authority(parts.netloc, 80)
    path = target[len("http://") + len(parts.netloc) :]
    return host, port, path if path.startswith("/") else f"/{path}"


def _authority(text: str, default: int | None) -> tuple[str, int]:
    try:
        name, port = split_port(text)
        host = canonical_host(name)
    except ValueError as error:
        raise BadProxyRequest(f"the host {error}") from error
    port = port or default
    if port is None:
        raise BadProxyRequest("the host has no port")
    return host, port


def _check_host(headers: list[tuple[bytes, bytes]], host: str, port: int, default: int | None) -> None:
    for value in (found := _values(headers, b"host")):
        try:
            named = _authority(value.decode("ascii"), default or port)
        except UnicodeError as error:
            raise BadProxyRequest("the Host header is not valid") from error
        if named != (host, port) or len(found) > 1:
            raise BadProxyRequest("the Host header names another host")


def _body(headers: list[tuple[bytes, bytes]]) -> tuple[int, bool]:
    """The length of the body, and whether it comes in chunks."""
    lengths, codings = _values(headers, b"content-length"), _values(headers, b"transfer-encoding")
    if len(lengths) + len(codings) > 1:
        raise BadProxyRequest("the length of the body is given twice")
    if codings and codings[0].lower() != b"chunked":
        raise BadProxyRequest("the body has an unknown transfer coding")
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise BadProxyRequest("the length of the body is not valid")
    return int(lengths[0]) if lengths else 0, bool(codings)


def _dropped(headers: list[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """The headers that do not go to the server, with those that a Connection header names."""
    named = b",".join(_values(headers, b"connection")).lower().split(b",")
    return _DROPPED | {name.strip() for name in named}


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


# --- the first message of a TLS client ---


class NoClientHello(ValueError):
    """The bytes are not the first message of a TLS client."""


async def read_hello(raw: bytes, read: Callable[[int], Awaitable[bytes]]) -> tuple[bytes, str]:
    """Read the rest of the first message; all of its bytes, and the name of the host. Raises `NoClientHello`.

    `read` returns exactly as many bytes as it is asked for. The name is empty where the client names no host.
    """
    start, message = 0, b""
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        raw += await read(start + 5 - len(raw))
        length = int.from_bytes(raw[start + 3 :], "big")
        if raw[start] != _HANDSHAKE or raw[start + 1] != 3 or not length or start + length > _LONGEST:
            raise NoClientHello("it does not begin with TLS")
        body = await read(length)
        raw, message = raw + body, message + body
        start = len(raw)
        if message[0] != _CLIENT_HELLO:
            raise NoClientHello("it does not begin with TLS")
    return raw, _server_name(message[4 : 4 + int.from_bytes(message[1:4], "big")])


def _server_name(hello: bytes) -> str:
    fields = _Fields(hello)
    fields.take(2 + 32)  # version and random
    for size in (1, 2, 1):  # session, cipher suites, compression
        fields.sized(size)
    extensions = _Fields(fields.sized(2) if fields.left else b"")
    names: list[bytes] = []
    while extensions.left:
        kind, content = extensions.number(2), extensions.sized(2)
        if kind == _SERVER_NAME:
            listed = _Fields(_Fields(content).sized(2))
            while listed.left:
                if listed.number(1) != _HOST_NAME:
                    raise NoClientHello("it names its host in an unknown way")
                names.append(listed.sized(2))
    if len(names) > 1:
        raise NoClientHello("it names several hosts")
    try:
        return names[0].decode("ascii") if names else ""
    except UnicodeError as error:
        raise NoClientHello("the name of its host is not valid") from error


class _Fields:
    """The fields of a message, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise NoClientHello("it does not begin with a complete TLS message")
        self._position += count
        return self._data[self._position - count : self._position]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def sized(self, size: int) -> bytes:
        """A field whose length is in the `size` bytes before it."""
        return self.take(self.number(size))
