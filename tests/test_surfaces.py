"""Every operation and every field of it, on every surface: a field that is declared once is there everywhere."""

import asyncio
import inspect
import json
from collections.abc import Mapping
from typing import Any

import click
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from starlette.testclient import TestClient

from calling import Run, caller
from mcp_requests import ask
from metier import Session, Skills
from metier.app import App, SessionDefaults
from metier.record.store import Frame
from metier.session.operation import parameters, schema_of
from metier.session.operations import OPERATIONS
from metier.session.options import SessionOptions
from metier.surfaces.cli import cli
from metier.surfaces.cli.session import session_group
from metier.surfaces.mcp.server import McpServer
from metier.surfaces.rpc import INVALID_PARAMS, Dispatcher
from metier.surfaces.web.api import build, endpoints
from worlds import World

FIELDS = [(name, field) for name, kind in OPERATIONS.items() for field in parameters(kind)]

WIRE = {("call", "arguments"): "args"}
"""Where a field has another name in a message: the interface promises `{tool, args}`."""

FULL: Mapping[str, Mapping[str, Any]] = {
    "load": {"name": "one", "arguments": "a b", "parent": "two", "by": "model"},
    "read": {"name": "one", "path": "references/a.md", "by": "model", "raw": True},
    "search": {"query": "one thing", "limit": 1, "scope": "repo", "by": "model"},
    "run": {"name": "one", "script": "scripts/x.sh", "arguments": ["1", "2"], "stdin": "in", "by": "model"},
    "output": {"ref": "skill-000000000000", "start": 2, "end": 3, "grep": "x"},
    "compact": {"budget": 100},
    "invoke": {"message": "/two now"},
    "end_turn": {},
    "call": {"tool": "skill_search", "arguments": {"query": "one"}},
}
"""Recorded operations with every field that can be given at once."""

QUERIES: Mapping[str, Mapping[str, Any]] = {
    "prompt": {"message": "two", "budget": 900, "files": ["src/app.py"]},
    "system_prompt": {"base": "BASE", "message": "two", "budget": 900, "files": ["docs/x.md"]},
    "tools": {},
    "commands": {},
    "may_use": {"tool": "Bash", "command": "rm -rf /"},
}
"""What only shows something, with every field."""


