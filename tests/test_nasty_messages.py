"""Two thousand messages that no client should send, over JSON-RPC, HTTP, MCP and as tool calls of a model.

Every one is answered, none as an error that nobody foresaw; the process lives, and after each ten a good call works.
"""

import contextlib
import itertools
import json
import subprocess
import threading
from collections.abc import Generator, Iterator
from typing import IO, Any, cast

import httpx2
import pytest

import forking
from bench.attack.nasty import JsonObject, Nasty, as_python, encode, http_request, mcp_message, rpc_message
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from patience import PATIENCE
from worlds import World

EACH = 500
BATCH = 10
INTERNAL = -32603
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}


@pytest.fixture
def nasty_world(world: World) -> World:
    """A skill with a script, and a policy that lets it run, so that messages get as far as the sandbox."""
    world.skill(
        ".agents/skills/notes",
        files={"references/a.md": "the reference", "scripts/say.sh": "#!/bin/sh\necho said\n"},
    )
    config = world.home / ".config" / "metier" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[permissions]\nprofile = "full-auto"\n')
    return world


def place(world: World) -> list[str]:
    return ["--cwd", str(world.project), "--home", str(world.home), "--store", f"sqlite:///{world.home}/events.db"]


class Pipe:
    """A server on a pipe, to which lines are sent as they are. It is killed when the test takes too long."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._stdin, self._stdout = process, process.stdin, process.stdout

    def send(self, *lines: bytes) -> Iterator[Any]:
        """Send lines; the answers as they come. The caller takes as many as are due."""
        writer = threading.Thread(target=self.write, args=(b"\n".join((*lines, b"")),))
        writer.start()
        while line := self._stdout.readline():
            answer = json.loads(line.decode(), parse_constant=_no_constant)
            json.dumps(answer, ensure_ascii=False).encode()
            if isinstance(answer, list) or "method" not in answer:
                yield answer
        writer.join()
        raise AssertionError(f"the server ended with {self.process.wait()}")

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._stdin.write(data)
            self._stdin.flush()

    def ask(self, message: JsonObject) -> JsonObject:
        return next(self.send(encode({"jsonrpc": "2.0", "id": "good", **message})))


def _no_constant(name: str) -> object:
    raise AssertionError(f"{name} is not JSON")


@contextlib.contextmanager
def pipe(world: World, command: str, *more: str) -> Generator[Pipe, None, None]:
    errors = world.home / "stderr"
    with (
        errors.open("wb") as kept,
        forking.start([*forking.METIER, command, *place(world), *more], stdin=-1, stdout=-1, stderr=kept) as process,
    ):
        deadline = threading.Timer(PATIENCE, process.kill)
        deadline.start()
        try:
            yield Pipe(process)
            cast("IO[bytes]", process.stdin).close()
            assert process.wait() == 0
        finally:
            deadline.cancel()
            process.kill()
    assert "Traceback" not in errors.read_text()


def batches() -> Iterator[range]:
    return (range(start, start + BATCH) for start in range(0, EACH, BATCH))


def code(answer: Any) -> int:
    return answer["error"]["code"] if isinstance(answer, dict) and "error" in answer else 0


@pytest.mark.system
def test_json_rpc_answers_every_nasty_message_and_the_next_call(nasty_world: World) -> None:
    nasty = Nasty(15)
    good = {"method": "session.call", "params": {"session_id": "s", "tool": "skill_load", "args": {"name": "notes"}}}
    with pipe(nasty_world, "rpc") as server:
        server.ask({"method": "session.create", "params": {"session_id": "s"}})
        found: list[int] = []
        for numbers in batches():
            lines = [rpc_message(nasty, number, "s") for number in numbers]
            for line, answer in zip(lines, server.send(*lines), strict=False):
                assert code(answer) != INTERNAL, line[:500]
                found.append(code(answer))
                if len(found) % BATCH == 0:
                    break
            assert server.ask(good)["result"]["ok"] is True
    assert len(found) == EACH
    assert found.count(0) > EACH // 20, "messages that get far enough to be performed"
    assert found.count(-32602) > EACH // 4


@pytest.mark.system
def test_mcp_answers_every_nasty_message_and_the_next_call(nasty_world: World) -> None:
    nasty = Nasty(16)
    good = {"method": "tools/call", "params": {"name": "skill_load", "arguments": {"name": "notes"}}}
    with pipe(nasty_world, "mcp") as server:
        server.ask({"method": "initialize", "params": HELLO})
        server.write(encode({"jsonrpc": "2.0", "method": "notifications/initialized"}) + b"\n")
        found: list[int] = []
        for numbers in batches():
            lines = [mcp_message(nasty, number) for number in numbers]
            answers = list(itertools.islice(server.send(*lines), BATCH))  # in any order
            assert {answer["id"] for answer in answers} <= {None, *numbers}
            for answer in answers:
                assert code(answer) != INTERNAL, (answer, [line[:300] for line in lines])
            found += map(code, answers)
            assert server.ask(good)["result"].get("isError", False) is False
    assert len(found) == EACH
    assert found.count(0) > EACH // 20


@pytest.mark.system
def test_mcp_answers_a_line_that_is_no_message_with_its_id_and_never_answers_an_answer(nasty_world: World) -> None:
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "skill_load", "arguments": {"name": "\ud800"}}}
    lines = {
        encode({**call, "id": 7}): (7, -32602),
        encode({**call, "id": "seven"}): ("seven", -32602),
        encode({**call, "id": "\ud800"}): (None, -32602),
        encode({"jsonrpc": "2.0", "id": 8, "method": "ping", "params": [1]}): (8, -32600),
        encode({"jsonrpc": "2.0", "id": 9, "method": 5}): (9, -32600),
        b"[]": (None, -32600),
        b"7": (None, -32600),
        b"{": (None, -32700),
        b"[" * 50_000: (None, -32700),
        b'{"jsonrpc":"2.0","id":1,"result":7}': None,
        b'{"jsonrpc":"2.0","id":1,"error":"\\ud800"}': None,
    }
    with pipe(nasty_world, "mcp") as server:
        server.ask({"method": "initialize", "params": HELLO})
        for line, expected in lines.items():
            server.write(line + b"\n")
            answers = server.send(encode({"jsonrpc": "2.0", "id": "next", "method": "ping"}))
            if expected is not None:
                answer = next(answers)
                assert (answer["id"], code(answer)) == expected, line[:100]
            assert next(answers)["id"] == "next"


@pytest.mark.system
def test_http_answers_every_nasty_request_and_the_next_call(nasty_world: World) -> None:
    nasty = Nasty(17)
    with serving(nasty_world) as client:
        session = client.post("/api/sessions").json()["session_id"]
        chat = client.post("/api/chats").json()["id"]
        found: list[int] = []
        for numbers in batches():
            for _ in numbers:
                method, path, body = http_request(nasty, session, chat)
                answer = client.request(method, path, content=body)
                assert answer.status_code < 500, (method, path[:300], body[:300], answer.text[:300])
                found.append(answer.status_code)
            answer = client.post(
                f"/api/sessions/{session}/call", json={"tool": "skill_load", "args": {"name": "notes"}}
            )
            assert answer.json()["ok"] is True
    assert len(found) == EACH
    assert found.count(200) > EACH // 20
    assert found.count(400) > EACH // 4


@contextlib.contextmanager
def serving(world: World) -> Generator[httpx2.Client, None, None]:
    command = [*forking.METIER, "serve", "--port", "0", *place(world)]
    errors = world.home / "stderr"
    with errors.open("wb") as kept, forking.start(command, stderr=subprocess.PIPE) as process:
        deadline = threading.Timer(PATIENCE, process.kill)
        deadline.start()
        assert process.stderr is not None
        first = process.stderr.readline().decode()
        rest = threading.Thread(target=lambda: kept.writelines(cast("IO[bytes]", process.stderr)))
        rest.start()
        try:
            url = first.removeprefix("listening on ").strip()
            token = (world.home / ".config/metier/token").read_text().strip()
            headers = {"authorization": f"Bearer {token}"}
            with httpx2.Client(base_url=url, headers=headers, timeout=PATIENCE, trust_env=False) as client:
                yield client
            assert process.poll() is None
        finally:
            deadline.cancel()
            process.terminate()
            process.wait()
            rest.join()
    assert "Traceback" not in errors.read_text()


def test_a_session_answers_every_nasty_tool_call_and_its_record_replays(nasty_world: World) -> None:
    nasty = Nasty(18)
    store = MemoryStore()
    runner = FakeRunner(default=Outcome(0, "exit", 1, b"said\n", b""))
    session = nasty_world.discover().session(store=store, runner=runner)
    found: list[bool] = []
    for numbers in batches():
        for _ in numbers:
            tool, arguments = nasty.call()
            name = tool if isinstance(tool, str) else nasty.text()
            result = session.call(name, cast("Any", as_python(arguments)))
            assert result.ok or result.text, "a mistake is explained"
            json.dumps(result.as_dict(), ensure_ascii=False).encode()
            found.append(result.ok)
        assert session.call("skill_load", {"name": "notes"}).ok
    assert len(found) == EACH
    assert EACH // 20 < found.count(True) < EACH // 2
    again = replay(from_store(store, session.id))
    assert [one.detail for one in again.differences] == []
