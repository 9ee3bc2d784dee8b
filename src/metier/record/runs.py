"""What recorded runs of scripts used and made: grants, secrets, hosts, how they ended, and the files they left."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from metier.record.events import TYPES, ToolEnded, ToolFailed, ToolStarted, is_internal
from metier.record.store import Frame, Store
from metier.values.grants import recorded_tools
from metier.values.skill import JsonObject
from metier.values.value import Count, Value, field

_WITH_HOST: Final = tuple(kind.type for kind in TYPES if {"host", "port"} <= {*kind.__struct_fields__})
_RUNS: Final = 200
"""The runs that are looked through, the latest ones."""
_TYPES: Final = (ToolStarted.type, ToolEnded.type, ToolFailed.type, *_WITH_HOST)


class ScriptTally(Struct):
    """The recorded runs of one script."""

    runs: int = 0
    exit_codes: Counter[str] = field(default_factory=Counter[str])
    last_ms: int = 0

    def as_dict(self, script: str) -> JsonObject:
        return {"script": script, "runs": self.runs, "exit_codes": dict(self.exit_codes), "last_ms": self.last_ms}


class UsedCapabilities(Struct):
    """What the runs of one skill used. Counts are of runs, and for hosts of attempts."""

    runs: int = 0
    refused: int = 0
    """The runs that did not start."""
    last_ms: int = 0
    scripts: dict[str, ScriptTally] = field(default_factory=dict[str, ScriptTally])
    grants: Counter[str] = field(default_factory=Counter[str])
    secrets: Counter[str] = field(default_factory=Counter[str])
    hosts: Counter[str] = field(default_factory=Counter[str])
    unsandboxed: int = 0

    def as_dict(self) -> JsonObject:
        return {
            "runs": self.runs,
            "refused": self.refused,
            "last_ms": self.last_ms or None,
            "scripts": [tally.as_dict(script) for script, tally in sorted(self.scripts.items())],
            "grants": dict(sorted(self.grants.items())),
            "secrets": dict(sorted(self.secrets.items())),
            "hosts": dict(sorted(self.hosts.items())),
            "unsandboxed": self.unsandboxed,
        }


def used(store: Store, skill_name: str) -> UsedCapabilities:
    """Count the runs of the scripts of all skills with this name, in all sessions of a store."""
    found = UsedCapabilities()
    for summary in store.sessions():
        if is_internal(summary.id):
            continue
        running: dict[str, str] = {}
        for frame in store.read(summary.id, types=_TYPES):
            _count(found, running, frame, skill_name)
    return found


def _count(found: UsedCapabilities, running: dict[str, str], frame: Frame, skill_name: str) -> None:
    op, kind = str(frame.get("op", "")), frame["type"]
    if kind == ToolStarted.type and frame["name"] == skill_name:
        running[op] = str(frame["script"])
        tally = found.scripts.setdefault(running[op], ScriptTally())
        found.runs, tally.runs = found.runs + 1, tally.runs + 1
        tally.last_ms = max(tally.last_ms, int(frame["timestamp_ms"]))
        found.last_ms = max(found.last_ms, tally.last_ms)
        found.grants.update(recorded_tools(frame.get("grants")))
        found.secrets.update(frame.get("grants", {}).get("secrets", {}).get("names", ()))
        found.unsandboxed += not frame.get("protections")
    elif kind == ToolFailed.type and frame["name"] == skill_name and op not in running:
        found.refused += 1
    elif op in running and kind == ToolEnded.type:
        ended = str(frame.get("ended", "exit"))
        code = str(frame["exit_code"]) if ended == "exit" else ended
        found.scripts[running[op]].exit_codes[code] += 1
    elif op in running and kind in _WITH_HOST:
        found.hosts[f"{frame['host']}:{frame['port']}"] += 1


# --- the files that runs left ---


class MadeFile(Value, kw_only=True):
    """A file that a script made."""

    session: str
    skill: str
    script: str
    path: str
    size: Count
    digest: str
    at_ms: int


def made_files(store: Store, session: str | None = None) -> list[MadeFile]:
    """The files that scripts made in one session or in all, the latest first."""
    frames = store.read(session, types=(ToolStarted.type, ToolEnded.type), limit=2 * _RUNS, newest=True)
    return list(_made_in(frames))[::-1]


def _made_in(frames: list[Frame]) -> Iterator[MadeFile]:
    started: dict[object, Frame] = {}
    for frame in frames:
        if frame["type"] == ToolStarted.type:
            started[frame.get("op")] = frame
            continue
        run = started.pop(frame.get("op"), {})
        for one in reversed(frame["artifacts"]):
            yield MadeFile(
                session=frame["session_id"],
                skill=str(run.get("name", "")),
                script=str(run.get("script", "")),
                path=one["path"],
                size=one["size"],
                digest=one["digest"],
                at_ms=frame["timestamp_ms"],
            )
