"""Hostile and random requests are refused, and the server keeps answering."""

import contextlib
import random
import socket
from collections.abc import Generator, Iterator, Sequence

import pytest
from processes import Process, serve
from starlette.testclient import TestClient

from metier.app import App
from metier.surfaces.web.api import build, endpoints
from metier.surfaces.web.guard import Gate
from worlds import World

SKILLS = ".agents/skills"
STRINGS = 2_000
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Generator[Process, None, None]:
    folder = tmp_path_factory.mktemp("abuse")
    world = World(folder / "home", folder / "project")
    (world.project / ".git").mkdir(parents=True)
    world.home.mkdir()
    world.skill(f"{SKILLS}/notes", files={"references/a.md": "the reference"})
    with serve(world, store=f"sqlite:///{folder}/events.db") as running:
        yield running


def noise(seed: int, seeds: Sequence[bytes]) -> Iterator[bytes]:
    """Random bytes, and real messages with some bytes of them changed."""
    chance = random.Random(seed)
    for _ in range(STRINGS):
        if chance.random() < 0.5:
            yield chance.randbytes(chance.randrange(1, 120))
        else:
            changed = bytearray(chance.choice(seeds))
            for _ in range(chance.randrange(1, 6)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            yield bytes(changed)


def is_well(process: Process) -> bool:
    """Whether a good request is still answered."""
    session = process.begin()
    return process.call(session, "skill_load", name="notes")["ok"] and process.process.poll() is None


@pytest.mark.system
def test_random_strings_on_the_socket_are_refused(process: Process) -> None:
    seeds = [
        b"GET /api/skills HTTP/1.1\r\nhost: localhost\r\n",
        b"POST /rpc HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n",
        b"POST /api/sessions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n",
    ]
    bodies = (b"", b"{}", b"2\r\n{}\r\n0\r\n\r\n")
    seeds = [head + process.line.encode() + b"\r\n" + body for head, body in zip(seeds, bodies, strict=True)]
    refused = 0
    for string in noise(1, seeds):
        with process.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(string)
            connection.shutdown(socket.SHUT_WR)
            said = b""
            while piece := connection.recv(65536):
                said += piece
            assert not said.startswith(b"HTTP/1.1 5"), (string, said[:300])
            refused += not said or said.startswith(b"HTTP/1.1 4")
    assert refused > STRINGS * 0.9  # a request with a changed byte may still be valid
    assert is_well(process)


TRICKS = [
    *("/api/skills/../../../etc/passwd", "/api/skills/..%2f..%2fetc%2fpasswd"),
    *("/api/skills/%2e%2e/%2e%2e/etc/passwd", "/api/skills/%252e%252e%252fetc%252fpasswd"),
    *("/api/skills/%c0%ae%c0%ae/", "/api/skills/..\\..\\etc\\passwd", "/api/skills/..%5c..%5cetc%5cpasswd"),
    *("/api/skills/notes%00", "/api/skills/%00", "/api/skills/%ff%fe", "/api/skills/notes%0d%0aset-cookie:%20a=b"),
    *("/api/skills/" + "a" * 60_000, "/api/skills/" + "%41" * 15_000, "/api/skills/" + "../" * 5_000, "//etc/passwd"),
    *("/%2e%2e/%2e%2e/etc/passwd", "/static/../../../../etc/passwd", "/static/..%2f..%2f..%2f..%2fetc%2fpasswd"),
    *("/static/%2fetc%2fpasswd", "/static//etc/passwd", "/static/%2e%2e%2f%2e%2e%2fapi.py"),
    *("/api/sessions/..%2f..%2f/events", "/api/sessions/%00/events", "/api/sessions/%ff/events"),
    *("/api/sessions/" + "s" * 5_000 + "/events", "/api/sessions/../skills/events", "/mcp/../../etc/passwd"),
    *("/healthz/../nowhere", "/healthz%2f..%2fetc%2fpasswd", "*", "http://evil.example/api/skills/x"),
    "evil.example:443",
]


TWO_WAYS = [
    *("content-length: 2\r\ncontent-length: 4", "content-length: 2, 4", "content-length: +2"),
    *("host: evil.example\r\ncontent-length: 2", "transfer-encoding: xchunked\r\ncontent-length: 2"),
]
"""Headers by which two servers in a row could read a request differently."""
HUGE = "x" * 100_000
TOO_LONG = [f"GET /{HUGE}", f"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {HUGE}", HUGE]


@pytest.mark.system
def test_addresses_that_leave_headers_that_differ_and_lines_without_end_are_refused(process: Process) -> None:
    host = f"host: localhost\r\n{process.line}connection: close\r\n"
    requests = [(path, f"GET {path} HTTP/1.1\r\n{host}\r\n") for path in TRICKS]
    requests += [(lines, f"POST /rpc HTTP/1.1\r\n{host}{lines}\r\n\r\n{{}}") for lines in TWO_WAYS]
    requests += [(line, line) for line in TOO_LONG]
    for name, text in requests:
        said = b""
        with process.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(text.encode())
            while piece := connection.recv(65536):
                said += piece
        assert said.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501 ")), (name[:40], said[:300])
        assert b"root:" not in said, name[:40]
        assert b"\r\nset-cookie" not in said.lower(), name[:40]
    assert is_well(process)


@pytest.fixture
def guarded(world: World) -> Generator[TestClient, None, None]:
    app = App(world.project, home=world.home, store="memory:")
    gate = Gate.for_address("0.0.0.0", TOKEN, ("metier.example",))
    with TestClient(build(app, gate, watch=False), base_url="http://localhost") as client:
        yield client


def test_no_address_answers_without_the_token_by_another_name_or_to_another_site(guarded: TestClient) -> None:
    closed = [(one.method, one.path.replace("{", "").replace("}", "")) for one in endpoints() if not one.open]
    closed += [("POST", "/mcp"), ("GET", "/mcp"), ("GET", "/"), ("GET", "/nowhere")]
    known = {"authorization": f"Bearer {TOKEN}"}
    tokens = ["", "Bearer", "Bearer ", f"bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN]
    hosts = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "2130706433"]
    origins = ["http://evil.example", "null", "http://localhost:1", "file://", "http://localhost.evil"]
    rows = [({"authorization": given} if given else {}, 401, closed) for given in tokens]
    everything = [*closed, ("GET", "/healthz")]
    rows += [({"host": host, **known}, 421, everything) for host in hosts]
    rows += [({"origin": origin, **known}, 403, everything) for origin in origins]
    for headers, status, addresses in rows:
        found = {path: guarded.request(method, path, headers=headers).status_code for method, path in addresses}
        assert set(found.values()) == {status}, (headers, found)
    refused = guarded.get("/api/skills")
    assert (refused.headers["www-authenticate"], refused.json()["error"]["code"]) == ("Bearer", "UNAUTHORIZED")
    assert guarded.get("/api/skills", params={"token": TOKEN}).status_code == 401
    assert guarded.get("/api/skills", headers=known).status_code == 200
