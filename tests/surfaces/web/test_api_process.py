"""The whole server in a process of its own: MCP beside the API, live events, connections, and shutdown."""

import asyncio
import contextlib
import gc
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from typing import Literal

import anyio
import anyio.to_thread
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from processes import JsonObject, awaited, messages, running, serve
from uvicorn.protocols.http.h11_impl import H11Protocol

from metier.app import App
from metier.surfaces.web import server
from metier.surfaces.web.api import build
from metier.surfaces.web.guard import Gate
from patience import PATIENCE
from worlds import World

pytestmark = pytest.mark.system

TOKEN = "a-token-of-some-length"
SKILLS = ".agents/skills"
RUNS = '[permissions]\nallow = [{tool = "skill_run"}, {tool = "run_unsandboxed"}]\n'
"""Scripts run in the sandbox, and on a machine without one they run, too."""


# --- MCP ---


@awaited
@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_mcp_is_spoken_behind_the_same_gate_as_the_api(
    world: World, mode: Literal["legacy", "auto"], version: str
) -> None:
    world.skill(f"{SKILLS}/pdf", files={"a.md": "the file"})

    with serve(world, env={"METIER_TOKEN": TOKEN}) as process:
        assert httpx2.post(f"{process.url}/mcp", json={}, timeout=PATIENCE, trust_env=False).status_code == 401
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False, timeout=PATIENCE) as wire,
            Client(streamable_http_client(f"{process.url}/mcp", http_client=wire), mode=mode, cache=None) as client,
        ):
            assert client.protocol_version == version
            assert "skill_load" in {tool.name for tool in (await client.list_tools()).tools}
            loaded = await client.call_tool("skill_load", {"name": "pdf"})
            assert not loaded.is_error
            (content,) = (await client.read_resource("skill://pdf/a.md")).contents
            assert isinstance(content, types.TextResourceContents)
            assert content.text == "the file"


# --- events ---


def test_a_stream_shows_what_happens_and_goes_on_after_the_last_id(world: World) -> None:
    world.skill(f"{SKILLS}/notes")
    with serve(world) as process:
        session = process.begin()
        seen: list[JsonObject] = []
        path, accept = f"/api/sessions/{session}/events", {"accept": "text/event-stream"}
        with process.client.stream("GET", path, headers=accept) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            arriving = messages(stream.iter_lines())
            seen.append(next(arriving))
            process.call(session, "skill_load", name="notes")
            while seen[-1]["event"] != "session_returned":
                seen.append(next(arriving))
        process.call(session, "skill_load", name="notes")
        last = {**accept, "last-event-id": str(seen[-1]["id"])}
        with process.client.stream("GET", path, headers=last) as stream:
            arriving = messages(stream.iter_lines())
            seen.append(next(arriving))
            while seen[-1]["event"] != "session_returned":
                seen.append(next(arriving))
        frames = process.frames(session)
        assert [one["id"] for one in seen] == list(range(len(frames)))
        assert [one["data"] for one in seen] == frames


# --- connections ---


@contextlib.contextmanager
def served(world: World, gate: Gate | None = None) -> Generator[tuple[str, int], None, None]:
    """The address of a server in a thread of this process, so that its time limits can be set."""
    with running(world, gate) as (_, address):
        yield address


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            said += piece
    return said


def test_an_answer_does_not_wait_until_its_first_part_is_confirmed(world: World) -> None:
    with running(world) as (made, address), socket.create_connection(address, timeout=PATIENCE) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert client.recv(65536)
        (connection,) = made.server_state.connections
        assert isinstance(connection, H11Protocol)
        held = connection.transport.get_extra_info("socket")
        assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


LINE = b"GET /healthz HTTP/1.1\r\n"


def test_the_garbage_collector_leaves_out_what_was_there_when_the_server_had_settled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SETTLED_SECONDS", 0.01)
    app = App(world.project, home=world.home, store="memory:")
    made = server.make(build(app, watch=False), "127.0.0.1", 0)
    before, deadline = gc.get_freeze_count(), time.monotonic() + 60

    def end_when_frozen() -> None:
        if gc.get_freeze_count() > before or time.monotonic() > deadline:
            made.should_exit = True
        else:
            asyncio.get_running_loop().call_later(0.01, end_when_frozen)

    try:
        server.run(made, lambda _: end_when_frozen())
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
        app.close()


