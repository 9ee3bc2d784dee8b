"""A session never gets the id of a stream that Metier keeps for itself, on any surface."""

import json

import pytest

from calling import Run, caller
from metier.app import App
from metier.errors import StoreError
from metier.record import events
from metier.skills import Skills
from metier.surfaces.rpc import Dispatcher
from worlds import World

RESERVED = ("installs", "retention", f"{'0' * 32}/chat")


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


@pytest.mark.parametrize("taken", RESERVED)
def test_a_reserved_id_is_refused_and_nothing_is_recorded(world: World, run: Run, taken: str) -> None:
    world.skill(".agents/skills/probe")
    shown = run("load", "probe", "--session", taken)
    assert shown.code != 0
    assert f"the session id {taken!r} is reserved" in shown.err
    app = App(world.project, home=world.home, store="memory:")
    skills = Skills.discover(world.project, home=world.home)
    for opened in (lambda: app.session(taken), lambda: skills.session(id=taken)):
        with pytest.raises(StoreError, match="is reserved"):
            opened()
    call = {"jsonrpc": "2.0", "id": 1, "method": "session.create", "params": {"session_id": taken}}
    answer = json.loads(Dispatcher(app, "rpc").handle(json.dumps(call)) or "")
    assert "is reserved" in answer["error"]["message"]
    assert app.store.sessions() == []
    assert app.store.last_seq(taken) == -1
    app.close()


def test_an_old_session_of_that_name_can_still_be_read(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    world.skill(".agents/skills/probe")
    with monkeypatch.context() as before:
        before.setattr(events, "is_internal", lambda _: False)
        assert run("load", "probe", "--session", "installs").code == 0
    assert "is reserved" in run("load", "probe", "--session", "installs").err
    assert "skill_loaded" in run("events", "--session", "installs").out
    assert run("replay", "installs").code == 0
