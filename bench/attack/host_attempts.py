"""Attempts of a script to reach hosts that no rule lists, and the services that must hear nothing of it.

All attempts run in one sandbox, one after the other. The services listen on one port of every address of this machine.
One more service is listed, by its address: it shows that the proxy works, and that nothing gets through it that was
meant for another host.
"""

import contextlib
import json
import socket
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

LISTED_NAMES = ("api.test", "*.wild.test")
"""Names that are listed, and have an address of this machine: they are refused, too."""


def to_this_machine(host: str, port: int) -> Sequence[str]:
    """A resolver for which every name is this machine, in one spelling or another."""
    mapped = {"six.wild.test": "::1", "mapped.wild.test": "::ffff:127.0.0.1", "net.wild.test": "10.0.0.1"}
    mapped |= {"two.wild.test": "169.254.169.254", "zero.wild.test": "0.0.0.0"}
    if host == "mixed.wild.test":
        return ["93.184.216.34", "127.0.0.1"]
    return [mapped.get(host, "127.0.0.1")]


SCRIPT = r'''
import json, os, socket, sys, urllib.request
A = json.load(sys.stdin)
PORT, OPEN, NAME = A["port"], A["open"], A["name"]
PROXY = ("127.0.0.1", int(os.environ["HTTP_PROXY"].rpartition(":")[2]))
tried, got = 0, []


def attempt(what, act):
    global tried
    tried += 1
    try:
        result = act()
    except (OSError, ValueError):
        return
    if result:
        got.append([what, repr(result)[:200]])


def stream(family, address):
    with socket.socket(family) as s:
        s.settimeout(2)
        s.connect(address)
        s.sendall(b"reached directly")
    return True


def datagram(address, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        return s.sendto(b"reached by datagram", address)


def ask(data, more=b""):
    """Send bytes to the proxy. The answer counts if it is not a refusal."""
    with socket.create_connection(PROXY, 5) as s:
        s.sendall(data)
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = s.recv(65536)
            if not piece:
                break
            answer += piece
        if answer.split(b" ")[1:2] == [b"200"] and more:
            s.sendall(more)
            s.shutdown(socket.SHUT_WR)
            answer += s.recv(65536)
    return answer if answer.split(b" ")[1:2] == [b"200"] else None


def connect(host, port):
    return ask(b"CONNECT %s:%s HTTP/1.1\r\n\r\n" % (host.encode("utf-8"), str(port).encode()), b"reached by tunnel")


def get(host, port, named=None):
    target = "%s:%s" % (host, port)
    head = "GET http://%s/ HTTP/1.1\r\nHost: %s\r\nX-Attempt: reached by request\r\n\r\n"
    return ask((head % (target, named or target)).encode("utf-8"))


# --- without the proxy ---

addresses = ["127.0.0.%d" % n for n in range(1, 26)] + ["127.1.2.3", "127.255.255.254", "0.0.0.0", "10.0.0.1"]
addresses += ["192.168.1.1", "172.17.0.1", "169.254.169.254", "8.8.8.8", "1.1.1.1", "224.0.0.1", *A["own"]]
for address in addresses:
    attempt("direct " + address, lambda: stream(socket.AF_INET, (address, PORT)))
for address in ("::1", "::ffff:127.0.0.1", "::", "fe80::1", "2606:4700:4700::1111"):
    attempt("direct " + address, lambda: stream(socket.AF_INET6, (address, PORT)))
for address in ("127.0.0.1", "127.0.0.53", "8.8.8.8", "255.255.255.255", "224.0.0.251", "10.0.0.1"):
    attempt("datagram " + address, lambda: datagram((address, PORT)))
    attempt("dns " + address, lambda: datagram((address, 53)))
attempt("datagram6", lambda: datagram(("::1", PORT), socket.AF_INET6))
for name in ("localhost.evil.test", "example.org", "api.test", "one.wild.test", "metadata.google.internal"):
    attempt("lookup " + name, lambda: socket.getaddrinfo(name, PORT))
for family, kind, protocol in (
    (socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_INET, socket.SOCK_RAW, 6), (socket.AF_INET, socket.SOCK_DGRAM, 1),
    (socket.AF_INET6, socket.SOCK_RAW, 58), (socket.AF_PACKET, socket.SOCK_RAW, 0),
    (socket.AF_PACKET, socket.SOCK_DGRAM, 0), (socket.AF_NETLINK, socket.SOCK_RAW, 0),
    (socket.AF_INET, socket.SOCK_STREAM, 132), (socket.AF_INET, 5, 132),
    (socket.AF_UNIX, socket.SOCK_STREAM, 0), (socket.AF_UNIX, socket.SOCK_DGRAM, 0), (40, socket.SOCK_STREAM, 0),
):
    attempt("socket %d %d %d" % (family, kind, protocol), lambda: socket.socket(family, kind, protocol))
attempt("abstract", lambda: stream(socket.AF_UNIX, "\0" + NAME))
attempt("unix", lambda: stream(socket.AF_UNIX, A["path"]))

# --- other hosts, other spellings of this machine, listed names in private networks ---

names = ["api.test", "API.Test.", "one.wild.test", "six.wild.test", "mapped.wild.test", "net.wild.test"]
names += ["two.wild.test", "zero.wild.test", "mixed.wild.test", "a.b.c.wild.test"]
names += ["evil.test", "xapi.test", "api.test.evil.test", "wild.test", "xwild.test", "api.test:80", "www.api.test"]
names += ["evil.test@api.test", "api.test@evil.test", "api.test/", "api.test#", "api.test?", "api.test\\.evil.test"]
names += ["api.test%00.evil.test", "api.test%2eevil.test", "api.test\tevil.test", "*.wild.test", ".wild.test", "test"]
names += ["127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001"]
names += ["127.0.0.01", "127.0.0.1.", "0", "0.0.0.0", "127.0.0.2", "127.0.0.1.nip.test", "localhost", "LOCALHOST."]
names += ["[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[0:0:0:0:0:0:0:1]", "[::]", "::1"]
names += ["[::1%lo]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"]
names += [ "\u2460\u2461\u2466.0.0.1", "\uff11\uff12\uff17.0.0.1", "169.254.169.254"]
for name in names:
    for port in (PORT, 443):
        attempt("tunnel %s %s" % (name, port), lambda: connect(name, port))
    attempt("request " + name, lambda: get(name, PORT))
for port in (PORT, 0, 65536, -1, "0x50", "+80", "080", "", "80 ", OPEN + 65536):
    attempt("port %s" % port, lambda: connect("127.0.0.1", port))

# --- the listed service, with something in it for another host ---

listed = "127.0.0.1:%d" % OPEN
LINE = ("GET http://%s/ HTTP/1.1\r\n" % listed).encode()
HOST = ("Host: %s\r\n" % listed).encode()
FOR = b"X-Attempt: reached by request\r\n"
SECOND = b"GET / HTTP/1.1\r\nHost: evil.test\r\nX-Smuggled: yes\r\n\r\n"
for head in (
    LINE + b"Host: evil.test\r\n", LINE + HOST + b"Host: evil.test\r\n", LINE + b"Host: evil.test\r\n" + HOST, LINE,
    LINE + b"Host : evil.test\r\n" + HOST, LINE + b" Host: evil.test\r\n" + HOST, LINE + HOST + b"\tevil.test\r\n",
    LINE + b"Host: " + listed.encode() + b",evil.test\r\n", LINE + b"Host:\r\n", LINE.replace(b"\r\n", b"\n") + HOST,
    LINE + HOST.replace(b"\r\n", b"\n"), LINE + HOST + b"X: a\rHost: evil.test\r\n", LINE + HOST + b"X\x00: a\r\n",
    LINE + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    LINE + HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n",
    LINE + HOST + b"Content-Length: +5\r\n", LINE + HOST + b"Content-Length: 0x5\r\n",
    LINE + HOST + b"Transfer-Encoding: chunked, identity\r\n",
    LINE + HOST + b"Transfer-Encoding: xchunked\r\n", LINE + HOST + b"X: " + b"a" * 70000 + b"\r\n",
    LINE + HOST + b"X: y\r\n" * 200,
    b"GET http://" + listed.encode() + b"/" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST, b"GET / HTTP/1.1\r\n" + HOST,
    b"GET http://" + listed.encode() + b"@evil.test/ HTTP/1.1\r\n" + HOST,
    b"GET https://" + listed.encode() + b"/ HTTP/1.1\r\n" + HOST,
    b"GET ftp://" + listed.encode() + b"/ HTTP/1.1\r\n" + HOST,
    b"GET http://" + listed.encode() + b"/ HTTP/2.0\r\n" + HOST,
    b"GET http://" + listed.encode() + b"/ x HTTP/1.1\r\n" + HOST,
    b"get http://" + listed.encode() + b"/ HTTP/1.1\r\n" + HOST,
    b"CONNECT " + listed.encode() + b" HTTP/1.1\r\nHost: evil.test:443\r\n",
    b"CONNECT http://" + listed.encode() + b"/ HTTP/1.1\r\n",
    b"\x05\x01\x00", b"\x16\x03\x01\x00\x05hello", b"HELP\r\n", b"GET\r\n",
):
    attempt("head %r" % head[:90], lambda: ask(head + FOR + b"\r\n"))
# These requests are valid as far as they go. What follows them must not arrive.
done = []
for head, body in (
    (LINE + HOST, SECOND), (LINE.replace(b"GET", b"POST") + HOST + b"Content-Length: 3\r\n", b"abc" + SECOND),
    (LINE.replace(b"GET", b"POST") + HOST + b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n" + SECOND),
    (LINE + HOST + b"Connection: keep-alive, X-Gone\r\nX-Gone: yes\r\nUpgrade: h2c\r\nProxy-Authorization: x\r\n", b""),
):
    tried += 1
    done.append(bool(ask(head + b"\r\n" + body)))
done.append(urllib.request.urlopen("http://%s/plain" % listed).read() == b"listed")
print(json.dumps([tried, got, done]))
'''


