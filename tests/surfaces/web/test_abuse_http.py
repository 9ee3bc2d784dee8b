"""Hostile and random requests are refused, and the server keeps answering."""

import contextlib
import json
import random
import socket
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import IO

import pytest
from processes import Process, serve
from starlette.testclient import TestClient

import forking
from metier.app import App
from metier.surfaces.web.api import build, endpoints
from metier.surfaces.web.guard import Gate
from worlds import World

SKILLS = ".agents/skills"
STRINGS = 2_000
TOKEN = "a-token-of-some-length"
BATCH = 200


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


def statuses(process: Process, requests: Sequence[bytes]) -> Iterator[int]:
    """The statuses of the answers to requests, many of which are sent at once on one connection."""
    for start in range(0, len(requests), BATCH):
        batch = requests[start : start + BATCH]
        with process.connect() as connection, connection.makefile("rb") as answers:
            sender = threading.Thread(target=connection.sendall, args=(b"".join(batch),))
            sender.start()
            for _ in batch:
                yield _status(answers)
            sender.join()


def _status(answers: IO[bytes]) -> int:
    status, length = int(answers.readline().split()[1]), 0
    while (line := answers.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    answers.read(length)
    return status


def request(process: Process, path: str, body: bytes, **headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: localhost", process.line.strip(), f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode() + body


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


@pytest.mark.system
def test_random_bodies_over_json_rpc_and_mcp_get_an_error_each(process: Process) -> None:
    seeds = [b'{"jsonrpc":"2.0","id":1,"method":"session.load","params":{"name":"notes"}}', b'[{"id":1},{"id":2}]']
    found = list(statuses(process, [request(process, "/rpc", string) for string in noise(2, seeds)]))
    assert len(found) == STRINGS
    assert set(found) <= {200, 204}  # a JSON-RPC error has status 200, and a notification has no answer
    seeds = [b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"skill_load","arguments":{}}}']
    given = {"content_type": "application/json", "accept": "application/json, text/event-stream"}
    eras = [{**given, "mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call"}, given]
    bodies = [request(process, "/mcp", string, **eras[number % 2]) for number, string in enumerate(noise(3, seeds))]
    found = list(statuses(process, bodies))
    assert set(found) <= {400, 202}  # a message without an id is a notification, which has no answer
    assert found.count(400) > STRINGS * 0.9
    assert is_well(process)


@pytest.mark.system
def test_random_lines_on_a_pipe_leave_it_answering(world: World) -> None:
    world.skill(f"{SKILLS}/notes")
    seeds = [b'{"jsonrpc":"2.0","id":1,"method":"skills.list"}', b'{"jsonrpc":"2.0","id":1,"method":"ping"}']
    lines = [string.replace(b"\n", b" ").replace(b"\r", b" ") for string in noise(4, seeds)]
    lines.append(b'{"jsonrpc": "2.0", "id": "last", "method": "skills.list"}\n')
    place = ["--cwd", str(world.project), "--home", str(world.home), "--store", "memory:"]
    done = forking.run([*forking.METIER, "rpc", *place], input=b"\n".join(lines), capture_output=True)
    *errors, last = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, last["id"], len(last["result"]["skills"])) == (0, "last", 1)
    assert b"Traceback" not in done.stderr
    assert len(errors) > STRINGS * 0.9
    assert all("error" in answer or answer["id"] == 1 for answer in errors)


# --- addresses that try to leave ---

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


@pytest.mark.system
def test_an_address_that_tries_to_leave_is_refused(process: Process) -> None:
    for path in TRICKS:
        with process.connect() as connection, connection.makefile("rb") as answer:
            head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{process.line}connection: close\r\n\r\n"
            connection.sendall(head.encode())
            said = answer.read()
        assert said.startswith(b"HTTP/1.1 4"), (path[:40], said[:300])
        assert b"root:" not in said, path[:40]
        assert b"\r\nset-cookie" not in said.lower(), path[:40]


PATHS = ["../../../../etc/passwd", "..%2f", "/etc/passwd", "a\0b", "..\\x", "x" * 100_000, "", "%2e%2e/x", "\ud800"]


@pytest.mark.system
def test_a_path_in_a_body_that_tries_to_leave_is_refused(process: Process) -> None:
    session = process.begin()
    for path in PATHS:
        for operation, given in {
            "read": {"name": "notes", "path": path},
            "run": {"name": "notes", "script": path},
            "load": {"path": path},
            "call": {"tool": "skill_read", "args": {"name": "notes", "path": path}},
        }.items():
            answer = process.client.post(f"/api/sessions/{session}/{operation}", content=json.dumps(given).encode())
            assert 400 <= answer.status_code < 500 or answer.json()["ok"] is False, (operation, path[:40])
            assert "root:" not in answer.text
    read = {"name": "notes", "path": "../../x"}
    refused = process.client.post(f"/api/sessions/{session}/read", json=read)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "ACCESS_DENIED")


@pytest.mark.system
def test_headers_and_first_lines_that_are_too_long_are_refused(process: Process) -> None:
    huge = "x" * 100_000
    for begun in (f"GET /{huge}", f"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {huge}", huge):
        with process.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(begun.encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
    assert is_well(process)


@pytest.mark.system
def test_two_lengths_or_a_length_and_chunks_are_refused(process: Process) -> None:
    """Requests that two servers in a row could read differently."""
    for lines in (
        "content-length: 2\r\ncontent-length: 4",
        "content-length: 2, 4",
        "content-length: +2",
        "host: evil.example\r\ncontent-length: 2",
        "transfer-encoding: xchunked\r\ncontent-length: 2",
    ):
        with process.connect() as connection, connection.makefile("rb") as answer:
            head = f"POST /rpc HTTP/1.1\r\nhost: localhost\r\n{process.line}{lines}\r\n\r\n"
            connection.sendall(f"{head}{{}}".encode())
            assert answer.readline().split()[1] in (b"400", b"421", b"501"), lines


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
