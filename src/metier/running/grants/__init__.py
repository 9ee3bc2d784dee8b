"""What a run is given besides its sandbox: one value of each kind, which knows all about itself.

A kind has a module of its own here and a line in `metier.values.grants.KINDS`. Its value is planned before the
question, without running code of others, so that the question names it and an answer for good covers exactly that. It
goes into the job and into the record, and comes back from the record in a replay.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, cast

from metier.running.sandbox import Job, Outcome
from metier.running.scripts import WantedRun
from metier.values.grants import KINDS, Grant
from metier.values.skill import JsonObject


@dataclass(frozen=True, kw_only=True)
class RunGrant(Grant):
    """The base of all kinds. Fields that are not compared are not in the record, and are empty in a replay."""

    by_kind: ClassVar[dict[str, type["RunGrant"]]] = {}
    refusals: ClassVar[tuple[str, ...]] = ()
    """The reasons for which planning refuses a script; a replay finds them in the record."""

    tools: tuple[str, ...] = ()
    asked: bool = False

    def __init_subclass__(cls) -> None:
        cls.by_kind[cls.kind] = cls

    @classmethod
    def check(cls, run: WantedRun) -> None:
        """Raise `PolicyDenied` where a rule denies what the caller asks for."""

    @classmethod
    def plan(cls, run: WantedRun) -> Self:
        """What a run gets of this kind, which may be nothing."""
        return cls(tools=run.allowed(cls.kind))

    @classmethod
    def again(cls, data: Mapping[str, Any]) -> Self:
        """The value that has this `data`."""
        values: Mapping[str, Any] = {
            key: tuple(cast("list[str]", value)) if isinstance(value, list) else value for key, value in data.items()
        }
        return cls(**values)

    def data(self) -> JsonObject:
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.compare}
        return {name: value for name, value in values.items() if value}

    @property
    def artifacts(self) -> Mapping[str, bytes]:
        """What the record keeps of it, by digest."""
        return {}

    def withheld(self, run: WantedRun) -> Self:
        """The same without what the run can do without where nobody can be asked about it."""
        return self

    def ready(self, run: WantedRun) -> Self:
        """The same after the answer, for the job. Raises `ScriptRefused` where the script cannot run here."""
        return self

    def into(self, job: Job, run: WantedRun) -> Job:
        """The job with this."""
        return job

    def notes(self, run: WantedRun, outcome: Outcome) -> Iterator[str]:
        """What the reader of the result is told about it."""
        return iter(())


def kinds() -> Iterator[type[RunGrant]]:
    """All kinds, in the order of a question."""
    for kind in KINDS:
        importlib.import_module(f"{__name__}.{kind}")
        yield RunGrant.by_kind[kind]


def check(run: WantedRun) -> None:
    """Raise `PolicyDenied` where a rule denies what the caller of a run asks for."""
    for kind in kinds():
        kind.check(run)


def plan(run: WantedRun) -> tuple[RunGrant, ...]:
    """What a run is given. Raises `PolicyDenied` and `ScriptRefused`."""
    check(run)
    return tuple(kind.plan(run) for kind in kinds())


def read(recorded: Mapping[str, JsonObject]) -> tuple[RunGrant, ...]:
    """Grants as their `recorded` gave them."""
    return tuple(kind.again(recorded.get(kind.kind, {})) for kind in kinds())


def recorded(grants: tuple[Grant, ...]) -> dict[str, JsonObject]:
    """Grants as a record has them: those that give something, by kind."""
    return {grant.kind: data for grant in grants if (data := grant.data())}