@dataclass
class Heard:
    """What arrived at the services: at those that no script may reach, and at the listed one."""

    port: int
    open: int
    name: str
    path: str
    own: list[str]
    reached: list[str] = field(default_factory=list[str])
    requests: list[bytes] = field(default_factory=list[bytes])

    def knowledge(self) -> bytes:
        known = {"port": self.port, "open": self.open, "name": self.name, "path": self.path, "own": self.own}
        return json.dumps(known).encode()

    def leaks(self) -> list[str]:
        """What should not have arrived at the listed service."""
        words = (b"evil.test", b"X-Smuggled", b"X-Attempt", b"X-Gone", b"Upgrade", b"Proxy-")
        return [repr(one[:300]) for one in self.requests if any(word in _after_path(one) for word in words)]


def _after_path(request: bytes) -> bytes:
    """A request without the path that it asks for, which may contain the name of another host."""
    first, _, rest = request.partition(b"\r\n")
    method, _, target = first.partition(b" ")
    return method + b"\r\n" + rest if target.startswith(b"/") else request


@contextlib.contextmanager
def services(folder: str, token: str) -> Generator[Heard]:
    """Services on this machine that note every connection, datagram and request."""
    with contextlib.ExitStack() as stack:
        everywhere = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        port = everywhere.getsockname()[1]
        listeners = [everywhere]
        with contextlib.suppress(OSError):
            listeners.append(stack.enter_context(socket.create_server(("::1", port), family=socket.AF_INET6)))
        listed = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        name, path = f"metier-hosts-{token}", f"{folder}/hosts.sock"
        for address in (f"\0{name}", path):
            unix = stack.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(address)
            unix.listen()
            listeners.append(unix)
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("0.0.0.0", port))
        own: list[str] = []
        with contextlib.suppress(OSError):
            own = socket.gethostbyname_ex(socket.gethostname())[2]
        heard = Heard(port, listed.getsockname()[1], name, path, own)
        threads = [threading.Thread(target=_note, args=(one, heard)) for one in listeners]
        threads.append(threading.Thread(target=_answer, args=(listed, heard)))
        for thread in threads:
            thread.start()
        try:
            yield heard
            datagrams.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                heard.reached.append(f"datagram: {datagrams.recv(100)!r}")
        finally:
            for one in (*listeners, listed):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _note(listener: socket.socket, heard: Heard) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            heard.reached.append(str(listener.getsockname()))
            connection.close()


def _answer(listener: socket.socket, heard: Heard) -> None:
    """The listed service. It keeps reading after the first request, as a careless server would."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(0.2)
                data = connection.recv(65536)
                with contextlib.suppress(TimeoutError):
                    while b"Content-Length: 3" in data or b"chunked" in data or b"GET" in data:
                        piece = connection.recv(65536)
                        if not piece:
                            break
                        data += piece
                heard.requests.append(data)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nlisted")