def test_spaces_around_the_value_of_a_header_are_no_part_of_it(world: World) -> None:
    asked = b"POST /rpc HTTP/1.1\r\nhost:\t localhost \t\r\ncontent-type:application/json \r\ncontent-length:  38\t\r\n"
    with served(world) as address, socket.create_connection(address, timeout=PATIENCE) as spacious:
        spacious.sendall(asked + b'connection: close \r\n\r\n{"jsonrpc":"2.0","id":1,"method":"ping"}')
        said = read_all(spacious)
        assert said.startswith(b"HTTP/1.1 200 "), said


def test_a_request_for_a_whole_url_is_refused(world: World) -> None:
    with served(world) as address, socket.create_connection(address, timeout=PATIENCE) as proxied:
        proxied.sendall(b"GET http://localhost/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        said = read_all(proxied)
        assert said.startswith(b"HTTP/1.1 400 "), said
        assert b"WRONG_TARGET" in said


def test_a_body_without_a_length_is_cut_at_the_limit(world: World) -> None:
    with served(world, Gate(body_bytes=1000)) as address, socket.create_connection(address, timeout=PATIENCE) as large:
        large.sendall(b"POST /rpc HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                large.sendall(b"64\r\n" + b"x" * 100 + b"\r\n")
        assert read_all(large).startswith(b"HTTP/1.1 413 ")


def test_a_connection_that_asks_nothing_more_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.3)
    with served(world) as address, socket.create_connection(address, timeout=PATIENCE) as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert read_all(idle).startswith(b"HTTP/1.1 200 ")


# --- shutdown ---


def test_told_to_end_the_server_ends_its_streams_and_finishes_what_is_under_way(world: World) -> None:
    world.skill(f"{SKILLS}/job", files={"scripts/wait.py": "import time\ntime.sleep(1)\nprint('done')\n"})
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(RUNS)
    with serve(world) as process:
        session = process.begin()
        answers: list[httpx2.Response] = []
        client = process.connected()

        def ask() -> None:
            asked = {"name": "job", "script": "scripts/wait.py"}
            answers.append(client.post(f"/api/sessions/{session}/run", json=asked))

        accept = {"accept": "text/event-stream"}
        with client, process.client.stream("GET", f"/api/sessions/{session}/events", headers=accept) as stream:
            arriving = messages(stream.iter_lines())
            under_way = threading.Thread(target=ask)
            under_way.start()
            while next(arriving)["event"] != "tool_started":
                pass
            process.process.send_signal(signal.SIGTERM)
            for _ in arriving:  # the stream ends properly
                pass
            under_way.join()
        assert process.process.wait() == 0
        assert (answers[0].status_code, answers[0].json()["stdout"]) == (200, "done\n")
    assert not cut_short(world)


def cut_short(world: World) -> bool:
    """Whether the server had to cut off requests after its time limit."""
    return "timeout graceful shutdown exceeded" in (world.home / "serve.log").read_text()


def test_scripts_run_while_more_than_a_thousand_connections_are_open(world: World) -> None:
    world.skill(f"{SKILLS}/job", files={"scripts/say.py": "print('done')\n"})
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(RUNS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4_000:
        pytest.skip("this machine does not let a process hold so many connections")
    with serve(world) as process, contextlib.ExitStack() as held:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4_000, hard))
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1_100):
            held.enter_context(process.connect())
        session = process.begin()
        asked = {"name": "job", "script": "scripts/say.py"}
        answer = process.client.post(f"/api/sessions/{session}/run", json=asked)
        assert (answer.status_code, answer.json().get("stdout")) == (200, "done\n"), answer.text


@awaited
async def test_open_streams_over_mcp_do_not_keep_the_server_from_ending(world: World) -> None:
    world.skill(f"{SKILLS}/pdf")
    with serve(world) as process:
        async with httpx2.AsyncClient(headers=process.headers, trust_env=False, timeout=PATIENCE) as wire:
            client = {"name": "test", "version": "0"}
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
            accept = {"accept": "application/json, text/event-stream"}
            opened = await wire.post(
                f"{process.url}/mcp",
                json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello},
                headers=accept,
            )
            named = {**accept, "mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
            async with wire.stream("GET", f"{process.url}/mcp", headers=named) as stream:
                assert stream.status_code == 200
                process.process.send_signal(signal.SIGTERM)
                code = await anyio.to_thread.run_sync(process.process.wait, 30)
                assert code == 0
    assert not cut_short(world)


def test_a_port_that_is_taken_is_one_clear_error(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        place = ["--cwd", str(world.project), "--home", str(world.home), "--store", "memory:"]
        code = "from metier.surfaces.cli import main; main()"
        command = [sys.executable, "-c", code, "serve", "--port", port, *place]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
