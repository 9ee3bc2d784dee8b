"""The whole server in a process of its own: MCP beside the API, live events, connections, and shutdown."""

import contextlib
import json
import resource
import signal
import socket
import subprocess
import threading

import httpx2
import pytest
from processes import JsonObject, messages, running, serve

import forking
from metier.app import App
from metier.surfaces.web import server
from metier.surfaces.web.guard import Gate
from patience import PATIENCE
from worlds import World

pytestmark = pytest.mark.system

SKILLS = ".agents/skills"
RUNS = '[permissions]\nallow = [{tool = "skill_run"}, {tool = "run_unsandboxed"}]\n'
"""Scripts run in the sandbox, and on a machine without one they run, too."""


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


def test_a_body_without_a_length_is_cut_and_an_idle_connection_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.3)

    def read_all(connection: socket.socket) -> bytes:
        said = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                said += piece
        return said

    app = App(world.project, home=world.home, store="memory:")
    with running(app, Gate(body_bytes=1000)) as (_, url):
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=PATIENCE) as large:
            large.sendall(b"POST /rpc HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                for _ in range(20):
                    large.sendall(b"64\r\n" + b"x" * 100 + b"\r\n")
            assert read_all(large).startswith(b"HTTP/1.1 413 ")
        with socket.create_connection(address, timeout=PATIENCE) as idle:
            idle.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert read_all(idle).startswith(b"HTTP/1.1 200 ")


def may_run(world: World) -> None:
    world.skill(f"{SKILLS}/job", files={"scripts/wait.py": "import time\ntime.sleep(1)\nprint('done')\n"})
    world.configure_user(RUNS)


JOB = {"name": "job", "script": "scripts/wait.py"}


def test_told_to_end_the_server_ends_its_streams_and_finishes_what_is_under_way(world: World) -> None:
    may_run(world)
    with serve(world) as process:
        session = process.begin()
        answers: list[httpx2.Response] = []
        client = process.connected()
        under_way = threading.Thread(
            target=lambda: answers.append(client.post(f"/api/sessions/{session}/run", json=JOB))
        )
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
        accept = {"accept": "application/json, text/event-stream"}
        begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        mcp = process.client.post("/mcp", json=begin, headers=accept)
        named = {**accept, "mcp-session-id": mcp.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        events = {"accept": "text/event-stream"}
        with (
            process.client.stream("GET", f"/api/sessions/{session}/events", headers=events) as stream,
            process.client.stream("GET", "/mcp", headers=named) as other,
        ):
            assert other.status_code == 200
            arriving = messages(stream.iter_lines())
            under_way.start()
            while next(arriving)["event"] != "tool_started":
                pass
            process.process.send_signal(signal.SIGTERM)
            for _ in arriving:  # the stream ends properly
                pass
            under_way.join()
        assert process.process.wait() == 0
        assert (answers[0].status_code, answers[0].json()["stdout"]) == (200, "done\n")
    assert "timeout graceful shutdown exceeded" not in (world.home / "serve.log").read_text()


def test_scripts_run_while_more_than_a_thousand_connections_are_open(world: World) -> None:
    may_run(world)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4_000:
        pytest.skip("this machine does not let a process hold so many connections")
    with serve(world) as process, contextlib.ExitStack() as held:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4_000, hard))
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1_100):
            held.enter_context(process.connect())
        answer = process.client.post(f"/api/sessions/{process.begin()}/run", json=JOB)
        assert (answer.status_code, answer.json().get("stdout")) == (200, "done\n"), answer.text


def test_with_json_the_address_and_the_link_are_one_object(world: World) -> None:
    command = [
        *forking.METIER,
        "serve",
        "--json",
        "--port",
        "0",
        "--cwd",
        str(world.project),
        "--home",
        str(world.home),
    ]
    with forking.start(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            text += process.stdout.readline()
        process.terminate()
    told = json.loads(text)
    assert told["address"].startswith("http://127.0.0.1:")
    assert told["link"].startswith(told["address"])


def test_a_port_that_is_taken_is_one_clear_error(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        place = ["--cwd", str(world.project), "--home", str(world.home), "--store", "memory:"]
        done = forking.run([*forking.METIER, "serve", "--port", port, *place], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip().count("\n")) == (2, 0)
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
