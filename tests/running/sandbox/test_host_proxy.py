"""The proxy on real sockets: what it understands as a host, which address it dials, and what TLS may ask for."""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

import pytest

from bench.attack.boxes import settled
from metier.files.addresses import is_public
from metier.running.sandbox import HostAttempt, Job
from metier.running.sandbox.proxy import HostProxy
from metier.values.network import HostList, HostPattern

PUBLIC = "93.184.216.34"


class DialingProxy(HostProxy):
    """Notes the addresses that are dialled, and is answered by a service of this machine under each of them."""

    def __init__(self, hosts: Sequence[str], answers: Sequence[Sequence[str]], service: int) -> None:
        self.dialled: list[tuple[str, int]] = []
        self.service = service
        left = list(answers)
        self.address = socket.create_server(("127.0.0.1", 0))
        self.port = self.address.getsockname()[1]
        super().__init__(self.address, HostList.parse(hosts), resolver=lambda _, __: left.pop(0))

    async def _dial(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.dialled.append((address, port))
        return await super()._dial("127.0.0.1", self.service)

    def ask(self, data: bytes) -> tuple[socket.socket, bytes]:
        """Send bytes to the proxy; the connection, and the first line of the answer."""
        client = socket.create_connection(("127.0.0.1", self.port), 10)
        client.sendall(data)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while b"\r\n\r\n" not in answer and (piece := client.recv(1)):
                answer += piece
        return client, answer.partition(b"\r\n")[0]


@contextlib.contextmanager
def a_service() -> Generator[tuple[int, list[bytes]]]:
    """A service that keeps what it receives on each connection until the end of it."""
    received: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    data = b""
                    while piece := connection.recv(65536):
                        data += piece
                    received.append(data)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1], received
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


Make = Callable[..., DialingProxy]


@pytest.fixture
def service() -> Generator[tuple[int, list[bytes]]]:
    with a_service() as made:
        yield made


@pytest.fixture
def a_proxy(service: tuple[int, list[bytes]]) -> Generator[Make]:
    with contextlib.ExitStack() as stack:

        def make(hosts: Sequence[str], *answers: Sequence[str]) -> DialingProxy:
            proxy = DialingProxy(hosts, answers, service[0])
            stack.callback(proxy.close)
            return proxy

        yield make


@pytest.mark.system
def test_the_address_that_was_checked_is_dialled_whatever_the_name_server_says_next(a_proxy: Make) -> None:
    proxy = a_proxy(["rebind.test"], [PUBLIC], ["127.0.0.1"], [PUBLIC, "10.0.0.1"], [PUBLIC])
    lines: list[bytes] = []
    for _ in range(4):
        client, line = proxy.ask(b"CONNECT rebind.test:443 HTTP/1.1\r\n\r\n")
        client.close()
        lines.append(line)
    refused = b"HTTP/1.1 403 not an allowed host"
    assert lines == [b"HTTP/1.1 200 Connection established", refused, refused, b"HTTP/1.1 200 Connection established"]
    assert proxy.dialled == [(PUBLIC, 443)] * 2, "once for each answer that is public, and never by name"
    assert [(one.allowed, one.reason) for one in proxy.attempts()] == [
        (True, ""),
        (False, "private-address"),
        (False, "private-address"),
        (True, ""),
    ]


