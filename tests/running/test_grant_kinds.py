"""A new kind of grant is one module and one line of a list: everything that is about grants then knows it."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, ClassVar, Self

import pytest

from metier import PolicyDenied, Question, Request
from metier.policy.decide import Policy
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.grants import RunGrant
from metier.running.sandbox import Job, Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.running.scripts import WantedRun
from metier.surfaces.chat.items import AskItem
from metier.values.grants import KINDS
from metier.values.skill import JsonObject
from people import Person
from worlds import World

TOOL = "run_clipboard"
SCRIPT = {"scripts/paste.py": "print('pasted')\n"}


@dataclass(frozen=True, kw_only=True)
class ClipboardGrant(RunGrant):
    """The text of the clipboard, as a variable."""

    kind: ClassVar[str] = "clipboard"
    text: ClassVar[str] = "from the clipboard"

    characters: int = 0

    @classmethod
    def plan(cls, run: WantedRun) -> Self:
        return cls(tools=(TOOL,), asked=not run.allowed(cls.kind), characters=len(cls.text))

    def facts(self) -> Iterator[tuple[str, str]]:
        yield "Pastes", f"It reads {self.characters} characters of the clipboard."

    def covers(self) -> Mapping[str, bool]:
        return {"clipboard": True} if self.asked else {}

    def shown(self) -> JsonObject:
        return {"clipboard": self.characters}

    def into(self, job: Job, run: WantedRun) -> Job:
        return replace(job, env={**job.env, "CLIPBOARD": self.text})


@pytest.fixture
def clipboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module and the line."""
    module = ModuleType("metier.running.grants.clipboard")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(KINDS, "clipboard", (TOOL,))


def opened(world: World, person: Person | None = None, **options: Any) -> Any:
    runner = FakeRunner(default=Outcome(0, "exit", 1, stdout=b"pasted\n"))
    return world.discover().session(approve=person, runner=runner, **options), runner


def run(session: Any) -> None:
    session.run("paste", "scripts/paste.py")


@pytest.fixture
def skill(world: World, clipboard: None) -> World:
    world.skill(".agents/skills/paste", files=SCRIPT)
    return world


def test_the_question_the_job_and_the_record_have_it(skill: World, monkeypatch: pytest.MonkeyPatch) -> None:
    person, store = Person("once"), MemoryStore()
    session, runner = opened(skill, person, store=store)
    run(session)
    request = person.asked[-1]
    assert "Pastes  It reads 18 characters of the clipboard." in Question.of(request).as_text()
    data = request.as_dict()
    assert (data["clipboard"], data["wants"], TOOL in data["grants"]) == (18, {"clipboard": True}, True)
    assert runner.jobs[-1].env["CLIPBOARD"] == "from the clipboard"
    shown_again = AskItem.of(request, "why").request
    assert Question.of(shown_again).as_text() == Question.of(request).as_text(), "a chat keeps it"
    started = next(frame for frame in session.events if frame["type"] == "tool_started")
    assert started["grants"]["clipboard"] == {"tools": [TOOL], "asked": True, "characters": 18}
    monkeypatch.setattr(ClipboardGrant, "plan", None)
    assert replay(from_store(store, session.id)).identical


def test_an_answer_for_good_covers_it_and_no_other_run(skill: World) -> None:
    person = Person("always")
    for _ in range(2):
        run(opened(skill, person)[0])
    assert sum(request.tool == "skill_run" for request in person.asked) == 1
    answers = skill.home / ".config/metier/permissions.toml"
    assert "clipboard = true" in answers.read_text()
    answers.write_text(answers.read_text().replace("clipboard = true", "clipboard = false"))
    run(opened(skill, person)[0])
    assert sum(request.tool == "skill_run" for request in person.asked) == 2, "another value is another answer"


def test_a_rule_about_it_is_known_and_decides(skill: World) -> None:
    person = Person("once")
    allowed = {"allow": [{"tool": TOOL}]}
    run(opened(skill, person, policy=allowed)[0])
    assert person.asked[-1].wants == ()
    assert Policy().decide(Request(TOOL)).verdict == "deny", "like every grant, it needs a rule"
    full = {"profile": "full-auto"}
    session = opened(skill, policy=full)[0]
    session.load("paste")
    with pytest.raises(PolicyDenied, match="clipboard = true"):
        session.run("paste", "scripts/paste.py", by="model")
