"""Which skills the latest sessions of a store were offered, used and refused: the usage page, and counts for others.

Only the newest sessions are read, so a page costs the same for a store of a day or a year. The counts of a session are
kept until it has new events.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from metier.record.events import is_internal
from metier.record.session_usage import SessionUsage, Texts, of_session
from metier.record.store import Store, Summary
from metier.record.usage import SORTS, TOKEN_CHARACTERS, Sort, Usage, since_ms, together
from metier.surfaces.web.site import Site

SESSIONS: Final = 60
"""The sessions that the activity counts."""

_MEASURED: Final = {
    "loaded": ("loaded",),
    "read": ("read",),
    "run": ("ran",),
    "refused": ("refused", "run_refused"),
}
MEASURES: Final = tuple(_MEASURED)
PAGE_SESSIONS: Final = 200
"""The sessions that the usage page counts."""
ROWS: Final = 200
NAMES: Final = 40
SINCE: Final = {"": "All times", "1d": "Last day", "7d": "Last 7 days", "30d": "Last 30 days"}
ORDERS: Final[dict[Sort, str]] = {
    "context": "By context",
    "loaded": "By loads",
    "offered": "By offers",
    "last": "By last use",
    "name": "By name",
}


@dataclass(frozen=True)
class SessionUse:
    """What one session used."""

    summary: Summary
    counted: SessionUsage

    @property
    def surface(self) -> str:
        return self.counted.surface

    @cached_property
    def skills(self) -> Mapping[str, Counter[str]]:
        """The skills that it called, loaded, read, ran or refused."""
        found: dict[str, Counter[str]] = {}
        for name, tally in self.counted.skills.items():
            counts = Counter({key: sum(tally.counts[one] for one in parts) for key, parts in _MEASURED.items()})
            if counts.total() or tally.counts["called"]:
                found[name] = counts
        return found

    def count(self, measure: str) -> int:
        return sum(counts[measure] for counts in self.skills.values())


@dataclass(frozen=True, slots=True)
class Bar:
    """A skill in the chart: its counts, and the start and width of each part of its bar in percent."""

    name: str
    counts: Counter[str]
    parts: Sequence[tuple[str, float, float]]


@dataclass(frozen=True, slots=True)
class LatestUsage:
    """What the latest sessions used, newest first."""

    sessions: Sequence[SessionUse]
    total: int
    """The number of all sessions of the store."""

    def skills_since(self, since_ms: int, sort: Sort) -> Usage:
        """What the sessions with an event since then did with skills."""
        return together((one.counted for one in self.sessions if one.summary.last_ms >= since_ms), sort=sort)

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
_KNOWN: Final[OrderedDict[tuple[int, int], tuple[Store, int, LatestUsage]]] = OrderedDict()


def of(store: Store, most: int = SESSIONS) -> LatestUsage:
    """The usage of the newest sessions of a store, at most so many."""
    with _LOCK:
        cursor, key = store.cursor(), (id(store), most)
        known = _KNOWN.get(key)
        if known is not None and known[0] is store and known[1] == cursor:
            return known[2]
        usage = _count(store, most, known[2] if known is not None and known[0] is store else None)
        _KNOWN[key] = (store, cursor, usage)
        while len(_KNOWN) > 4:
            _KNOWN.popitem(last=False)
        return usage


def _count(store: Store, most: int, before: LatestUsage | None) -> LatestUsage:
    """Count again, reading only sessions that have new events."""
    counted = {one.summary: one for one in before.sessions} if before else {}
    summaries = sorted((one for one in store.sessions() if not is_internal(one.id)), key=lambda one: -one.last_ms)
    texts = Texts(store)
    newest = [counted.get(one) or SessionUse(one, of_session(texts, one.id)) for one in summaries[:most]]
    return LatestUsage(newest, len(summaries))


def index(site: Site, request: Request) -> Response:
    asked = request.query_params.get("since", "")
    since = asked if asked in SINCE else ""
    order = request.query_params.get("sort")
    sort: Sort = order if order in SORTS else "context"
    latest = of(site.app.store, PAGE_SESSIONS)
    found = latest.skills_since(since_ms(since) if since else 0, sort)
    return site.page(
        request,
        "usage/index.html",
        found=found,
        rows=found.skills[:ROWS],
        names=NAMES,
        counted=len(latest.sessions),
        total=latest.total,
        tokens=found.characters // TOKEN_CHARACTERS,
        known=site.skills(),
        since=since,
        times=SINCE,
        sort=sort,
        orders=ORDERS,
        store=site.app.store.location,
    )