def hello(name: str | None) -> bytes:
    """The first message of a real TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl._create_unverified_context()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def in_records(message: bytes, size: int) -> bytes:
    """The same message in many small records."""
    body = message[5:]
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(message[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


OTHER, NOT_TLS = HostAttempt("api.test", 443, False, "other-host"), HostAttempt("api.test", 443, False, "not-tls")
STARTS: list[tuple[bytes, HostAttempt | None]] = [
    *((start, None) for start in (hello("api.test"), hello("API.TEST"), in_records(hello("api.test"), 7))),
    (hello("evil.test"), replace(OTHER, host="evil.test")),
    (hello("api.test.evil.test"), replace(OTHER, host="api.test.evil.test")),
    (in_records(hello("evil.test"), 1), replace(OTHER, host="evil.test")),
    (hello(None), OTHER),
    (b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", NOT_TLS),
    (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", NOT_TLS),
    (b"\x16\x03\x01\x00\x05\x02\x00\x00\x01x", NOT_TLS),
    (b"\x80\x2e\x01\x03\x01", NOT_TLS),
]


@pytest.mark.system
@pytest.mark.parametrize(("first", "attempt"), STARTS)
def test_a_tunnel_is_for_the_host_that_tls_asks_for(
    a_proxy: Make, service: tuple[int, list[bytes]], first: bytes, attempt: HostAttempt | None
) -> None:
    proxy, more = a_proxy(["api.test"], [PUBLIC]), b"" if attempt else b" and more"
    client, line = proxy.ask(b"CONNECT api.test:443 HTTP/1.1\r\n\r\n")
    assert line == b"HTTP/1.1 200 Connection established"
    with client:
        client.sendall(first + more)
        client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b"", "the service hangs up when it has all, or the proxy does"
    proxy.close()
    assert settled(lambda: len(service[1]), 1) == 1
    assert service[1] == [b"" if attempt else first + more]
    assert proxy.attempts() == [HostAttempt("api.test", 443, True), *([attempt] if attempt else [])]


FORMS = {
    "API.GitHub.com": "api.github.com",
    "example.org.": "example.org",
    "bücher.example": "xn--bcher-kva.example",
    "*.Example.ORG:8443": "*.example.org:8443",
    "192.0.2.7": "192.0.2.7",
    "[2001:DB8::7]:80": "[2001:db8::7]:80",
    "2001:db8:0::7": "2001:db8::7",
    "localhost:8080": "localhost:8080",
}
NO_HOSTS = (
    *("", "a b.org", "a" * 64 + ".org", "a.b" * 90, "a.org\n"),
    *("*", "*.", "*.org", "a.*.org", "x*.org", "127.1", "0x7f000001", "0177.0.0.1", "2130706433", "1.2.3.4.5"),
    *("a..org", "-a.org", "a@b.org", "http://a.org", "a.org/x", "a.org:", "a.org:0", "a.org:65536", "a.org:x"),
    *("[::1", "[a.org]:80", "*.127.0.0.1", "fe80::1%eth0"),
)
SPECIAL = (
    *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
    *("255.255.255.255", "224.0.0.1", "240.0.0.1", "192.0.2.1", "198.18.0.1", "::", "::1", "::ffff:8.8.8.8"),
    *("::8.8.8.8", "fe80::1", "fec0::1", "fc00::1", "ff02::1", "2001:db8::1", "64:ff9b::10.0.0.1", "2002:a00:1::"),
    *("64:ff9b:1::1", "100::1"),
)


def test_a_host_has_one_form_and_what_is_none_is_refused() -> None:
    for text, canonical in FORMS.items():
        assert str(HostPattern.parse(text)) == str(HostPattern.parse(canonical)) == canonical
    for text in NO_HOSTS:
        with pytest.raises(ValueError, match=r"host|address|port|covers|\*"):
            HostPattern.parse(text)
        with pytest.raises(ValueError, match="is no host"):
            Job("/", "x", hosts=["api.test", text])


def test_special_addresses_are_not_public() -> None:
    assert [address for address in SPECIAL if is_public(ipaddress.ip_address(address))] == []
    for address in (PUBLIC, "8.8.8.8", "2606:4700:4700::1111", "64:ff9b::8.8.8.8"):
        assert is_public(ipaddress.ip_address(address))


def test_which_hosts_a_list_covers() -> None:
    listed = HostList.parse(
        ["api.test", "*.wild.test", "other.test:8443", "192.0.2.7", "!old.wild.test", "!*.no.wild.test"]
    )
    allowed = [("api.test", 80), ("api.test", 443), ("a.wild.test", 443), ("a.b.wild.test", 80), ("other.test", 8443)]
    assert all(listed.allows(*one) and not listed.denies(*one) for one in [*allowed, ("192.0.2.7", 443)])
    refused = [("api.test", 8443), ("wild.test", 443), ("xwild.test", 443), ("other.test", 443), ("192.0.2.70", 443)]
    assert not any(listed.allows(*one) for one in [*refused, ("x.api.test", 443)])
    assert all(listed.denies(*one) for one in [("old.wild.test", 443), ("old.wild.test", 9), ("x.no.wild.test", 80)])
    with pytest.raises(ValueError, match="shared as a whole"):
        Job("/", "x", network=True, hosts=["api.test"])
