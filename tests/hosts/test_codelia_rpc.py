"""Codelia's methods over JSON-RPC: the catalog of a directory, its state, and what is remembered beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from metier.app import App
from metier.surfaces.rpc import Dispatcher
from worlds import World

SKILLS = ".agents/skills"


@pytest.fixture
def client(world: World) -> Dispatcher:
    world.skill(f"{SKILLS}/notes")
    app = App(world.project, profile="codelia", home=world.home, store="memory:", surface="rpc")
    return Dispatcher(app)


def ask(client: Dispatcher, method: str, **params: Any) -> Any:
    answer = json.loads(
        client.handle(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})) or ""
    )
    assert "error" not in answer, answer
    return answer["result"]


@pytest.mark.behaviour("C-093")
def test_the_list_has_skills_and_errors_in_codelias_shapes(client: Dispatcher, world: World) -> None:
    world.skill(f"{SKILLS}/broken", text="no frontmatter")
    listed = ask(client, "skills.list", force_reload=True)
    assert [skill["name"] for skill in listed["skills"]] == ["notes"]
    assert {"id", "name", "description", "path", "dir", "scope", "mtime_ms"} <= listed["skills"][0].keys()
    (error,) = listed["errors"]
    assert error.keys() == {"path", "message"}
    assert error["path"].endswith("broken/SKILL.md")
    assert error["message"]


@pytest.mark.behaviour("C-094", "C-097")
def test_a_directory_has_a_catalog_of_its_own(client: Dispatcher, world: World, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    World(world.home, other).skill(f"{SKILLS}/elsewhere")
    here = ask(client, "skills.list")
    assert [skill["name"] for skill in ask(client, "skills.list", cwd=str(other))["skills"]] == ["elsewhere"]
    assert ask(client, "skills.list") == here
    assert [skill["name"] for skill in here["skills"]] == ["notes"]


@pytest.mark.behaviour("C-095")
def test_only_a_forced_reload_sees_a_skill_that_was_added(client: Dispatcher, world: World) -> None:
    ask(client, "skills.list")
    world.skill(f"{SKILLS}/later")
    assert [skill["name"] for skill in ask(client, "skills.list")["skills"]] == ["notes"]
    assert [skill["name"] for skill in ask(client, "skills.list", force_reload=True)["skills"]] == ["later", "notes"]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("nonsense", -32700),
        ("[]", -32600),
        ("3", -32600),
        ('{"jsonrpc":"1.0","id":1,"method":"skills.list"}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"nothing"}', -32601),
        ('{"jsonrpc":"2.0","id":1,"method":"skills.list","params":[1]}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"skills.list","params":{"cwd":3}}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"session.load","params":{"name":"nope"}}', -32000),
        ("[" * 100_000, -32700),
    ],
)
def test_a_message_that_cannot_be_answered_gets_its_error_code(client: Dispatcher, sent: str, code: int) -> None:
    assert json.loads(client.handle(sent) or "")["error"]["code"] == code


def test_notifications_get_no_answer_and_batches_one(client: Dispatcher) -> None:
    note = {"jsonrpc": "2.0", "method": "skills.list"}
    assert client.handle(json.dumps(note)) is None
    assert client.handle(json.dumps([note, note])) is None
    answers = json.loads(client.handle(json.dumps([note, note | {"id": 7}, {"id": 8}])) or "")
    assert [answer["id"] for answer in answers] == [7, 8]
