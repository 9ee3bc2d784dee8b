"""Counts which skills the latest sessions of a store used, refused and never chose.

Only the newest sessions are read, and only the latest events of each, so a page costs the same for a store of a day or
a year. The counts are kept until the store has new events.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from metier.files.shapes import as_table
from metier.record.store import Frame, Store, Summary

SESSIONS: Final = 60
EVENTS: Final = 1_000
"""The latest events of each session that are counted."""

TYPES: Final = (
    "session_called",
    "session_returned",
    "skill_loaded",
    "skill_invoked",
    "skill_resource_read",
    "tool_started",
)
_MEASURED: Final = {"skill_loaded": "loaded", "skill_resource_read": "read", "tool_started": "run"}
MEASURES: Final = ("loaded", "read", "run", "refused")


@dataclass(frozen=True, slots=True)
class SessionUse:
    """What one session used."""

    summary: Summary
    surface: str
    skills: Mapping[str, Counter[str]]

    def count(self, measure: str) -> int:
        return sum(counts[measure] for counts in self.skills.values())


@dataclass(frozen=True, slots=True)
class Bar:
    """A skill in the chart: its counts, and the start and width of each part of its bar in percent."""

    name: str
    counts: Counter[str]
    parts: Sequence[tuple[str, float, float]]


@dataclass(frozen=True, slots=True)
class Usage:
    """What the latest sessions used, newest first."""

    sessions: Sequence[SessionUse]
    total: int

    def sessions_of(self, name: str) -> list[SessionUse]:
        return [one for one in self.sessions if name in one.skills]

    @property
    def counts(self) -> dict[str, Counter[str]]:
        together: dict[str, Counter[str]] = {}
        for one in self.sessions:
            for name, counts in one.skills.items():
                together.setdefault(name, Counter()).update(counts)
        return together

    def bars(self, most: int) -> list[Bar]:
        """The skills with the most events, as bars on one scale."""
        ranked = sorted(self.counts.items(), key=lambda item: (-item[1].total(), item[0]))[:most]
        longest = max((counts.total() for _, counts in ranked), default=1) or 1
        bars: list[Bar] = []
        for name, counts in ranked:
            at, parts = 0.0, list[tuple[str, float, float]]()
            for measure in MEASURES:
                width = round(100 * counts[measure] / longest, 2)
                if width:
                    parts.append((measure, at, width))
                    at = round(at + width, 2)
            bars.append(Bar(name, counts, parts))
        return bars


_LOCK: Final = threading.Lock()
_KNOWN: Final[OrderedDict[int, tuple[Store, int, Usage]]] = OrderedDict()


def of(store: Store) -> Usage:
    """The usage in a store."""
    with _LOCK:
        cursor = store.cursor()
        known = _KNOWN.get(id(store))
        if known is not None and known[0] is store and known[1] == cursor:
            return known[2]
        usage = _count(store, known[2] if known is not None and known[0] is store else None)
        _KNOWN[id(store)] = (store, cursor, usage)
        while len(_KNOWN) > 4:
            _KNOWN.popitem(last=False)
        return usage


def _count(store: Store, before: Usage | None) -> Usage:
    """Count again, reading only sessions that have new events."""
    counted = {one.summary: one for one in before.sessions} if before else {}
    summaries = sorted(store.sessions(), key=lambda one: -one.last_ms)
    return Usage([counted.get(one) or _session(store, one) for one in summaries[:SESSIONS]], len(summaries))


def _session(store: Store, summary: Summary) -> SessionUse:
    started = store.read(summary.id, summary.id, ("session_started",), limit=1)
    surface = str(started[0].get("surface", "")) if started else ""
    frames = store.read(summary.id, summary.id, TYPES, after=max(-1, summary.events - EVENTS))
    return SessionUse(summary, surface, _skills(frames))


def _skills(frames: Sequence[Frame]) -> dict[str, Counter[str]]:
    used: dict[str, Counter[str]] = {}
    asked = ""
    for frame in frames:
        kind = frame["type"]
        if kind == "session_called":
            asked = _asked(frame)
        elif kind == "session_returned":
            if frame.get("status") == "error" and asked:
                used.setdefault(asked, Counter())["refused"] += 1
        elif frame.get("name"):
            counts = used.setdefault(str(frame["name"]), Counter())
            if kind in _MEASURED:
                counts[_MEASURED[kind]] += 1
    return used


def _asked(frame: Frame) -> str:
    """The skill that a call names."""
    given = as_table(frame.get("args"))
    name = given.get("name") or as_table(given.get("arguments")).get("name")
    return name if isinstance(name, str) else ""
