"""A skill that is unloaded is out of the session: nothing gives its text again, and its window is closed."""

from typing import Any

import pytest

from calling import Run, caller
from in_process import SURFACES, Ask, app_of
from metier import SkillNotFound
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from worlds import World

WAYS = {
    "a person": ("unload", {"name": "pdf"}),
    "the model": ("call", {"tool": "skill_unload", "arguments": {"name": "pdf"}}),
    "a message": ("invoke", {"message": "/unload pdf"}),
}


@pytest.fixture
def library(world: World) -> World:
    for name in ("pdf", "csv"):
        world.skill(f"~/.agents/skills/{name}", body=f"BODY of {name}", allowed_tools="Read")
    world.configure_user("[policy]\nenforce_hints = true\n")
    return world


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("surface", SURFACES)
def test_nothing_of_it_is_left_on_any_surface(library: World, run: Run, surface: Any, way: str) -> None:
    ref = app_of(library).session().load("pdf").ref

    def steps(say: Ask) -> None:
        for name in ("csv", "pdf"):
            assert f"BODY of {name}" in say("load", {"name": name})
        assert "BODY of pdf" in say("output", {"ref": ref})
        assert "BODY of pdf" in say("compact", {})
        operation, fields = WAYS[way]
        assert "/pdf/SKILL.md" in say(operation, fields)
        assert f"there is no output '{ref}'" in say("output", {"ref": ref})
        back = say("compact", {})
        assert ("BODY of pdf" in back, "BODY of csv" in back) == (False, True)
        prompt = say("system_prompt", {})
        assert "conversation: csv" in prompt
        assert "conversation: csv, pdf" not in prompt
        again = say("load", {"name": "pdf"})
        assert "BODY of pdf" in again, "it is given whole again"

    surface(library, run, steps)


def test_another_process_and_a_replay_know_it(library: World) -> None:
    store = MemoryStore()
    session = library.discover().session(store=store, id="s", preload=["csv"])
    old = session.load("pdf")
    library.skill("~/.agents/skills/pdf", body="BODY of pdf, edited", allowed_tools="Read")
    new = session.load("pdf")
    assert not session.may_use("Bash")
    for name in ("pdf", "csv"):
        session.unload(name)
    assert session.may_use("Bash"), "its window is closed"
    for other in (session, library.discover().session(store=store, id="s", preload=["csv"])):
        assert other.activated == []
        assert "BODY of pdf" not in other.system_prompt()
        for ref in (old.ref, new.ref):
            assert not other.call("skill_output", {"ref": ref}).ok
    assert "BODY of csv" not in session.system_prompt()
    assert [frame["name"] for frame in session.events if frame["type"] == "skill_unloaded"] == ["pdf", "csv"]
    outcome = replay(from_store(store, "s"))
    assert (outcome.differences, outcome.not_compared) == ([], 0)


def test_a_skill_that_a_message_called_and_nobody_loaded(world: World) -> None:
    world.skill("~/.agents/skills/pdf")
    session = world.discover(settings={"invocation.loads": False}).session()
    session.invoke("/pdf fill a form")
    assert session.activated == ["pdf"]
    assert session.unload("pdf").paths == ()
    assert session.activated == []


def test_of_several_with_one_name_a_path_names_one(world: World) -> None:
    paths = [world.skill(f"{root}/pdf", body=root) for root in ("~/.agents/skills", ".agents/skills")]
    session = world.discover().session()
    for path in paths:
        session.load(path=path)
    assert session.unload("pdf", path=paths[0]).paths == (str(paths[0]),)
    assert session.activated == ["pdf"], "the other one is still loaded"
    assert session.unload("pdf").paths == (str(paths[1]),)


def test_what_is_not_loaded_is_an_error_with_what_is(library: World) -> None:
    session = library.discover().session()
    session.load("pdf")
    for wrong in ("csv", "pdff", "no-such"):
        for ask in (lambda name: session.unload(name), lambda name: session.invoke(f"/unload {name}")):
            with pytest.raises(SkillNotFound, match="it is not loaded; loaded: pdf") as error:
                ask(wrong)
            assert ("did you mean pdf?" in str(error.value)) == (wrong == "pdff")
    assert session.call("skill_unload", {"name": "csv"}).code == "NOT_FOUND"
    assert session.activated == ["pdf"]


def test_where_the_host_has_no_such_tool_the_message_is_plain_text(world: World) -> None:
    for root in (".agents/skills", ".rip/skills", ".omp/skills", "skills", ".skills"):
        world.skill(f"{root}/pdf")
    world.trust()
    for profile in ("codelia", "omp", "mycodeagent", "rip", "remcochat"):
        session = world.discover(profile, settings={"enabled": True}).session()
        session.load("pdf")
        assert not any("unload" in tool.name for tool in session.tools())
        assert session.invoke("/unload pdf").message == "/unload pdf"
        assert session.activated == ["pdf"]
        assert session.unload("pdf").name == "pdf", "a host can still do it"


def test_a_skill_of_that_name_is_called(world: World) -> None:
    for name in ("unload", "pdf"):
        world.skill(f"~/.agents/skills/{name}", body=f"BODY of {name}")
    session = world.discover().session()
    session.load("pdf")
    assert "BODY of unload" in session.invoke("/unload pdf").text
    assert session.activated == ["pdf", "unload"]
