"""JSON-RPC over pipes: a client that stays is told what changes, and sees it on its next call."""

import json
import os
import re
import subprocess
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

import forking
from metier.app import App
from metier.session.operation import parameters, schema_of
from metier.session.operations import OPERATIONS, Load
from metier.surfaces.rpc import METHODS, Dispatcher
from metier.surfaces.rpc.messages import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from worlds import World


@pytest.fixture
def pipe(world: World) -> Generator[subprocess.Popen[str], None, None]:
    world.skill(".agents/skills/one")
    line = [*forking.METIER, "rpc", "--store", "memory:"]
    line += ["--cwd", str(world.project), "--home", str(world.home)]
    with forking.start(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0


def send(pipe: subprocess.Popen[str], method: str) -> None:
    assert pipe.stdin is not None
    pipe.stdin.write(json.dumps({"jsonrpc": "2.0", "id": method, "method": method}) + "\n")
    pipe.stdin.flush()


def receive(pipe: subprocess.Popen[str], key: str) -> dict[str, Any]:
    """The next message that has the key; others are passed over."""
    assert pipe.stdout is not None
    while key not in (message := json.loads(pipe.stdout.readline())):
        pass
    return message


def test_a_client_is_told_what_was_added_removed_and_changed(world: World, pipe: subprocess.Popen[str]) -> None:
    send(pipe, "skills.list")
    assert [skill["name"] for skill in receive(pipe, "result")["result"]["skills"]] == ["one"]
    world.skill(".agents/skills/two")
    told = receive(pipe, "method")
    assert told == {
        "jsonrpc": "2.0",
        "method": "skills.changed",
        "params": {"added": ["two"], "removed": [], "changed": []},
    }
    send(pipe, "skills.list")
    assert [skill["name"] for skill in receive(pipe, "result")["result"]["skills"]] == ["one", "two"]
    (world.project / ".agents/skills/one/SKILL.md").unlink()
    assert receive(pipe, "method")["params"] == {"added": [], "removed": ["one"], "changed": []}


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


# --- the session of calls that name none ---


def rpc(world: World, *options: str, env: dict[str, str] | None = None) -> "subprocess.Popen[str]":
    line = [*forking.METIER, "rpc", *options]
    line += ["--cwd", str(world.project), "--home", str(world.home), "--store", f"sqlite:///{world.home}/events.db"]
    return forking.start(line, stdin=-1, stdout=-1, stderr=-1, encoding="utf-8", env={**os.environ, **(env or {})})


def talk(world: World, *messages: dict[str, object], options: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The answers of one process to messages, in order."""
    with rpc(world, *options) as process:
        said, trouble = process.communicate("".join(json.dumps(one) + "\n" for one in messages))
    assert process.returncode == 0, trouble
    return [json.loads(line) for line in said.split("\n") if line]


def request(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": method, "method": method, "params": params}


def test_a_named_session_is_created_and_the_next_process_continues_it(world: World) -> None:
    world.skill(".agents/skills/one", body="# The body of one\n")
    named = ["--session", "mine"]
    _, state = talk(world, request("session.load", name="one"), request("session.state"), options=named)
    assert state["result"]["id"] == "mine"
    state, kept = talk(world, request("session.state"), request("session.compact"), options=named)
    assert state["result"]["id"] == "mine"
    assert "The body of one" in kept["result"]["text"]
    named_by_call, unnamed = talk(world, request("session.compact", session_id="mine"), request("session.compact"))
    assert "The body of one" in named_by_call["result"]["text"]
    assert unnamed["result"]["text"] == ""  # without the option, a new session


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


@pytest.mark.parametrize("id_", ['"\\ud800"', "1e999", "NaN", "[1]", "{}"])
def test_an_id_that_cannot_be_sent_back_is_refused(world: World, id_: str) -> None:
    client = Dispatcher(App(world.project, home=world.home, store="memory:"))
    line = client.handle(f'{{"jsonrpc":"2.0","id":{id_},"method":"skills.list"}}') or ""
    answer = json.loads(line, parse_constant=pytest.fail)
    assert answer["id"] is None
    assert answer["error"]["code"] in (INVALID_REQUEST, PARSE_ERROR)


def test_answers_are_utf8_whatever_the_locale_says(world: World) -> None:
    world.skill(".agents/skills/one", description="Größe, 大きさ.")
    with rpc(world, env={"PYTHONIOENCODING": "ascii:strict"}) as process:
        said, trouble = process.communicate(json.dumps(request("skills.list")) + "\n")
    assert process.returncode == 0, trouble
    assert json.loads(said)["result"]["skills"][0]["description"] == "Größe, 大きさ."
