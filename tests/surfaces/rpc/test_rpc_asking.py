"""JSON-RPC: a client that says so is asked what policy wants to have confirmed, and other calls do not wait for it."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from metier.app import App
from metier.surfaces.rpc import INVALID_PARAMS, Dispatcher
from rpc_process import RpcProcess as Client
from worlds import World

LOAD = {"tool": "skill_load", "args": {"name": "one"}}
ASK = '[permissions]\nask = [{ tool = "skill_load" }]\n'


@pytest.fixture
def configured(world: World) -> World:
    world.skill(".agents/skills/one", body="BODY")
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(ASK)
    return world


@pytest.fixture
def client(configured: World) -> Generator[Client, None, None]:
    opened = Client(configured)
    yield opened
    opened.end()


def answers(world: World) -> Path:
    return world.home / ".config/metier/permissions.toml"


def test_a_client_that_asks_is_asked_and_its_answer_decides(client: Client) -> None:
    session = client.call("session.create", asks=True)["session_id"]
    for answer, ok in (("once", True), ("no", False), ("once", True)):
        client.send("load", "session.call", **LOAD)
        asked = client.receive()
        assert (asked["jsonrpc"], asked["method"]) == ("2.0", "session.ask")
        params = asked["params"]
        assert (params["session_id"], params["tool"], params["skill_name"]) == (session, "skill_load", "one")
        assert params["choices"] == ["once", "always", "no"]
        client.answer(asked["id"], answer)
        got = client.receive()
        assert got["id"] == "load"
        assert got["result"]["ok"] is ok
    said = [frame["answer"] for frame in client.call("session.events") if frame["type"] == "policy_asked"]
    assert said == ["once", "no", "once"]


def test_always_holds_in_another_process_at_once(client: Client, configured: World) -> None:
    other = Client(configured)
    assert other.call("session.call", **LOAD)["ok"] is False
    client.call("session.create", asks=True)
    client.send(1, "session.call", **LOAD)
    client.answer(client.receive()["id"], "always")
    assert client.receive()["result"]["ok"] is True
    assert answers(configured).read_text().count("[[allow]]") == 1
    assert other.call("session.call", **LOAD)["ok"] is True
    assert client.call("session.call", **LOAD)["ok"] is True, "it is not asked again"
    other.end()


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


def test_without_questions_answers_come_in_the_order_of_the_calls(client: Client) -> None:
    for number in range(50):
        client.send(number, "session.search", query="one")
    assert [client.receive()["id"] for _ in range(50)] == list(range(50))


@pytest.mark.parametrize(
    "response",
    [
        {"error": {"code": 1, "message": "no such method"}},
        {"result": {"answer": "sure"}},
        {"result": None},
        {"result": {"answer": ["once"]}},
    ],
)
def test_anything_but_a_choice_is_a_no_and_the_next_call_works(client: Client, response: dict[str, Any]) -> None:
    client.call("session.create", asks=True)
    client.send(1, "session.call", **LOAD)
    asked = client.receive()["id"]
    client.write({"jsonrpc": "2.0", "id": asked, **response})
    assert client.receive()["result"]["ok"] is False
    client.answer(asked, "once")  # too late
    client.answer("ask-99", "once")
    client.write([{"jsonrpc": "2.0", "id": "x", "result": 1}])
    assert client.call("session.search", query="one")["count"] == 1


def test_no_answer_in_time_is_a_no(client: Client) -> None:
    client.call("session.create", asks=True, ask_seconds=1)
    client.send(1, "session.call", **LOAD)
    assert client.receive()["method"] == "session.ask"
    assert client.receive()["result"]["ok"] is False


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


def test_a_session_keeps_asking_with_the_options_it_was_created_with(client: Client) -> None:
    session = client.call("session.create", asks=True, tools=False)["session_id"]
    client.call("session.create")
    client.send(1, "session.load", session_id=session, name="one")
    asked = client.receive()
    assert asked["params"]["session_id"] == session
    client.answer(asked["id"], "once")
    assert "BODY" in client.receive()["result"]["text"]
    assert client.call("session.tools", session_id=session) == []


def test_a_client_that_does_not_say_so_is_not_asked(client: Client) -> None:
    refused = client.call("session.call", **LOAD)
    assert refused["ok"] is False
    assert "nobody can be asked here" in str(refused)
    assert "BODY" in client.call("session.load", name="one")["text"], "what the host names is its own yes"


def test_over_http_there_is_no_way_to_ask(configured: World) -> None:
    app = App(configured.project, home=configured.home, store="memory:")
    message = {"jsonrpc": "2.0", "id": 1, "method": "session.create", "params": {"asks": True}}
    got = json.loads(Dispatcher(app, "http").handle(json.dumps(message)) or "")
    assert got["error"]["code"] == INVALID_PARAMS
    app.close()
