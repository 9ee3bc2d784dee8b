"""Codelia: what is said of loaded skills is true of the bytes that were loaded, and of the folder that is meant."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from metier.app import App
from metier.record.store import open_store
from metier.replay import from_store, replay
from metier.surfaces.rpc import Dispatcher
from rpc_process import RpcProcess
from worlds import World

SKILLS = ".agents/skills"
LOAD = {"tool": "skill_load", "args": {"name": "notes"}}


def asked(client: RpcProcess, method: str, **params: Any) -> Any:
    client.send(1, method, **params)
    while "id" not in (answer := client.receive()):
        pass  # a note that skills changed
    return answer["result"]


def edit(path: Path, description: str, body: str, time: int) -> int:
    """Write a skill anew and set its time; the time in milliseconds."""
    path.write_text(f"---\nname: notes\ndescription: {description}\n---\n{body}\n")
    mtime_ns = time * 10**9 + 123_456_789
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return time * 1000 + 123


def metadata(path: Path, mtime_ms: int, skill_id: str) -> dict[str, Any]:
    return {"skill_id": skill_id, "name": "notes", "path": str(path), "dir": str(path.parent), "mtime_ms": mtime_ms}


def names(inspected: Any) -> list[str]:
    return [skill["name"] for skill in inspected["skills"]["skills"]]


@pytest.mark.system
@pytest.mark.behaviour("C-069", "C-098", "N-008", "N-009")
def test_a_load_and_the_loaded_versions_are_of_the_bytes_that_were_loaded(world: World, tmp_path: Path) -> None:
    path = world.skill(f"{SKILLS}/notes", description="Scanned.", body="SCANNED")
    store = str(tmp_path / "store.db")
    options = ("--profile", "codelia", "--store", store)
    rpc = RpcProcess(world, *options)
    (scanned,) = asked(rpc, "skills.list")["skills"]
    session = asked(rpc, "session.create")["session_id"]
    first = edit(path, "Edited.", "EDITED", 1_700_000_000)
    loaded = asked(rpc, "session.call", **LOAD)
    assert "EDITED" in loaded["content"]
    assert loaded["metadata"] == metadata(path, first, scanned["id"])
    assert (loaded["skill"]["description"], loaded["skill"]["mtime_ms"]) == ("Edited.", first)

    second = edit(path, "Edited.", "EDITED AGAIN", 1_700_000_100)
    for _ in range(2):  # before and after a scan
        assert asked(rpc, "context.inspect", include_skills=True)["loaded_versions"] == {str(path): first}
        (listed,) = asked(rpc, "skills.list", force_reload=True)["skills"]
        assert listed["mtime_ms"] == second
    again = asked(rpc, "session.call", **LOAD)
    assert ("EDITED AGAIN" in again["content"], again["metadata"]["mtime_ms"]) == (True, second)
    assert asked(rpc, "context.inspect", include_skills=True)["loaded_versions"] == {str(path): second}
    reminded = asked(rpc, "session.call", **LOAD)
    assert reminded["already_loaded"] is True
    assert "EDITED" not in reminded["content"], "a list or an inspection does not make it forget"
    assert reminded["metadata"] == metadata(path, second, scanned["id"])
    rpc.end()
    path.unlink()
    rpc = RpcProcess(world, *options)
    known = asked(rpc, "context.inspect", include_skills=True, session_id=session)
    assert known["loaded_versions"] == {str(path): second}, "in another process, and without the file"
    rpc.end()
    with open_store(store) as kept:
        assert replay(from_store(kept, session)).identical


@pytest.fixture
def other(world: World, tmp_path: Path) -> World:
    """Another project of the same user, with more skills than a prompt shows."""
    found = World(world.home, tmp_path / "other")
    (found.project / ".git").mkdir(parents=True)
    for number in range(3):
        found.skill(f"{SKILLS}/elsewhere-{number}")
    return found


@pytest.mark.behaviour("C-096", "N-010", "N-011")
def test_an_inspection_is_of_one_place(world: World, other: World) -> None:
    path = world.skill(f"{SKILLS}/notes")
    world.skill(f"{SKILLS}/broken", text="no frontmatter")
    settings = {"skills": {"initial": {"maxEntries": 2}}}
    app = App(world.project, profile="codelia", home=world.home, store="memory:", surface="rpc", settings=settings)
    rpc = Dispatcher(app)

    def ask(method: str, **params: Any) -> Any:
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        answer = json.loads(rpc.handle(line) or "")
        return answer.get("result", answer.get("error"))

    def inspect(**params: Any) -> Any:
        return ask("context.inspect", include_skills=True, **params)

    fresh = inspect()
    assert (names(fresh), fresh["skills"]["truncated"], fresh["loaded_versions"]) == (["notes"], False, {})
    assert [error["path"] for error in fresh["skills"]["errors"]] == [f"{world.project}/{SKILLS}/broken/SKILL.md"]
    assert app.store.read() == [], "looking begins no session"
    assert "skills" not in ask("context.inspect")
    assert "loaded_versions" not in ask("context.inspect", include_skills=False)

    there = ask("session.create", cwd=str(other.project))["session_id"]
    ask("session.call", tool="skill_load", args={"name": "elsewhere-1"}, session_id=there)
    here = ask("session.create")["session_id"]
    ask("session.call", **LOAD)
    (mine,) = inspect()["loaded_versions"]
    assert mine == str(path)

    of_session = inspect(session_id=there)
    assert of_session["cwd"] == str(other.project)
    assert names(of_session) == ["elsewhere-0", "elsewhere-1", "elsewhere-2"]
    assert of_session["skills"]["truncated"] is True
    assert list(of_session["loaded_versions"]) == [f"{other.project}/{SKILLS}/elsewhere-1/SKILL.md"]
    assert inspect(session_id=there, cwd=str(other.project)) == of_session

    of_folder = inspect(cwd=str(other.project))
    assert names(of_folder) == names(of_session)
    assert (of_folder["skills"]["truncated"], of_folder["loaded_versions"]) == (True, {})
    assert of_folder["cwd"] == str(other.project)
    assert inspect(cwd=str(world.project))["loaded_versions"].keys() == {str(path)}

    refused = inspect(session_id=here, cwd=str(other.project))
    assert refused["code"] == -32602
    assert str(world.project) in refused["message"]
    assert str(other.project) in refused["message"]
