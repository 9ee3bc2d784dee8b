"""JSON-RPC over pipes: a client that stays is told what changes, and is asked what policy wants to have confirmed."""

import json
import os
import re
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import forking
from metier.app import App
from metier.session.operation import parameters, schema_of
from metier.session.operations import OPERATIONS, Load
from metier.surfaces.rpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHODS, PARSE_ERROR, Dispatcher
from metier.surfaces.web.api import build
from rpc_process import RpcProcess as Client
from worlds import World


@pytest.mark.system
def test_a_client_is_told_what_was_added_and_removed(world: World) -> None:
    world.skill(".agents/skills/one")
    client = Client(world)

    def told(**changes: list[str]) -> None:
        news = {"added": [], "removed": [], "changed": [], **changes}
        assert client.receive() == {"jsonrpc": "2.0", "method": "skills.changed", "params": news}

    def listed() -> list[str]:
        return [skill["name"] for skill in client.call("skills.list")["skills"]]

    assert listed() == ["one"]
    world.skill(".agents/skills/two")
    told(added=["two"])
    assert listed() == ["one", "two"]
    (world.project / ".agents/skills/one/SKILL.md").unlink()
    told(removed=["one"])
    client.end()


def test_every_method_is_on_the_page_and_no_other() -> None:
    page = (Path(__file__).parents[3] / "docs" / "rpc.md").read_text()
    assert set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", page, re.MULTILINE)) == {
        *METHODS,
        *(f"session.{name}" for name in OPERATIONS),
    }
    for name, kind in OPERATIONS.items():
        (row,) = re.findall(rf"^\| `session\.{name}` \| (.*)\|$", page, re.MULTILINE)
        named = re.findall(r"`(\w+)(\??)`", row.split("(or")[0] + row.partition(")")[2])
        required = schema_of(kind)["required"]
        expected = {"args" if key == "arguments" and name == "call" else key for key in parameters(kind)}
        assert {key for key, _ in named} == expected, name
        assert {key for key, maybe in named if not maybe} == set(required), name


@pytest.mark.parametrize("profile", ["standard", "remcochat"])
def test_a_list_says_what_it_leaves_out_and_why(world: World, profile: str) -> None:
    roots = (".agents/skills", "~/.agents/skills") if profile == "standard" else (".skills", ".agents/skills")
    for root in roots:
        world.skill(f"{root}/pdf")
    if profile == "standard":
        world.skill(f"{roots[0]}/group/build")
    app = App(world.project, home=world.home, profile=profile, settings={"enabled": True}, store="memory:")
    asked = json.loads(Dispatcher(app).handle('{"jsonrpc": "2.0", "id": 1, "method": "skills.list"}') or "")["result"]
    with TestClient(build(app, watch=False), base_url="http://127.0.0.1") as client:
        page = client.get("/api/skills")
    for listed in (asked, page.json()):
        assert [skill["name"] for skill in listed["skills"]] == ["pdf"]
        (shadowed,) = listed["shadowed"]
        assert shadowed["shadowed_by"] == listed["skills"][0]["path"]
        why = ["folders named build are not searched"] if profile == "standard" else []
        assert [one["detail"] for one in listed["skipped"]] == why
    assert (str(world.project) in page.text) == (profile == "standard"), "this host names no path of the machine"


# --- the session of calls that name none ---


def rpc(world: World, *options: str, env: dict[str, str] | None = None) -> "subprocess.Popen[str]":
    line = [*forking.METIER, "rpc", *options]
    line += ["--cwd", str(world.project), "--home", str(world.home), "--store", f"sqlite:///{world.home}/events.db"]
    return forking.start(line, stdin=-1, stdout=-1, stderr=-1, encoding="utf-8", env={**os.environ, **(env or {})})


