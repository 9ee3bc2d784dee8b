"""Whether a server can do its work: it answers, and its store takes writes.

The store is asked with a small durable write, because a full disk can still be read. However many ask, there is at most
one such write a second. Nobody needs a token for this, so a stranger learns only the kind of the trouble.
"""

import asyncio
import logging
import time
from typing import Final

from starlette.concurrency import run_in_threadpool

from metier.errors import StoreError, StoreReason
from metier.record.store import Store
from metier.record.writer import system_clock

_KEY: Final = "health"
"""The store document that is written."""
_FRESH_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 5.0
"""A store that takes longer counts as busy."""
_LOG: Final = logging.getLogger("metier")


class StoreHealth:
    """The health of one store. Belongs to one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._check: asyncio.Task[StoreReason | None] | None = None
        self._checked = 0.0
        self._known: StoreReason | None = None

    async def trouble(self) -> StoreReason | None:
        """Why events cannot be stored now; `None` if they can."""
        check = self._check
        if check is None or (check.done() and time.monotonic() - self._checked > _FRESH_SECONDS):
            check = self._check = asyncio.create_task(run_in_threadpool(self._write))
        done, _ = await asyncio.wait([check], timeout=_PATIENCE_SECONDS)
        return check.result() if done else "busy"

    def _write(self) -> StoreReason | None:
        reason: StoreReason | None = None
        try:
            self._store.save_state(_KEY, _KEY, {"checked_ms": system_clock()})
        except StoreError as error:
            reason = error.reason
            if reason != self._known:
                _LOG.warning("events cannot be stored: %s", error)
        self._known, self._checked = reason, time.monotonic()
        return reason