@pytest.fixture
def run(library: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(library, capsys, monkeypatch)


@pytest.fixture
def library(world: World) -> World:
    for name in ("one", "two"):
        files = {"references/a.md": "a reference\n", "scripts/x.sh": "#!/bin/sh\n"}
        world.skill(f".agents/skills/{name}", description=f"Does {name} thing.", files=files)
    world.skill(".agents/skills/bound", paths="src/*.py")
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[permissions]\ndeny = [{tool = "Bash", command = "rm *"}, {tool = "skill_run"}]\n')
    return world


def app_of(world: World, surface: str = "python") -> App:
    return App(world.project, home=world.home, store="memory:", surface=surface)


# --- four surfaces that take an operation as data ---


def by_python(world: World, name: str, given: Mapping[str, Any]) -> tuple[object, list[Frame]]:
    session = app_of(world).session()
    kind = OPERATIONS[name]
    operation = kind.from_dict(given)
    try:
        return operation.data(session.perform(operation)), session.events
    except Exception as error:
        return str(error), session.events


def by_rpc(world: World, name: str, given: Mapping[str, Any]) -> tuple[object, list[Frame]]:
    client = Dispatcher(app_of(world))
    params = {WIRE.get((name, key), key): value for key, value in given.items()}
    said = client.handle(json.dumps({"jsonrpc": "2.0", "id": 1, "method": f"session.{name}", "params": params}))
    answer = json.loads(said or "{}")
    frames = client.app.session(client.own).events if client.own else []
    return answer.get("result", answer.get("error")), frames


def by_http(world: World, name: str, given: Mapping[str, Any]) -> tuple[object, list[Frame]]:
    app = app_of(world)
    with TestClient(build(app, watch=False), base_url="http://127.0.0.1") as client:
        session_id = client.post("/api/sessions", json={}).json()["session_id"]
        body = {WIRE.get((name, key), key): value for key, value in given.items()}
        answer = client.post(f"/api/sessions/{session_id}/{name}", json=body).json()
        return answer, app.session(session_id).events


def by_mcp(world: World, name: str, given: Mapping[str, Any]) -> tuple[object, list[Frame]]:
    app = app_of(world)

    async def talk() -> object:
        async with Client(McpServer(app, watch=False, session_id="mine")) as client:
            params = {WIRE.get((name, key), key): value for key, value in given.items()}
            try:
                return await ask(client, f"metier/{name}", **params)
            except MCPError as error:
                return {"message": error.error.message, "code": error.error.code}

    return asyncio.run(talk()), app.session("mine").events


SURFACES = {"python": by_python, "rpc": by_rpc, "http": by_http, "mcp": by_mcp}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("name", FULL)
def test_every_field_of_a_recorded_operation_arrives(library: World, surface: str, name: str) -> None:
    _, frames = SURFACES[surface](library, name, FULL[name])
    called = [frame for frame in frames if frame["type"] == "session_called"]
    assert [(frame["operation"], frame["args"]) for frame in called] == [(name, FULL[name])]


@pytest.mark.parametrize("surface", [name for name in SURFACES if name != "python"])
@pytest.mark.parametrize("name", QUERIES)
def test_every_field_of_a_query_has_its_effect(library: World, surface: str, name: str) -> None:
    expected, _ = by_python(library, name, QUERIES[name])
    answer, _ = SURFACES[surface](library, name, QUERIES[name])
    if isinstance(answer, dict) and surface == "mcp":
        answer = {key: value for key, value in answer.items() if key not in ("resultType", "_meta")}
        answer = answer[name] if isinstance(expected, list) else answer
    assert answer == expected
    if name == "prompt":
        assert isinstance(expected, dict)
        assert "bound" in expected["text"]
        less, _ = SURFACES[surface](library, name, {**QUERIES[name], "files": ["other.txt"]})
        assert isinstance(less, dict)
        assert "bound" not in less["text"]
    if name == "may_use":
        assert expected == {"allowed": False}


@pytest.mark.parametrize("surface", [name for name in SURFACES if name != "python"])
@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_field_of_the_wrong_type_is_refused_by_its_name(library: World, surface: str, name: str, field: str) -> None:
    wrong: object = {"a": 1} if field != "arguments" or name != "call" else "text"
    given = {**dict.fromkeys(schema_of(OPERATIONS[name])["required"], "x"), field: wrong}
    answer, frames = SURFACES[surface](library, name, given)
    assert WIRE.get((name, field), field) in json.dumps(answer)
    assert [frame for frame in frames if frame["type"] == "session_called"] == []
    if surface == "rpc":
        assert isinstance(answer, dict)
        assert answer["code"] == INVALID_PARAMS


@pytest.mark.parametrize("surface", [name for name in SURFACES if name != "python"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_misspelled_field_is_refused_by_its_name(library: World, surface: str, name: str) -> None:
    if (surface, name) == ("http", "call"):
        return  # its body is the one that the interface promises, and others may join it
    given = {**dict.fromkeys(schema_of(OPERATIONS[name])["required"], "x"), "misspelled": 1}
    answer, _ = SURFACES[surface](library, name, given)
    assert "misspelled" in json.dumps(answer)


# --- Python, the documents and the command line ---


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_session_has_a_method_with_every_field_and_a_twin(name: str) -> None:
    method = inspect.signature(getattr(Session, name))
    spelling = {"wire"}  # how tools are named; every other surface decides that itself
    assert set(method.parameters) - {"self"} - spelling == set(parameters(OPERATIONS[name]))
    if name not in ("tools", "commands", "may_use"):  # these touch nothing that could be waited for
        twin = getattr(Session, f"a{name}")
        assert inspect.iscoroutinefunction(twin)
        assert inspect.signature(twin).parameters == method.parameters


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_http_document_has_every_field(name: str) -> None:
    (endpoint,) = [one for one in endpoints() if one.path == f"/api/sessions/{{session_id}}/{name}"]
    body = endpoint.body or {}
    assert list(body["properties"]) == [WIRE.get((name, field), field) for field in parameters(OPERATIONS[name])]


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_command_line_has_every_field(name: str) -> None:
    top = cli.get_command(click.Context(cli), name)
    command = top or session_group.get_command(click.Context(session_group), name.replace("_", "-"))
    assert command is not None
    fields = {"write" if field == "write_paths" else field for field in parameters(OPERATIONS[name])}  # one option
    assert fields <= {str(one.name) for one in command.params}


# --- what a session begins with ---

BEGUN: SessionDefaults = {"only": ["one", "two"], "preload": ["one"], "has_read_tool": False}


def begun(session: Session) -> tuple[object, ...]:
    started = session.events[0]
    shown = "<preloaded_skills>" in session.system_prompt()
    return started["only"], started["has_read_tool"], shown, [skill.name for skill in session.visible()]


EXPECTED = (["one", "two"], False, True, ["one", "two"])


def test_a_session_of_python_begins_so(library: World) -> None:
    assert begun(app_of(library).session(**BEGUN)) == EXPECTED
    assert begun(library.discover().session(**BEGUN)) == EXPECTED


def test_a_session_over_json_rpc_begins_so_and_goes_on_so(library: World) -> None:
    app = app_of(library)
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session.create", "params": BEGUN})
    session_id = json.loads(Dispatcher(app).handle(line) or "")["result"]["session_id"]
    session = app.session(session_id)
    assert begun(session) == EXPECTED
    other = App(library.project, home=library.home, store=app.store)
    assert other.session(session_id).only == {"one", "two"}, "in another process, too"
    assert other.session(session_id).has_read_tool is False


def test_a_session_over_http_begins_so(library: World) -> None:
    app = app_of(library)
    with TestClient(build(app, watch=False), base_url="http://127.0.0.1") as client:
        session_id = client.post("/api/sessions", json=BEGUN).json()["session_id"]
        assert client.post("/api/sessions", json={"onyl": []}).status_code == 400
    assert begun(app.session(session_id)) == EXPECTED


def test_a_session_of_the_command_line_begins_so_and_goes_on_so(library: World, run: Run) -> None:
    options = ["--only", "one", "--only", "two", "--preload", "one", "--no-read-tool", "--session", "mine"]
    assert run("prompt", "--full", *options, "--json").code == 0
    started = run("events", "--session", "mine", "--json").out.splitlines()[0]
    assert (json.loads(started)["only"], json.loads(started)["has_read_tool"]) == (["one", "two"], False)
    assert "bound" not in run("prompt", "--session", "mine").out


@pytest.mark.parametrize("command", ["mcp", "rpc", "serve"])
def test_a_server_gives_its_sessions_what_they_begin_with(command: str) -> None:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    assert {"only", "preload", "no_read_tool"} <= {str(one.name) for one in found.params}


def test_the_sessions_of_a_server_begin_with_its_defaults(library: World) -> None:
    app = app_of(library)
    app.defaults.update(only=["one", "two"], preload=["one"], has_read_tool=False)
    assert begun(app.session()) == EXPECTED


def test_the_options_of_a_session_are_one_type() -> None:
    assert set(SessionOptions.__annotations__) == set(inspect.signature(Skills.session).parameters) - {"self"}
