"""Codelia: a rule that denies a skill holds on every interface, without a question; an answer to remember is a file."""

import asyncio
import json
import os
import pty
import select
import subprocess
import sys
import time
import tomllib
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from starlette.testclient import TestClient

from hosts.asking import metier
from metier.app import App
from metier.errors import PolicyDenied
from metier.policy.decide import Request
from metier.surfaces.mcp.server import McpServer
from metier.surfaces.web.api import build
from rpc_process import RpcProcess
from worlds import World

A, B = {"name": "a"}, {"name": "b"}


@pytest.fixture
def two(world: World) -> World:
    for name in ("a", "b"):
        world.skill(f".agents/skills/{name}", body=f"BODY-{name}")
    return world


@pytest.fixture
def denied(two: World) -> World:
    """A rule of the user denies the first of two skills. This host asks about the second."""
    deny_a(two)
    return two


def deny_a(world: World) -> None:
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[permissions]\ndeny = [{ tool = "skill_load", skill_name = "a" }]\n')


def app(world: World) -> App:
    return App(world.project, profile="codelia", home=world.home, store="memory:")


@pytest.mark.behaviour("C-083", "N-026")
def test_python_http_and_mcp_refuse_a_denied_skill_without_a_question(denied: World) -> None:
    asked: list[str] = []

    def person(request: Request) -> bool:
        asked.append(request.skill_name)
        return True

    session = denied.discover("codelia").session(approve=person)
    path = {"path": str(denied.project / ".agents/skills/a/SKILL.md")}
    texts = [session.call("skill_load", given).text for given in (A, path, B)]
    assert (["BODY-a" in text for text in texts], "BODY-b" in texts[2]) == ([False] * 3, True)
    for load in (lambda: session.load("a"), lambda: session.load(path=path["path"])):
        with pytest.raises(PolicyDenied, match="deny rule"):
            load()
    assert asked == ["b"]
    with TestClient(build(app(denied), watch=False), base_url="http://127.0.0.1") as client:
        address = f"/api/sessions/{client.post('/api/sessions', json={}).json()['session_id']}"
        refused, given = (client.post(f"{address}/call", json={"tool": "skill_load", "args": one}) for one in (A, B))
        assert (refused.json()["ok"], "BODY" in refused.text, "BODY-b" in given.json()["text"]) == (False, False, True)
        by_user = client.post(f"{address}/load", json=A)
        assert by_user.status_code == 403
        assert "deny rule: tool = 'skill_load', skill_name = 'a'" in by_user.json()["error"]["message"]
    questions: list[str] = []

    async def human(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="decline")

    async def call() -> list[str]:
        async with Client(McpServer(app(denied), watch=False), cache=None, elicitation_callback=human) as client:
            return [str((await client.call_tool("skill_load", given)).content) for given in (A, B)]

    texts = asyncio.run(asyncio.wait_for(call(), 60))
    assert not any("BODY" in text for text in texts)
    assert ["nobody approved it" in text for text in texts] == [False, True]
    assert len(questions) == 1
    assert "the skill b?" in questions[0]


@pytest.mark.system
@pytest.mark.behaviour("C-083", "N-026")
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_terminal_is_asked_only_where_no_rule_denies(denied: World, name: str) -> None:
    code, shown = at_terminal(denied, "load", name, "--by", "model", "--profile", "codelia", "--store", "memory:")
    assert "BODY" not in shown
    assert ("Load the skill" in shown, code) == ((False, 1) if name == "a" else (True, 3)), shown


def at_terminal(world: World, *arguments: str) -> tuple[int, str]:
    """Run the command at a terminal, where each question is answered with no: how it ended, and what was shown."""
    ours, theirs = pty.openpty()
    line = [sys.executable, "-c", "from metier.surfaces.cli import main; main()", *arguments]
    env = {**os.environ, "HOME": str(world.home), "TERM": "dumb"}
    process = subprocess.Popen(line, cwd=world.project, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, end = b"", time.monotonic() + 60
    try:
        while select.select([ours], [], [], max(0.0, end - time.monotonic()))[0]:
            shown += os.read(ours, 65_536)
            if shown.endswith(b"[n]: "):
                os.write(ours, b"n\n")
        pytest.fail(f"it did not end: {shown.decode()}")
    except OSError:  # the other side is closed
        return process.wait(), shown.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


class Person:
    """A client of `metier rpc` in a process of its own, who gives one answer to every question."""

    def __init__(self, world: World, answer: str) -> None:
        self.client, self.answer, self.names = RpcProcess(world, "--profile", "codelia"), answer, list[str]()
        self.client.call("session.create", asks=True)

    def load(self, name: str) -> str:
        """What the model gets."""
        self.client.send("load", "session.call", tool="skill_load", args={"name": name})
        while (got := self.client.receive()).get("method") == "session.ask":
            self.names.append(got["params"]["skill_name"])
            self.client.answer(got["id"], self.answer)
        return json.dumps(got["result"])


@pytest.mark.system
@pytest.mark.behaviour("C-083", "C-088", "N-025", "N-026")
def test_a_remembered_answer_is_exactly_one_rule_in_a_file_that_other_processes_obey(two: World) -> None:
    first, second = Person(two, "always"), Person(two, "no")
    assert "BODY-a" in first.load("a")
    file = two.home / ".config/metier/permissions.toml"
    rule = {"tool": "skill_load", "skill_name": "a", "folder": str(two.project / ".agents/skills/a")}
    assert tomllib.loads(file.read_text()) == {"allow": [rule]}
    assert "BODY-a" in second.load("a"), "a process that began before the answer"
    assert "BODY-b" not in second.load("b")
    assert (first.names, second.names) == (["a"], ["b"])
    assert tomllib.loads(file.read_text()) == {"allow": [rule]}, "a no is not remembered"
    deny_a(two)
    third = Person(two, "always")
    assert "BODY" not in third.load("a"), "a denial outranks what was remembered"
    assert third.names == []
    (listed,) = [one for one in metier(two, "policy", "list", "--profile", "codelia")["rules"] if "id" in one]
    metier(two, "policy", "revoke", listed["id"])
    assert tomllib.loads(file.read_text()) == {}
    for person in (first, second, third):
        person.client.end()
