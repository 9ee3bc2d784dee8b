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


@pytest.mark.behaviour("C-093", "C-094", "C-095", "C-097")
def test_the_list_has_the_shapes_of_codelia_and_each_directory_a_catalog_that_a_forced_reload_renews(
    client: Dispatcher, world: World, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    World(world.home, other).skill(f"{SKILLS}/elsewhere")

    def listed(**params: Any) -> list[str]:
        return [skill["name"] for skill in ask(client, "skills.list", **params)["skills"]]

    assert (listed(), listed(cwd=str(other)), listed()) == (["notes"], ["elsewhere"], ["notes"])
    world.skill(f"{SKILLS}/later")
    world.skill(f"{SKILLS}/broken", text="no frontmatter")
    assert listed() == ["notes"]
    found = ask(client, "skills.list", force_reload=True)
    assert [skill["name"] for skill in found["skills"]] == ["later", "notes"]
    assert {"id", "name", "description", "path", "dir", "scope", "mtime_ms"} <= found["skills"][0].keys()
    (error,) = found["errors"]
    assert (error.keys(), bool(error["message"])) == ({"path", "message"}, True)
    assert error["path"].endswith("broken/SKILL.md")


def test_a_message_that_cannot_be_answered_gets_its_error_code_and_a_notification_no_answer(client: Dispatcher) -> None:
    head = '{"jsonrpc":"2.0","id":1,'
    codes = {
        "nonsense": -32700,
        "[" * 100_000: -32700,
        "[]": -32600,
        "3": -32600,
        '{"jsonrpc":"1.0","id":1,"method":"skills.list"}': -32600,
        f'{head}"method":"nothing"}}': -32601,
        f'{head}"method":"skills.list","params":[1]}}': -32602,
        f'{head}"method":"skills.list","params":{{"cwd":3}}}}': -32602,
        f'{head}"method":"session.load","params":{{"name":"nope"}}}}': -32000,
    }
    assert {sent: json.loads(client.handle(sent) or "")["error"]["code"] for sent in codes} == codes
    note = {"jsonrpc": "2.0", "method": "skills.list"}
    assert client.handle(json.dumps(note)) is client.handle(json.dumps([note, note])) is None
    answers = json.loads(client.handle(json.dumps([note, note | {"id": 7}, {"id": 8}])) or "")
    assert [answer["id"] for answer in answers] == [7, 8]
