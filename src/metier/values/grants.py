"""What a run is given besides its sandbox, as the values that a question, a rule and a record know.

A kind of grant is a module of `metier.running.grants` and a line of `KINDS`. Everything else asks the values: a
question for their facts, a rule or a remembered answer for what it has to cover, a record for their data.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, cast

from metier.values.skill import JsonObject

WRITES: Final = "run_project_write"
"""The tool of a rule that lets a script write to the working folder. The path of such a rule names files there."""

KINDS: Final[dict[str, tuple[str, ...]]] = {
    "folder": ("run_project", WRITES),
    "files": (),
    "secrets": ("run_secret",),
    "network": ("run_network",),
    "packages": ("run_packages",),
    "unsandboxed": ("run_unsandboxed",),
}
"""The kinds of grants in the order of a question, with the tools that rules about them name. Under every policy, each
tool needs an allow rule that names it, or an answer to a question that showed it. A rule about `run_secret` also names
the secret."""

Entry = str | bool | tuple[str, ...]
Covered = tuple[tuple[str, Entry], ...]
"""What a rule or a remembered answer says that a run is given: keys in their order, each with its value."""


def grant_tools() -> tuple[str, ...]:
    """The tools of all kinds of grants."""
    return tuple(tool for tools in KINDS.values() for tool in tools)


def is_grant(tool: str) -> bool:
    return any(tool in tools for tools in KINDS.values())


def recorded_tools(grants: Mapping[str, Mapping[str, Any]] | None) -> list[str]:
    """What rules name of the grants in a record."""
    return [tool for data in (grants or {}).values() for tool in data.get("tools", ())]


def covered(table: Mapping[str, object]) -> Covered:
    """A table of such entries as a value that can be compared. Raises `ValueError` for anything else."""
    found: list[tuple[str, Entry]] = []
    for key, value in sorted(table.items()):
        listed = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in cast("list[object]", value))
        if not listed and not isinstance(value, (str, bool)):
            raise ValueError(f"{key} is neither text nor true nor a list of texts")
        found.append((key, tuple(cast("list[str]", value)) if listed else cast("Entry", value)))
    return tuple(found)


class Grant:
    """One thing that a run is given. Values of a kind are equal if the same answer holds for them."""

    kind: ClassVar[str] = ""
    tools: tuple[str, ...] = ()
    """The tools of its kind that rules, the caller or the answer give."""
    asked: bool = False
    """Whether no rule gives it: only an answer about this very run does."""

    def facts(self) -> Iterator[tuple[str, str]]:
        """What a person is told about it before the run: labels and sentences."""
        return iter(())

    def covers(self) -> Mapping[str, Entry]:
        """What an answer for good is remembered with, if it is given. The answer holds only for runs with the same."""
        return {}

    def lasts(self) -> tuple[str, str]:
        """How a question limits an answer for good: a condition, such as "where it reads ...", and what stays."""
        return "", ""

    def shown(self) -> JsonObject:
        """Its fields in a request as JSON."""
        return {}

    def data(self) -> JsonObject:
        """All of it as JSON, to come back from; empty if nothing is given."""
        return {}


def covered_by(grants: Iterable[Grant]) -> Covered:
    """What an answer about a run with these grants covers."""
    return covered({key: entry for grant in grants for key, entry in grant.covers().items()})
