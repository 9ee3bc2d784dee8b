"""A skill that is switched off is refused whoever asks and however, with the command that switches it on."""

import json
import os
from typing import Any

import pytest
from starlette.testclient import TestClient

from calling import Run, caller
from in_process import SURFACES, Ask, app_of
from metier.errors import SkillNotFound
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.surfaces.rpc import Dispatcher
from metier.surfaces.web.api import build
from worlds import World

WAY_OUT = "`metier enable off` switches it on"


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


@pytest.fixture
def library(world: World) -> World:
    for name in ("on", "off"):
        world.skill(f"~/.agents/skills/{name}", body="BODY", files={"a.md": "FILE", "scripts/x.sh": "#!/bin/sh\n"})
    world.configure_user('[permissions]\nallow = [{ tool = "skill_run" }]\n')
    return world


@pytest.mark.parametrize("surface", SURFACES)
def test_by_every_name_and_on_every_surface(library: World, run: Run, surface: Any) -> None:
    library.discover().disable("off")
    file = str(library.home / ".agents/skills/off/SKILL.md")
    refused: list[str] = []

    def steps(say: Ask) -> None:
        for name, fields in (
            ("load", {"name": "off"}),
            ("load", {"path": file}),
            ("load", {"path": os.path.dirname(file)}),
            ("read", {"name": "off", "path": "a.md"}),
            ("read", {"name": "skill://off/a.md"}),
            ("read", {"name": "skill://off/SKILL.md"}),
            ("run", {"name": "off", "script": "scripts/x.sh"}),
            ("invoke", {"message": "/off now"}),
            ("invoke", {"message": "use $off and $on"}),
        ):
            answer = say(name, fields)
            assert "BODY" not in answer
            assert "FILE" not in answer
            refused.append(f"{name} {fields}: {answer if WAY_OUT not in answer else ''}")
        assert "BODY" in say("invoke", {"message": "/on now, not off"})

    surface(library, run, steps)
    assert all(line.endswith(": ") for line in refused), "\n".join(refused)


def test_in_the_system_prompt(library: World, run: Run) -> None:
    library.discover().disable("off")
    with pytest.raises(SkillNotFound, match=WAY_OUT):
        library.discover().session(preload=["off"])
    message = {"jsonrpc": "2.0", "id": 1, "method": "session.create", "params": {"preload": ["off"]}}
    assert WAY_OUT in (Dispatcher(app_of(library)).handle(json.dumps(message)) or "")
    with TestClient(build(app_of(library), watch=False), base_url="http://127.0.0.1") as client:
        answer = client.post("/api/sessions", json={"preload": ["off"]})
        assert (answer.status_code, WAY_OUT in answer.text) == (404, True)
    done = run("prompt", "--full", "--preload", "off", "--home", str(library.home))
    assert (done.code, done.out, WAY_OUT in done.err) == (1, "", True)


def test_in_a_session_that_was_given_it_before(library: World) -> None:
    store = MemoryStore()
    skills = library.discover()
    session = skills.session(id="loaded", store=store)
    ref = session.load("off").ref
    assert "BODY" in skills.session(id="preloaded", store=store, preload=["off"]).system_prompt()
    skills.disable("off")
    for one in (session, library.discover().session(id="loaded", store=store)):
        with pytest.raises(SkillNotFound, match=WAY_OUT):
            one.output(ref)
        told = one.call("skill_output", {"ref": ref})
        assert (told.ok, "BODY" in told.text) == (False, False)
        assert "BODY" not in one.compact().text
    for one in (skills, library.discover()):
        assert "BODY" not in one.session(id="preloaded", store=store, preload=["off"]).system_prompt()
    for name in ("loaded", "preloaded"):
        assert replay(from_store(store, name)).differences == []
    skills.enable("off")
    assert "BODY" in session.output(ref)
    assert "BODY" in session.compact().text


def test_the_command_that_is_named_works(library: World, run: Run) -> None:
    home = ("--home", str(library.home))
    twin = library.skill(".agents/skills/off", body="NEARER")
    assert run("disable", "off", *home).code == 0
    assert "BODY" in run("load", "off", *home).out, "the other one of this name is on"
    said = run("load", "--path", str(twin), *home).err
    command = said.partition("`metier ")[2].partition("`")[0]
    assert run(*command.split(), *home).code == 0
    assert "NEARER" in run("load", "off", *home).out
