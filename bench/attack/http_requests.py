"""Raw requests at a server: with and without its token, with other hosts, cut off, too long, slow, and two in one.

The description of a skill holds the token of the round. Whoever does not send the server's token, or names another
host, must not get to see it, and no request makes the server fail, hang or grow.
"""

import contextlib
import os
import random
import socket
import time
from pathlib import Path
from typing import Final

from metier.limits import MIB

from .place import Place, Web, tracebacks, web
from .rounds import Round

_TIMEOUT: Final = 40.0
_FIRST: Final = 0.3
_BETWEEN: Final = 0.02
"""How long a server is given to begin its answer, and to go on with it, before the client closes its side."""
_RESIDENT: Final = 700 * MIB
"""The server with everything loaded has about 100 MiB, and it may hold some bodies of 4 MiB each."""
_SLOW: Final = 30
_TARGETS: Final = (
    *("/", "/api/skills", "/api/search?q=notes", "/api/sessions", "/api/chats", "/rpc", "/mcp", "/skills", "/activity"),
    *("/api/skills/notes", "/openapi.json", "/api/openapi.json", "/healthz", "/api/health", "/api/model", "/login"),
    *("//api/skills", "/./api/skills", "/api/../api/skills", "/static/../api/skills", "/API/SKILLS", "/api/skills/"),
    *("/login/../api/skills", "/static/..%2fapi/skills", "/%61pi/skills", "/api%2fskills", "/api/skills;x", "*"),
    *(
        "http://evil.com/api/skills",
        "http://127.0.0.1/api/skills",
        "/api/skills?token=x",
        "/api/skills#/login",
        "/login//api",
    ),
    *(
        "/favicon.ico/../api/skills",
        "/usage",
        "/prompts",
        "/context",
        "/api/events",
    ),
)
_METHODS: Final = (
    *("GET", "GET", "GET", "POST", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH", "X\0"),
)
_VERSIONS: Final = (*("HTTP/1.1",) * 6, "HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1.1 x")
_OTHER_HOSTS: Final = (
    *("evil.com", "localhost.evil.com", "[::1]evil.com", "127.0.0.1.evil.com", "evil.com:80", "[::1", "a@localhost"),
    *(
        "localhost@evil.com",
        "127.0.0.1:80@evil.com",
        "localhost\t.evil.com",
        "0x7f.1",
        "2130706433",
        "loc\u00e4lhost",
        "",
    ),
)
_BODIES: Final = (
    *(b"", b"{}", b"{", b"[]", b"null", b"\xff\xfe", b'{"a":Infinity}', b'{"a":NaN}', b"[" * 100_000, b'"\\ud800"'),
    *(b'{"jsonrpc":"2.0","id":1,"method":"skills.list","params":{}}', b'{"name":"notes"}', b"x" * 5_000_000),
    b"GET /api/skills HTTP/1.1\r\nhost: localhost\r\n\r\n",
)


def attack(round_: Round) -> None:
    place = Place(round_)
    place.skill("~/.agents/skills/notes", description=f"Holds {round_.token}.", files={"a.md": round_.token})
    place.hand_over()
    with web(place) as server:
        if round_.token.encode() not in server.request("GET", "/api/skills")[1]:
            round_.found("broken", "the token does not open the catalog, so nothing is proved")
        while round_.goes_on():
            if round_.chance.random() < 0.01:
                _slow(round_, server)
            else:
                _one(round_, server)
        _still_well(round_, server)
    tracebacks(round_, server.errors, "the server")


def _one(round_: Round, server: Web) -> None:
    """Send one request as bytes, and look at everything that comes back."""
    chance = round_.chance
    entitled, data = request(chance, server)
    round_.tried()
    answer = exchange(server, data)
    if answer is None:
        round_.found("limit", f"no end after {_TIMEOUT:g} s", repr(data[:2_000]))
        return
    if answer.startswith(b"HTTP/1.1 5") and not answer.startswith((b"HTTP/1.1 501", b"HTTP/1.1 505")):
        round_.escape(f"the server failed: {answer[:200]!r}", repr(data[:2_000]))
    if not entitled:
        round_.secret_in("HTTP without the right to it", answer, repr(data[:2_000]))
    if server.token.encode() in answer and server.token.encode() not in data:
        round_.escape("the server's token came back", repr(data[:2_000]))


def request(chance: random.Random, server: Web) -> tuple[bool, bytes]:
    """A request as bytes, and whether its sender may see the catalog."""
    with_token, other_host = chance.random() < 0.4, chance.random() < 0.4
    host = (
        chance.choice(_OTHER_HOSTS) if other_host else chance.choice((f"127.0.0.1:{server.port}", "localhost", "[::1]"))
    )
    headers = [("Host", host)]
    if with_token:
        headers.append(("Authorization", f"Bearer {server.token}"))
    elif chance.random() < 0.7:
        wrong = (
            "Bearer x",
            "Bearer ",
            "Basic eDp4",
            f"bearer{server.token}",
            f"Bearer {server.token[:-1]}",
            "Bearer \0",
        )
        headers.append(("Authorization", chance.choice(wrong)))
    elif chance.random() < 0.5:
        headers.append(
            ("Cookie", chance.choice(("metier_token=x", "metier_token=", "metier_token=" + "0" * 64, "a" * 5_000)))
        )
    plain = chance.random() < 0.4  # one that would be answered if it had the right to it
    body = b"" if plain else chance.choice(_BODIES)
    kind = chance.randrange(12)
    if kind == 0:
        headers += [("Content-Length", str(len(body))), ("Content-Length", str(len(body) + 7))]
    elif kind == 1:
        headers += [("Content-Length", str(len(body))), ("Transfer-Encoding", "chunked")]
    elif kind == 2:
        headers.append(("Transfer-Encoding", chance.choice(("chunked", "identity, chunked", "xchunked", "chunked\0"))))
        body = chance.choice(
            (b"2\r\n{}\r\n0\r\n\r\n", b"ffffffffffffffff\r\n", b"-1\r\n", b"2;" + b"a" * 9_000 + b"\r\n{}")
        )
    elif kind == 3:
        headers.append(("Content-Length", chance.choice(("-1", "+2", "2, 2", "0x10", "9" * 30, "", "1e3"))))
    else:
        headers.append(("Content-Length", str(len(body))))
    if kind == 4:
        headers.append(
            (chance.choice(("X", "X" * 5_000, "X\0", "X Y", "")), chance.choice(("y" * 70_000, "\r\n y", "\0", "\x7f")))
        )
    if kind == 5:
        headers += [(f"X-{number}", "y") for number in range(2_000)]
    if kind == 6:
        headers.append(("Origin", chance.choice(("null", "http://evil.com", "http://localhost.evil.com"))))
        headers.append(("Sec-Fetch-Site", "cross-site"))
    if kind == 7:
        headers += [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13")]
    if kind == 8:
        for name in (
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Real-IP",
            "Forwarded",
            "X-Original-URL",
            "X-HTTP-Method-Override",
        ):
            headers.append((name, chance.choice(("127.0.0.1", "localhost", "/api/skills", "for=127.0.0.1"))))
    chance.shuffle(headers)
    method, target, version = chance.choice(_METHODS), chance.choice(_TARGETS), chance.choice(_VERSIONS)
    if plain:
        method, target, version = "GET", chance.choice(("/api/skills", "/skills", "/api/search?q=notes")), "HTTP/1.1"
    if kind == 9:
        target += "a" * chance.choice((100, 5_000, 70_000))
    lines = [f"{method} {target} {version}", *(f"{name}: {value}" for name, value in headers)]
    text = "".join(f"{line}\r\n" for line in lines)
    data = text.encode("utf-8", "surrogatepass") + b"\r\n" + body
    if kind == 10:
        data = data[: chance.randrange(len(data))]
    if kind == 11:
        changed = bytearray(data)
        for _ in range(chance.randrange(1, 6)):
            changed[chance.randrange(min(len(changed), 600))] = chance.randrange(256)
        data = bytes(changed)
    # A changed byte may turn another host into a good one, so only the token decides there.
    return with_token and (not other_host or kind == 11), data


def exchange(server: Web, data: bytes) -> bytes | None:
    """Send bytes, and return everything that comes back until the server closes. `None` if it does not.

    A server need not answer a client that has closed its side, so that waits until nothing comes for a while.
    """
    deadline = time.monotonic() + _TIMEOUT
    answer = b""
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.settimeout(_TIMEOUT)
        with contextlib.suppress(OSError):  # it may refuse a request before it was sent
            connection.sendall(data)
        is_open = True
        while time.monotonic() < deadline:
            quiet = _BETWEEN if answer else _FIRST
            connection.settimeout(quiet if is_open else max(deadline - time.monotonic(), 0.01))
            try:
                piece = connection.recv(65536)
            except TimeoutError:
                if is_open:
                    is_open = False
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_WR)
                continue
            answer += piece
            # A stream that goes on is no hang.
            if not piece or len(answer) > 8 * MIB or b"text/event-stream" in answer[:2_000]:
                return answer
        return None
    return answer


def _slow(round_: Round, server: Web) -> None:
    """Many requests that never come to an end must not keep others waiting."""
    with contextlib.ExitStack() as stack:
        for _ in range(_SLOW):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10))
            connection.sendall(b"POST /rpc HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{")
        round_.tried(_SLOW)
        _still_well(round_, server)


def _still_well(round_: Round, server: Web) -> None:
    try:
        status, content = server.request("GET", "/api/skills")
    except OSError as error:
        round_.found("limit", f"the server does not answer a good request: {error!r}")
        return
    if status != 200 or round_.token.encode() not in content:
        round_.found("limit", f"the server answers a good request with {status}")
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{server.child.pid}/statm").read_text().split()[1])
        round_.used("the server's memory", pages * os.sysconf("SC_PAGE_SIZE"), _RESIDENT)
