"""The usage page, and what the newest sessions of a store used, for other pages.

Only the newest sessions are read, so a page costs the same for a store of a day or a year. The counts of a session are
kept until it has new events.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from metier.record.events import is_internal
from metier.record.store import Store, Summary
from metier.record.usage import SORTS, SessionCounter, SessionUsage, Sort, since_ms, together
from metier.surfaces.web.site import Site

SESSIONS: Final = 200
"""The sessions that are counted."""
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


class UsedSession(NamedTuple):
    """A session, and what it did with skills."""

    summary: Summary
    counted: SessionUsage

    @property
    def skills(self) -> list[str]:
        """The skills that it loaded, read, ran or refused."""
        return [name for name, counts in self.counted.counts.items() if any(counts[what] for what in MEASURES)]

    def count(self, what: str) -> int:
        return sum(counts[what] for counts in self.counted.counts.values())


MEASURES: Final = ("loaded", "read", "ran", "refused")


def newest(store: Store) -> tuple[Sequence[UsedSession], int]:
    """The newest sessions of a store, and the number of all."""
    summaries = sorted((one for one in store.sessions() if not is_internal(one.id)), key=lambda one: -one.last_ms)
    return [UsedSession(one, _counted(store, one)) for one in summaries[:SESSIONS]], len(summaries)


@lru_cache(2 * SESSIONS)
def _counted(store: Store, summary: Summary) -> SessionUsage:
    """Counts again only where the summary has changed, and so has new events."""
    return SessionCounter(store).count(summary.id)


def index(site: Site, request: Request) -> Response:
    asked, order = request.query_params.get("since", ""), request.query_params.get("sort")
    since = asked if asked in SINCE else ""
    sort: Sort = order if order in SORTS else "context"
    sessions, total = newest(site.app.store)
    after = since_ms(since) if since else 0
    found = together((one.counted for one in sessions if one.summary.last_ms >= after), sort=sort)
    return site.page(
        request,
        "usage/index.html",
        found=found,
        rows=found.skills[:ROWS],
        names=NAMES,
        counted=len(sessions),
        total=total,
        known=site.skills(),
        since=since,
        times=SINCE,
        sort=sort,
        orders=ORDERS,
        store=site.app.store.location,
    )
