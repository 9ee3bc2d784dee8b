"""Keeps a store within a bound: old sessions are deleted as a whole, and a record says which.

Sessions go by age, and beyond that the oldest ones by size, until the content fits. A session with an event in the last
day, the sessions that a process has open, and the streams of Metier itself are never deleted. A document in the store
says when this was done last, and its version is the lock: of several processes, one does the work, once a day.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from metier import limits
from metier.errors import StateConflict, StoreError
from metier.files.shapes import is_table
from metier.record.events import RETENTION, SessionsPruned, is_internal
from metier.record.store import Document, Draft, Pruned, Store, Summary, canonical
from metier.record.writer import random_ids, system_clock
from metier.values.value import Count, Value

DAY_MS: Final = 86_400_000
RECENT_MS: Final = DAY_MS
"""A session with an event in this time is never deleted, however large the store is."""

_CLAIM_MS: Final = 600_000
"""How long the work may take before another process may start it again, because the first one was killed."""
_BATCH: Final = 200
"""Sessions that are deleted before the size is measured again."""
_SAMPLE: Final = 200
_LISTED: Final = 1_000
"""How many ids an event lists."""
_START_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 3600.0
_LOG: Final = logging.getLogger("metier")


class Bound(Value):
    """How long and how much a store keeps. 0 stands for no bound."""

    days: Count = 90
    megabytes: Count = 2048

    def __str__(self) -> str:
        parts = [f"{self.days:,} days"] if self.days else []
        parts += [f"{self.megabytes:,} MiB"] if self.megabytes else []
        return " and ".join(parts) or "no bound"


def content_bytes(store: Store) -> int:
    """About how much content a store has: its artifacts, and its events by the size of the latest ones.

    The size on disk would not do: PostgreSQL keeps the space of deleted rows, so it does not shrink.
    """
    stats = store.stats()
    latest = store.read(limit=_SAMPLE, newest=True)
    size = sum(len(canonical(frame)) for frame in latest) // len(latest) if latest else 0
    return stats.artifact_bytes + stats.events * size


def enforce(
    store: Store,
    bound: Bound,
    *,
    keep: Collection[str] = (),
    clock: Callable[[], int] = system_clock,
    deadline: float | None = None,
) -> Pruned | None:
    """Delete what is beyond the bound, unless this was done within a day. Returns what was deleted.

    `deadline` is a time of the monotonic clock. What is left then is deleted the next time.
    """
    now = clock()
    first = store.read(limit=1)
    if not (bound.days or bound.megabytes) or not first or first[0]["timestamp_ms"] > now - RECENT_MS:
        return None  # nothing is old enough
    document = store.load_state(RETENTION, RETENTION)
    begun_ms, done_ms = _times(document)
    if now < max(done_ms + DAY_MS, begun_ms + _CLAIM_MS):
        return None
    version = document.version if document else 0
    try:
        version = store.save_state(RETENTION, RETENTION, {"begun_ms": now, "done_ms": done_ms}, version)
        done, finished = _delete(store, bound, keep, now, deadline)
        value = {"begun_ms": 0, "done_ms": now if finished else 0}
        store.save_state(RETENTION, RETENTION, value, version)
    except StateConflict:
        return None  # another process does it
    return done


def _times(document: Document | None) -> tuple[int, int]:
    """When the work was begun and done last; 0 for never."""
    known: object = document.value if document else None
    found = [known.get(key) if is_table(known) else 0 for key in ("begun_ms", "done_ms")]
    begun, done = (time if isinstance(time, int) else 0 for time in found)
    return begun, done


def prune(store: Store, older_than_ms: int, keep: Collection[str], reason: str, now: int) -> Pruned:
    """Delete the sessions whose last event is older than a point in time, and record which."""
    before = {summary.id for summary in store.sessions()}
    pruned = store.prune(older_than_ms, keep)
    if pruned.sessions:
        gone = sorted(before - {summary.id for summary in store.sessions()})
        event = SessionsPruned(
            reason=reason,
            sessions=tuple(gone[:_LISTED]),
            count=pruned.sessions,
            events=pruned.events,
            artifacts=pruned.artifacts,
            artifact_bytes=pruned.artifact_bytes,
        )
        store.append(RETENTION, RETENTION, RETENTION, [Draft(random_ids(), now, event.type, event.data())])
    return pruned


def _delete(store: Store, bound: Bound, keep: Collection[str], now: int, deadline: float | None) -> tuple[Pruned, bool]:
    """Delete in batches, and say whether nothing is left to delete."""
    together = Pruned()
    horizon = now - bound.days * DAY_MS
    while deadline is None or time.monotonic() < deadline:
        everything = store.sessions()
        kept = {RETENTION, *keep, *(summary.id for summary in everything if is_internal(summary.id))}
        rest = sorted(
            (summary for summary in everything if summary.id not in kept and summary.last_ms < now - RECENT_MS),
            key=lambda summary: summary.last_ms,
        )
        batch = [summary for summary in rest[:_BATCH] if bound.days and summary.last_ms < horizon]
        reason = "age" if batch else "size"
        batch = batch or _excess(store, bound, rest, sum(summary.events for summary in everything))
        pruned = prune(store, batch[-1].last_ms + 1, kept, reason, now) if batch else Pruned()
        if not pruned.sessions:
            return together, True
        together = Pruned(
            together.sessions + pruned.sessions,
            together.events + pruned.events,
            together.artifacts + pruned.artifacts,
            together.artifact_bytes + pruned.artifact_bytes,
        )
    return together, False


def _excess(store: Store, bound: Bound, oldest: Sequence[Summary], events: int) -> Sequence[Summary]:
    """The oldest sessions whose share of all events is the share of the content that is beyond the bound."""
    if not bound.megabytes:
        return ()
    size, limit = content_bytes(store), bound.megabytes * limits.MIB
    if size <= limit:
        return ()
    wanted, count = events * (size - limit) / size, 0
    for number, summary in enumerate(oldest[:_BATCH], 1):
        count += summary.events
        if count >= wanted:
            return oldest[:number]
    return oldest[:_BATCH]


class Keeper:
    """Enforces the bound of a store in the background, as long as a server runs. `open_sessions` are never deleted."""

    def __init__(self, store: Store, bound: Bound, open_sessions: Callable[[], Collection[str]]) -> None:
        self._store, self._bound, self._open_sessions = store, bound, open_sessions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metier-retention", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        pause = _START_SECONDS
        while not self._stop.wait(pause):
            pause = _PAUSE_SECONDS
            try:
                done = enforce(self._store, self._bound, keep=self._open_sessions())
            except StoreError as error:
                _LOG.warning("old sessions were not deleted: %s", error)
                continue
            if done is not None and done.sessions:
                _LOG.info("%d old sessions were deleted; the store keeps %s", done.sessions, self._bound)

    def stop(self) -> None:
        """End the thread. A batch that is being deleted is finished first, within a few seconds."""
        self._stop.set()
        self._thread.join(5)
