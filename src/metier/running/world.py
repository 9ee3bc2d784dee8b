"""What the outside decides about a session: times, ids, files, answers, scripts and what this machine can run.

There are two implementations: `LiveWorld`, and the world of a record, which a replay passes. Nothing else tells a live
session from one that is replayed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from metier.files import process
from metier.files.source import DiskFiles, Files, ScriptFiles
from metier.hosts.schema import RunRules
from metier.record import telemetry
from metier.record.telemetry import Telemetry
from metier.record.writer import RecordWorld, random_ids, system_clock
from metier.values.results import Request
from metier.values.skill import Skill

if TYPE_CHECKING:
    # Only a run needs them, and they take a tenth of the time that a session takes to import.
    from metier.running.grants import RunGrant
    from metier.running.sandbox import Runner
    from metier.running.scripts import WantedRun

Answers = Mapping[Request, str]
"""What a person answered to requests."""


class World(RecordWorld, Protocol):
    """See the module."""

    @property
    def files(self) -> Files:
        """The files of skills."""
        ...

    @property
    def runner(self) -> "Runner | None":
        """What runs scripts; `None` for the best sandbox of this machine."""
        ...

    def can_sandbox(self, rules: RunRules) -> bool:
        """Whether a sandbox works here."""
        ...

    def answers(self, ask: Callable[[], Answers]) -> Answers:
        """The answers to the questions of an operation, which `ask` puts to a person."""
        ...

    def script(self, skill: Skill, path: str) -> ScriptFiles:
        """A script with all files of its skill, as they are now. Raises `ResourceError` where there is none."""
        ...

    def grants(self, run: "WantedRun") -> "tuple[RunGrant, ...]":
        """What a run is given. Raises `PolicyDenied` and `ScriptRefused`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorld:
    """This machine, now."""

    files: Files = field(default_factory=DiskFiles)
    runner: "Runner | None" = None
    clock: Callable[[], int] = system_clock
    ids: Callable[[], str] = random_ids

    def time(self, after_ms: int) -> int:
        return max(self.clock(), after_ms)

    def id(self) -> str:
        return self.ids()

    @property
    def telemetry(self) -> Telemetry | None:
        return telemetry.active

    def process(self) -> str:
        return process.current()

    def has_ended(self, name: str) -> bool | None:
        return process.has_ended(name) if name else None

    def can_sandbox(self, rules: RunRules) -> bool:
        from metier.running.scripts import default_runner

        runner = self.runner or default_runner(rules)
        return runner is not None and runner.problem() is None

    def answers(self, ask: Callable[[], Answers]) -> Answers:
        return ask()

    def script(self, skill: Skill, path: str) -> ScriptFiles:
        from metier.running.scripts import take_script

        return take_script(self.files, skill, path)

    def grants(self, run: "WantedRun") -> "tuple[RunGrant, ...]":
        from metier.running.grants import plan

        return plan(run)
