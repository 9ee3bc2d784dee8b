"""The usage page, and what the newest sessions of a store used, for other pages.

Only the newest sessions are read, so a page costs the same for a store of a day or a year. The counts of a session are
kept until it has new events.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from metier.record.events import is_internal
from metier.record.store import Store, Summary
from metier.record.usage import SORTS, SessionCounter, SessionUsage, Sort, since_ms, together
from metier.surfaces.web.site import Site

SESSIONS: Final = 200
"""The sessions that are counted."""
SINCE: Final = ("1d", "7d", "30d")


def newest(store: Store) -> tuple[Sequence[SessionUsage], int]:
    """The newest sessions of a store, and the number of all."""
    summaries = sorted((one for one in store.sessions() if not is_internal(one.id)), key=lambda one: -one.last_ms)
    return [_counted(store, one) for one in summaries[:SESSIONS]], len(summaries)


@lru_cache(2 * SESSIONS)
def _counted(store: Store, summary: Summary) -> SessionUsage:
    """Counts again only where the summary has changed, and so has new events."""
    return SessionCounter(store).count(summary)


def index(site: Site, request: Request) -> Response:
    since, order = request.query_params.get("since", ""), request.query_params.get("sort")
    sort: Sort = order if order in SORTS else "context"
    sessions, total = newest(site.app.store)
    after = since_ms(since) if since in SINCE else 0
    found = together((one for one in sessions if one.summary.last_ms >= after), sort=sort)
    return site.page(
        request,
        "usage/index.html",
        found=found,
        counted=len(sessions),
        total=total,
        known=site.skills(),
        since=since,
        sort=sort,
        store=site.app.store.location,
    )
