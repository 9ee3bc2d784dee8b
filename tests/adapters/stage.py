"""The stage for a conversation: skills, a model that follows a script, and what it was shown at each request."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metier import Skills
from metier.sandbox import Outcome
from metier.sandbox.fake import FakeRunner
from metier.session.session import Session
from worlds import World

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "skills"
Step = tuple[str, dict[str, Any]] | str
"""A call that the model makes, or its answer to the user."""

MARK = "Measure twice, then cut."
"""A line of a body: wherever it is, there is the body."""

LOAD = ("skill_load", {"name": "carpentry"})
READ = ("skill_read", {"name": "carpentry", "path": "references/wood.md"})
RUN = ("skill_run", {"name": "carpentry", "script": "scripts/saw.sh", "arguments": ["oak"]})
ESCAPE = ("skill_read", {"name": "carpentry", "path": "../secret"})
DENIED = ("skill_load", {"name": "locks"})
TURN: list[Step] = [("skill_search", {"query": "work with wood"}), LOAD, READ, ESCAPE, DENIED, RUN, "The plank is cut."]
POLICY = {"deny": [{"tool": "skill_load", "skill_name": "locks"}]}


@dataclass(frozen=True)
class Shown:
    """One request as the model got it."""

    system: str
    tools: tuple[str, ...]
    texts: tuple[str, ...]

    def count(self, mark: str = MARK) -> int:
        return sum(text.count(mark) for text in (self.system, *self.texts))


@dataclass
class Model:
    """A model that follows its script, whatever it is shown, and keeps what it was shown."""

    steps: list[Step]
    shown: list[Shown] = field(default_factory=list[Shown])

    def next(self, system: str | None, tools: Iterable[str], texts: Iterable[str]) -> Step:
        self.shown.append(Shown(system or "", tuple(sorted(tools)), tuple(filter(None, texts))))
        return self.steps[len(self.shown) - 1]

    @property
    def number(self) -> int:
        return len(self.shown)


def furnish(world: World) -> None:
    world.skill(
        ".agents/skills/carpentry",
        description="Works with wood.",
        body=f"# Carpentry\n{MARK}\n",
        files={"references/wood.md": "Oak is hard.\n", "scripts/saw.sh": "#!/bin/sh\necho cut $1\n"},
    )
    world.skill(".agents/skills/locks", description="Opens locks.")
    world.skill(".agents/skills/knots", description="Ties knots.", body="# Knots\nOver, under, through.\n")


def skills(world: World, **settings: Any) -> Skills:
    furnish(world)
    return world.discover(settings=settings)


def runner() -> FakeRunner:
    return FakeRunner(default=Outcome(0, "exit", 7, b"cut oak\n", b""))


def plain(skills: Skills, steps: Iterable[Step], approve: bool = True) -> Session:
    """The same calls without a framework."""
    session = skills.session(runner=runner(), policy=POLICY, approve=lambda _: approve)
    for step in steps:
        if not isinstance(step, str):
            session.call(*step)
    return session


def trail(session: Session) -> list[dict[str, Any]]:
    """The events of a session, but for ids, times and the surface."""
    own = ("id", "session_id", "stream_id", "timestamp_ms", "surface")
    return [{key: value for key, value in frame.items() if key not in own} for frame in session.events]
