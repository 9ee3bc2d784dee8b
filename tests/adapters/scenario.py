"""The scenario of a conversation: skills, a model that follows a script, and what it was shown in each request."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metier import Skills
from metier.record.store.memory import MemoryStore
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from worlds import World

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "skills"
Call = tuple[str, dict[str, object]]
Step = Call | str
"""A call that the model makes, or its answer to the user."""

MARK = "Measure twice, then cut."
"""A line of the body of a skill. A text that contains it contains the body."""

LOAD: Call = ("skill_load", {"name": "carpentry"})
READ: Call = ("skill_read", {"name": "carpentry", "path": "references/wood.md"})
RUN: Call = ("skill_run", {"name": "carpentry", "script": "scripts/saw.sh", "arguments": ["oak"]})
ESCAPE: Call = ("skill_read", {"name": "carpentry", "path": "../secret"})
DENIED: Call = ("skill_load", {"name": "locks"})
TURN: list[Step] = [("skill_search", {"query": "work with wood"}), LOAD, READ, ESCAPE, DENIED, RUN, "The plank is cut."]
POLICY = {"deny": [{"tool": "skill_load", "skill_name": "locks"}]}


@dataclass(frozen=True)
class Shown:
    """One request as the model received it."""

    system: str
    tools: tuple[str, ...]
    texts: tuple[str, ...]
    prompts: int = 1
    """The number of system prompts."""

    def count(self, mark: str = MARK) -> int:
        return sum(text.count(mark) for text in (self.system, *self.texts))


@dataclass
class Model:
    """A model that follows its script whatever it is shown, and keeps the requests."""

    steps: list[Step]
    shown: list[Shown] = field(default_factory=list[Shown])
    requests: list[Any] = field(default_factory=list[Any])
    """What an endpoint received, as it was sent."""

    def next(self, system: str | None, tools: Iterable[str], texts: Iterable[str], prompts: int = 1) -> Step:
        self.shown.append(Shown(system or "", tuple(sorted(tools)), tuple(filter(None, texts)), prompts))
        return self.steps[len(self.shown) - 1]

    @property
    def number(self) -> int:
        return len(self.shown)


def write_skills(world: World) -> None:
    world.skill(
        ".agents/skills/carpentry",
        description="Works with wood.",
        body=f"# Carpentry\n{MARK}\n",
        files={"references/wood.md": "Oak is hard.\n", "scripts/saw.sh": "#!/bin/sh\necho cut $1\n"},
    )
    world.skill(".agents/skills/locks", description="Opens locks.")
    world.skill(".agents/skills/knots", description="Ties knots.", body="# Knots\nOver, under, through.\n")


def skills(world: World, **settings: object) -> Skills:
    write_skills(world)
    return world.discover(settings=settings)


def runner() -> FakeRunner:
    return FakeRunner(default=Outcome(0, "exit", 7, b"cut oak\n", b""))


def plain(skills: Skills, steps: Iterable[Step], approve: bool = True) -> Session:
    """A session with the same calls, without a framework."""
    options: dict[str, Any] = {"store": MemoryStore(), "applies": ()}
    session = skills.session(runner=runner(), policy=POLICY, approve=lambda _: approve, **options)
    for step in steps:
        if not isinstance(step, str):
            session.call(*step)
    return session


def record(session: Session) -> list[dict[str, object]]:
    """The events of a session, without ids, times and the surface."""
    own = ("id", "session_id", "stream_id", "timestamp_ms", "surface", "op", "life", "chain", "process")
    return [{key: value for key, value in frame.items() if key not in own} for frame in session.events]
