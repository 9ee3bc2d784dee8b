"""Reads which host a TLS client asks for, from the first message that it sends.

A tunnel to an allowed address says nothing about the site behind it: servers of large networks choose the site by the
name in this message. So the name must be that of the tunnel.
"""

from collections.abc import Callable
from typing import Final

from metier.limits import KIB

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_HOST_NAME: Final = 0
_LONGEST: Final = 64 * KIB


class NoClientHello(ValueError):
    """The bytes are not the first message of a TLS client."""


def read_hello(read: Callable[[int], bytes]) -> tuple[bytes, str]:
    """Read the first message; all bytes that were read, and the name of the host. Raises `NoClientHello`.

    `read` returns exactly as many bytes as it is asked for. The name is empty where the client names no host.
    """
    raw, message = b"", b""
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        record = read(5)
        length = int.from_bytes(record[3:5], "big")
        if record[0] != _HANDSHAKE or record[1] != 3 or not length or len(raw) + length > _LONGEST:
            raise NoClientHello("it does not begin with TLS")
        body = read(length)
        raw, message = raw + record + body, message + body
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