def request(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": method, "method": method, "params": params}


# --- whatever arrives ---


def test_an_error_that_nobody_foresaw_is_logged_and_answered_and_the_next_call_works(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.skill(".agents/skills/one")
    client = Dispatcher(App(world.project, home=world.home, store="memory:"))

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a secret detail")

    with monkeypatch.context() as broken:
        broken.setattr(Load, "perform", fail)
        answer = json.loads(client.handle(json.dumps(request("session.load", name="one"))) or "")
    assert answer["error"]["code"] == INTERNAL_ERROR
    assert "secret" not in str(answer)
    assert "a secret detail" in caplog.text
    assert "result" in json.loads(client.handle(json.dumps(request("session.load", name="one"))) or "")


def test_an_id_that_cannot_be_sent_back_is_refused(world: World) -> None:
    client = Dispatcher(App(world.project, home=world.home, store="memory:"))
    for id_ in ('"\\ud800"', "1e999", "NaN", "[1]", "{}"):
        line = client.handle(f'{{"jsonrpc":"2.0","id":{id_},"method":"skills.list"}}') or ""
        answer = json.loads(line, parse_constant=pytest.fail)
        assert answer["id"] is None, id_
        assert answer["error"]["code"] in (INVALID_REQUEST, PARSE_ERROR), id_


@pytest.mark.system
def test_answers_are_utf8_whatever_the_locale_says(world: World) -> None:
    world.skill(".agents/skills/one", description="Größe, 大きさ.")
    with rpc(world, env={"PYTHONIOENCODING": "ascii:strict"}) as process:
        said, trouble = process.communicate(json.dumps(request("skills.list")) + "\n")
    assert process.returncode == 0, trouble
    assert json.loads(said)["result"]["skills"][0]["description"] == "Größe, 大きさ."


# --- a client that is asked ---


LOAD = {"tool": "skill_load", "args": {"name": "one"}}
ASK = '[permissions]\nask = [{ tool = "skill_load" }]\n'


@pytest.fixture
def configured(world: World) -> World:
    world.skill(".agents/skills/one", body="BODY")
    world.configure_user(ASK)
    return world


@pytest.fixture
def client(configured: World) -> Generator[Client, None, None]:
    opened = Client(configured)
    yield opened
    opened.end()


@pytest.mark.system
def test_a_client_that_asks_is_asked_and_its_answer_decides(client: Client, configured: World) -> None:
    other = Client(configured)
    refused = other.call("session.call", **LOAD)
    assert (refused["ok"], "nobody can be asked here" in str(refused)) == (False, True), "it did not say that it asks"
    assert "BODY" in other.call("session.load", name="one")["text"], "the host need not confirm what it names"
    session = client.call("session.create", asks=True)["session_id"]
    for answer, ok in (("once", True), ("no", False), ("always", True)):
        client.send("load", "session.call", **LOAD)
        asked = client.receive()
        assert (asked["jsonrpc"], asked["method"]) == ("2.0", "session.ask")
        params = asked["params"]
        assert (params["session_id"], params["tool"], params["skill_name"]) == (session, "skill_load", "one")
        assert params["choices"] == ["once", "always", "no"]
        client.answer(asked["id"], answer)
        got = client.receive()
        assert (got["id"], got["result"]["ok"]) == ("load", ok)
    said = [frame["answer"] for frame in client.call("session.events") if frame["type"] == "policy_asked"]
    assert said == ["once", "no", "always"]
    answers = configured.home / ".config/metier/permissions.toml"
    assert answers.read_text().count("[[allow]]") == 1
    for one in (client, other):
        assert one.call("session.call", **LOAD)["ok"] is True, "always holds at once, also in another process"
    other.end()


@pytest.mark.system
def test_other_calls_are_answered_while_a_question_is_open(client: Client) -> None:
    client.call("session.create", asks=True)
    client.send("first", "session.call", **LOAD)
    first = client.receive()
    assert [skill["name"] for skill in client.call("skills.list")["skills"]] == ["one"]
    assert client.call("session.search", query="one")["count"] == 1
    client.send("second", "session.call", **LOAD)
    second = client.receive()
    assert second["method"] == "session.ask"
    client.answer(second["id"], "no")
    assert (client.receive()["id"], client.call("session.tools") != []) == ("second", True)
    client.answer(first["id"], "once")
    done = client.receive()
    assert (done["id"], done["result"]["ok"]) == ("first", True)


@pytest.mark.system
def test_anything_but_a_choice_in_time_is_a_no_and_the_next_call_works(client: Client) -> None:
    for number in range(50):
        client.send(number, "session.search", query="one")
    assert [client.receive()["id"] for _ in range(50)] == list(range(50)), (
        "without questions, in the order of the calls"
    )
    client.call("session.create", asks=True)
    for response in (
        {"error": {"code": 1, "message": "no such method"}},
        *({"result": answer} for answer in ({"answer": "sure"}, None, {"answer": ["once"]})),
    ):
        client.send(1, "session.call", **LOAD)
        asked = client.receive()["id"]
        client.write({"jsonrpc": "2.0", "id": asked, **response})
        assert client.receive()["result"]["ok"] is False, response
        client.answer(asked, "once")  # too late
    client.answer("ask-99", "once")
    client.write([{"jsonrpc": "2.0", "id": "x", "result": 1}])
    assert client.call("session.search", query="one")["count"] == 1
    client.call("session.create", asks=True, ask_seconds=1)
    client.send(1, "session.call", **LOAD)
    assert client.receive()["method"] == "session.ask"
    assert client.receive()["result"]["ok"] is False


@pytest.mark.system
def test_the_end_of_the_input_is_a_no_to_every_open_question(client: Client) -> None:
    client.call("session.create", asks=True)
    for number in range(3):
        client.send(number, "session.call", **LOAD)
        assert client.receive()["method"] == "session.ask"
    client.close_input()
    got = [client.receive() for _ in range(3)]
    assert {one["id"] for one in got} == {0, 1, 2}
    assert [one["result"]["ok"] for one in got] == [False] * 3
    assert client.process.wait() == 0


@pytest.mark.system
def test_a_session_keeps_asking_with_the_options_it_was_created_with(client: Client) -> None:
    session = client.call("session.create", asks=True, tools=False)["session_id"]
    client.call("session.create")
    client.send(1, "session.load", session_id=session, name="one")
    asked = client.receive()
    assert asked["params"]["session_id"] == session
    client.answer(asked["id"], "once")
    assert "BODY" in client.receive()["result"]["text"]
    assert client.call("session.tools", session_id=session) == []


def test_over_http_there_is_no_way_to_ask(configured: World) -> None:
    app = App(configured.project, home=configured.home, store="memory:")
    message = {"jsonrpc": "2.0", "id": 1, "method": "session.create", "params": {"asks": True}}
    got = json.loads(Dispatcher(app, "http").handle(json.dumps(message)) or "")
    assert got["error"]["code"] == INVALID_PARAMS
    app.close()
