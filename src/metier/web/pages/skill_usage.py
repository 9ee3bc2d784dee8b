"""The usage page: which skills were offered, found, loaded, read and run, and their share of the context.

It shows what `metier usage` prints, of the newest sessions of the store.
"""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from metier.record.usage import SORTS, TOKEN_CHARACTERS, Sort, since_ms
from metier.web.pages import usage
from metier.web.site import Site
from metier.web.threads import run_in_threadpool

SESSIONS: Final = 200
"""The sessions that the page counts."""
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
class UsagePages:
    """The page `/usage`."""

    site: Site

    async def index(self, request: Request) -> Response:
        return await run_in_threadpool(self._index, request)

    def _index(self, request: Request) -> Response:
        asked = request.query_params.get("since", "")
        since = asked if asked in SINCE else ""
        order = request.query_params.get("sort")
        sort: Sort = order if order in SORTS else "context"
        latest = usage.of(self.site.app.store, SESSIONS)
        found = latest.skills(since_ms(since) if since else 0, sort)
        return self.site.page(
            request,
            "usage/index.html",
            found=found,
            rows=found.skills[:ROWS],
            names=NAMES,
            counted=len(latest.sessions),
            total=latest.total,
            tokens=found.characters // TOKEN_CHARACTERS,
            known=self.site.skills(),
            since=since,
            times=SINCE,
            sort=sort,
            orders=ORDERS,
            store=self.site.app.store.location,
        )
