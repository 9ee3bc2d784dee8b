"""Numbers that JSON does not have are refused with a clear error on every way in, and are in no answer."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

import forking
from metier.app import App
from metier.catalog.modes import Modes
from metier.errors import ConfigError, InstallError, StoreError
from metier.files.json_text import infinite_in, parse_json
from metier.hosts.trust import trusted_projects
from metier.record.store.memory import MemoryStore
from metier.sources import remote_skill
from metier.sources.install import fetch, lock
from metier.surfaces.rpc import Dispatcher
from metier.values.skill import Diagnostic
from test_nasty_messages import HELLO, Pipe, pipe, place, serving
from worlds import World

NUMBERS = ["Infinity", "-Infinity", "NaN", "1e999", "-1e999"]
CLEAR = ("is not a number in JSON", "is too large", "NaN", "finite")
"""What a clear error says, in the words of one door or another."""


@pytest.fixture(params=NUMBERS)
def number(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def skilled(world: World) -> World:
    world.skill(".agents/skills/notes", metadata={"a": float("inf")})
    return world


def is_clear(text: str) -> bool:
    return any(words in text for words in CLEAR)


def read(answer: str) -> Any:
    """The answer, as a strict parser reads it."""
    return parse_json(answer)


def test_the_parser_refuses_them_wherever_they_are(number: str) -> None:
    for text in (number, f"[{number}]", f'{{"a": {{"b": [1, {number}]}}}}', f'{{"a": 1, "a": {number}}}'):
        with pytest.raises(ValueError, match=r"not a number in JSON|too large"):
            parse_json(text)
    assert parse_json('{"a": [1, 2.5, -1e308, 1e-999]}') == {"a": [1, 2.5, -1e308, 0.0]}
    assert infinite_in({"a": ({}, [{"b": [float(number.replace("1e999", "inf"))]}])[1]})
    assert not infinite_in({"a": [1, 2.5, "Infinity", None]})


@pytest.mark.system
def test_http_and_json_rpc_over_it(skilled: World) -> None:
    with serving(skilled) as client:
        session = client.post("/api/sessions").json()["session_id"]
        for number in NUMBERS:
            bodies = {
                f"/api/sessions/{session}/call": f'{{"tool": "skill_load", "args": {{"name": {number}}}}}',
                f"/api/sessions/{session}/search": f'{{"query": "notes", "limit": {number}}}',
                "/api/sessions": f'{{"preload": [{number}]}}',
                "/api/model": f'{{"provider": "openai", "model": {number}}}',
            }
            for path, body in bodies.items():
                answer = client.request("PUT" if path == "/api/model" else "POST", path, content=body)
                assert answer.status_code == 400, path
                assert is_clear(read(answer.text)["error"]["message"]), answer.text
            message = f'{{"jsonrpc": "2.0", "id": 1, "method": "session.load", "params": {{"name": {number}}}}}'
            error = read(client.post("/rpc", content=message).text)["error"]
            assert (error["code"], is_clear(error["message"])) == (-32700, True)
            mcp_over_http(client, number)
        assert read(client.get("/api/skills").text)["skills"][0]["name"] == "notes"


def mcp_over_http(client: httpx2.Client, number: str) -> None:
    accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    hello = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO})
    opened = client.post("/mcp", content=hello, headers=accept)
    named = {**accept, "mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    client.post("/mcp", content='{"jsonrpc": "2.0", "method": "notifications/initialized"}', headers=named)
    arguments = f'{{"name": "skill_load", "arguments": {{"name": "notes", "x": {number}}}}}'
    call = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {arguments}}}'
    said = client.post("/mcp", content=call, headers=named).text
    (data,) = (line.removeprefix("data: ") for line in said.splitlines() if line.startswith("data: {"))
    error = read(data)["error"]
    assert (error["code"], is_clear(error["message"])) == (-32602, True)


@pytest.mark.system
def test_json_rpc_and_mcp_on_a_pipe(skilled: World) -> None:
    def ask(server: Pipe, line: str) -> Any:
        return next(server.send(line.encode()))["error"]

    with pipe(skilled, "rpc") as server:
        for number in NUMBERS:
            error = ask(server, f'{{"jsonrpc": "2.0", "id": 1, "method": "skills.list", "params": {{"a": {number}}}}}')
            assert (error["code"], is_clear(error["message"])) == (-32700, True)
    with pipe(skilled, "mcp") as server:
        server.ask({"method": "initialize", "params": HELLO})
        for number in NUMBERS:
            for method, params in (
                ("tools/call", f'{{"name": "skill_load", "arguments": {{"name": {number}}}}}'),
                ("metier/search", f'{{"query": "notes", "limit": {number}}}'),
                ("prompts/get", f'{{"name": "notes", "_meta": {{"x": {number}}}}}'),
            ):
                error = ask(server, f'{{"jsonrpc": "2.0", "id": 1, "method": "{method}", "params": {params}}}')
                assert (error["code"], is_clear(error["message"])) == (-32602, True), (method, error)


@pytest.mark.system
def test_the_command_line(skilled: World, number: str) -> None:
    for arguments, given in ((f'{{"name": {number}}}', ""), ("-", f'{{"name": "notes", "x": [{number}]}}')):
        command = [*forking.METIER, "session", "call", "skill_load", arguments, *place(skilled)]
        done = forking.run(command, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert is_clear(done.stderr), done.stderr


def test_a_tool_call_of_a_model(skilled: World) -> None:
    session = skilled.discover().session(store=MemoryStore())
    for value in (float("inf"), float("nan"), [{"a": float("-inf")}]):
        result = session.call("skill_load", {"name": "notes", "x": value})
        assert (result.ok, result.code, is_clear(result.text)) == (False, "INVALID_PARAM", True), result.text
        json.dumps(result.as_dict(), allow_nan=False)


def test_files_of_the_user_and_of_the_project(world: World, number: str) -> None:
    folder = world.home / ".config" / "metier"
    folder.mkdir(parents=True)
    (folder / "trust.json").write_text(f'{{"projects": ["/"], "x": {number}}}')
    notes: list[Diagnostic] = []
    assert trusted_projects(str(folder), notes) == {}
    (folder / "skills.json").write_text(f'{{"modes": {{"/a": "off"}}, "x": {number}}}')
    modes = Modes(str(folder), str(world.project))
    assert modes.by_level["user"] == {}
    assert all(is_clear(note.message) for note in (*notes, *modes.diagnostics))
    root = world.project / "skills"
    Path(lock.location(str(root))).write_text(f'{{"version": 1, "skills": {{}}, "x": {number}}}')
    with pytest.raises(ConfigError, match="cannot be read"):
        lock.read(str(root))


def test_an_index_a_record_and_a_skill_of_another_server(number: str) -> None:
    with pytest.raises(InstallError, match="not an index"):
        fetch.find(f'{{"$schema": "{fetch.SCHEMA}", "skills": [], "x": {number}}}'.encode(), "https://x.example/", "")
    store = MemoryStore()
    with pytest.raises(StoreError, match="not valid JSON"):
        store.import_lines([f'{{"state": "a", "session_id": "s", "version": 1, "value": {number}}}'])
    entry = {
        "uri": "skill://a/SKILL.md",
        "frontmatter": {"name": "a", "metadata": {"x": [float(number.replace("1e999", "inf"))]}},
        "resources": [],
    }
    with pytest.raises(remote_skill.RemoteSkillRefused, match="NaN or Infinity"):
        remote_skill.parse("server", entry)


def test_the_dispatcher_alone(skilled: World, number: str) -> None:
    app = App(skilled.project, home=skilled.home, store="memory:")
    try:
        said = Dispatcher(app, "rpc").handle(f'[{{"jsonrpc": "2.0", "id": {number}, "method": "skills.list"}}]')
        assert said is not None
        assert is_clear(read(said)["error"]["message"])
    finally:
        app.close()


def test_no_module_reads_json_from_outside_in_another_way() -> None:
    """What Metier wrote itself, and a model's arguments, which the session checks, are read as they are."""
    source = Path(sys.modules["metier"].__file__ or "").parent
    using = {str(file.relative_to(source)) for file in source.rglob("*.py") if "json.loads(" in file.read_text()}
    assert using == {
        "adapters/conversation.py",
        "catalog/snapshot.py",
        "surfaces/chat/engine.py",
        "surfaces/chat/history.py",
        "record/store/seal.py",
        "record/store/values.py",
        "replay/doubles.py",
        "surfaces/rpc/pipe.py",
        "running/sandbox/container.py",
        "running/sandbox/probe.py",
        "running/scripts.py",
        "surfaces/web/api.py",
        "surfaces/web/pages/activity.py",
    }
