"""A person is asked before an operation begins, without the session's lock, and about just what then runs."""

import threading
from pathlib import Path

import pytest

from metier import PolicyDenied, Request
from metier.policy.rules import Rule
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.sandbox import Job, Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.operations import Load, Run
from patience import PATIENCE
from worlds import World

ASK = {"ask": [{"tool": "skill_load"}, {"tool": "skill_run"}]}


@pytest.fixture
def skill(world: World) -> Path:
    return world.skill(".agents/skills/one", files={"scripts/x.sh": "#!/bin/sh\necho 1\n"}).parent


def test_a_search_does_not_wait_while_a_person_is_asked(world: World, skill: Path) -> None:
    asked, answer = threading.Event(), threading.Event()

    def approve(_: Request) -> bool:
        asked.set()
        return answer.wait(PATIENCE)

    session = world.discover().session(store=MemoryStore(), policy=ASK, approve=approve)
    loading = threading.Thread(target=session.load, args=["one"])
    loading.start()
    assert asked.wait(PATIENCE)
    found: list[int] = []
    searching = threading.Thread(target=lambda: found.append(session.search("one").count))
    searching.start()
    searching.join()
    assert found == [1], "while the question is open"
    answer.set()
    loading.join()
    assert session.activated == ["one"]


def test_what_happened_meanwhile_is_in_the_record_before_the_answer_and_replays(world: World, skill: Path) -> None:
    store = MemoryStore()

    def approve(_: Request) -> str:
        session.search("one")
        return "once"

    session = world.discover().session(store=store, policy=ASK, approve=approve)
    session.load("one")
    kinds = [frame["type"] for frame in session.events if frame["type"] in ("session_called", "policy_asked")]
    operations = [frame["operation"] for frame in session.events if frame["type"] == "session_called"]
    assert (kinds, operations) == (["session_called", "session_called", "policy_asked"], ["search", "load"])
    assert replay(from_store(store, session.id)).identical


def test_a_grant_that_comes_while_the_question_is_open_is_not_given(world: World, skill: Path) -> None:
    def approve(request: Request) -> bool:
        if request.tool == "skill_run":
            session.policy.allow = (*session.policy.allow, Rule("run_network"))
        return True

    session = world.discover().session(policy=ASK, approve=approve, runner=FakeRunner())
    with pytest.raises(PolicyDenied, match="changed after the question"):
        session.run("one", "scripts/x.sh")
    assert [frame for frame in session.events if frame["type"] == "tool_started"] == []


def test_questions_are_known_ahead_and_are_those_that_are_asked(world: World, skill: Path) -> None:
    asked: list[Request] = []

    def approve(request: Request) -> bool:
        asked.append(request)
        return True

    session = world.discover().session(policy=ASK, approve=approve, runner=FakeRunner(default=Outcome(0, "exit", 1)))
    ahead = session.questions(Run(name="one", script="scripts/x.sh"))
    assert session.events[-1]["type"] != "session_called", "nothing is recorded"
    session.run("one", "scripts/x.sh")
    assert list(ahead) == asked
    assert [request.tool for request in asked] == ["skill_load", "skill_run"]
    assert asked[1].detail == "#!/bin/sh\necho 1\n"
    assert session.questions(Load(name="no-such")) == ()


def test_what_only_shows_something_does_not_wait_for_a_script(world: World, skill: Path) -> None:
    running, end = threading.Event(), threading.Event()

    def stay(_: Job) -> Outcome:
        running.set()
        end.wait()
        return Outcome(0, "exit", 1)

    session = world.discover().session(policy={"allow": [{"tool": "skill_run"}]}, runner=FakeRunner(default=stay))
    script = threading.Thread(target=session.run, args=["one", "scripts/x.sh"])
    script.start()
    assert running.wait(PATIENCE)
    shown: list[object] = []
    asking = threading.Thread(target=lambda: shown.extend([session.may_use("Read"), session.prompt().shown]))
    asking.start()
    asking.join()
    try:
        assert shown == [True, 1], "while the script runs"
    finally:
        end.set()
        script.join()
