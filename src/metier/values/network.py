"""The hosts that a script may connect to, as rules write them and as its requests name them.

A host is written in one of four ways: `api.github.com`, `*.example.org` for every name below that one, an address such
as `192.0.2.7` or `[2001:db8::7]`, each with a port behind a colon if it is not 80 or 443. Both sides are brought into
one form before they are compared: names in lower case and in ASCII, addresses as `ipaddress` writes them. The
invariant: what some program could read as another address, such as `127.1` or `0x7f000001`, is no name.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from metier.values.value import Value

DEFAULT_PORTS: Final = (80, 443)
"""The ports of a host that is written without one."""

PROXY_PORT: Final = 3128
"""Where a script finds the proxy, on the loopback interface of its sandbox."""

_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_NAME_LENGTH: Final = 253


class HostPattern(Value):
    """A host of a rule. `below` says that it stands for all names below `name`."""

    name: str
    port: int | None = None
    below: bool = False

    @classmethod
    def parse(cls, text: str) -> "HostPattern":
        """Read a host as a rule writes it. Raises `ValueError` with a reason that fits behind the text."""
        below = text.startswith("*.")
        name, port = split_port(text[2:] if below else text)
        if "*" in name:
            raise ValueError("has a * that is not all of its first part")
        name = canonical_host(_in_ascii(name))
        if below and (is_address(name) or "." not in name):
            raise ValueError("covers too much: two parts must follow the *")
        return cls(name, port, below)

    def covers(self, host: str, port: int) -> bool:
        """Whether a host in its canonical form is meant."""
        return port in (DEFAULT_PORTS if self.port is None else (self.port,)) and self.names(host)

    def names(self, host: str) -> bool:
        """The same, whatever the port is."""
        if self.below:
            return host.endswith(f".{self.name}") and not is_address(host)
        return host == self.name

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name and self.port is not None else self.name
        return f"{'*.' if self.below else ''}{name}{f':{self.port}' if self.port is not None else ''}"


class HostList(Value):
    """The hosts of a job. A denied host without a port is denied on every port."""

    allowed: tuple[HostPattern, ...]
    denied: tuple[HostPattern, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "HostList":
        """Read the hosts, of which the denied ones begin with `!`. Raises `ValueError`."""
        found: dict[bool, list[HostPattern]] = {True: [], False: []}
        for text in texts:
            try:
                found[text.startswith("!")].append(HostPattern.parse(text.removeprefix("!")))
            except ValueError as error:
                raise ValueError(f"{text!r} is no host: it {error}") from error
        return cls(tuple(found[False]), tuple(found[True]))

    def allows(self, host: str, port: int) -> bool:
        return any(pattern.covers(host, port) for pattern in self.allowed)

    def denies(self, host: str, port: int) -> bool:
        return any(pattern.names(host) and pattern.port in (None, port) for pattern in self.denied)


def canonical_host(text: str) -> str:
    """A name in lower case, or an address as `ipaddress` writes it. Raises `ValueError` for everything else."""
    if ":" in text:
        return _address(text)
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _address(name)
    if len(name) > _NAME_LENGTH or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("is not the name of a host")
    return name


def is_address(host: str) -> bool:
    """Whether a host in its canonical form is an address and not a name."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def split_port(text: str) -> tuple[str, int | None]:
    """A host, without the brackets of an IPv6 address, and its port if it has one. Raises `ValueError`."""
    if text.startswith("["):
        name, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in name or (rest and not rest.startswith(":")):
            raise ValueError("is not an address in brackets")
        return name, _port(rest[1:]) if rest else None
    if text.count(":") != 1:
        return text, None
    name, _, port = text.partition(":")
    return name, _port(port)


def shown(host: str, port: int) -> str:
    """A host and a port as messages write them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise ValueError("has no valid port")
    return int(text)


def _address(text: str) -> str:
    if "%" in text:
        raise ValueError("is not the address of a host")
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError("is not the address of a host") from None


def _in_ascii(name: str) -> str:
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError("is not the name of a host") from None
