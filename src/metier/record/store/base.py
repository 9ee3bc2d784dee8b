"""The part that the built-in stores share: checks before a write, waiting, following, listening and export.

A store calls `_wake` after each of its own writes, and whenever it learns of a write by another process; every waiting
call then checks its condition again. Invariant: wake-ups are counted before the condition is checked, so one that
happens in between is never missed.
"""

import os
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import ClassVar, Final, NamedTuple, Self

from metier.errors import StoreError
from metier.record.store import lines as jsonl
from metier.record.store.checks import check_artifacts, check_digest, check_name, check_notice, check_stored_artifact
from metier.record.store.protocol import Listener, Store
from metier.record.store.values import Document, Draft, Frame, Imported, Page
from metier.record.store.writes import (
    AppendBatch,
    RestoreBatch,
    StateChange,
    prepare_append,
    prepare_restore,
    prepare_state,
)
from metier.values.value import Value

TOUCH_MS: Final = 600_000
"""A stored artifact is marked as used again at most this often, so that loading a skill twice writes no row twice."""

NOTICES_MS: Final = 3_600_000
"""How long a notice is kept for listeners that lost their connection."""

_STOP_SECONDS: Final = 1.0
"""How often a follower checks whether it should stop."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Selection(Value, kw_only=True):
    """The filters of `Store.read` and `Store.page`, combined. `None` stands for no filter."""

    session_id: str | None = None
    stream_id: str | None = None
    types: Collection[str] | None = None
    cursor: int = 0
    """Only events after this position of the store."""
    after: int = -1
    """Only events after this seq of their stream."""
    since_ms: int | None = None
    limit: int | None = None
    newest: bool = False
    """Whether a limit keeps the last events instead of the first."""


class Notice(NamedTuple):
    """A notice as a listener reads it. Numbers rise in the order in which notices were sent."""

    number: int
    payload: str


class _NoticeListener:
    """Reads the notices of one channel, starting after a number."""

    def __init__(
        self,
        last: int,
        read: Callable[[int], list[Notice]],
        wait_until: Callable[[Callable[[], bool], float | None], bool],
    ) -> None:
        self._last, self._read, self._wait_until = last, read, wait_until

    def get(self, timeout: float | None = None) -> list[str]:
        found: list[Notice] = []

        def ready() -> bool:
            found.extend(self._read(self._last))
            return bool(found)

        if self._wait_until(ready, timeout):
            self._last = found[-1].number
        return [notice.payload for notice in found]


class BaseStore(Store):
    """Implements the common part of `Store`. Each built-in store adds the rest and the hooks at the end."""

    _poll_seconds: ClassVar[float] = 3600.0
    """How long a waiting call relies on `_wake` alone before it calls `_poll`."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._woken = threading.Condition()
        self._wakes = 0
        self._closed = False
        self._pid = os.getpid()

    def _check_open(self) -> None:
        """Refuse a store that is closed or was opened before a fork: both processes would share a connection."""
        if self._closed:
            raise StoreError("the store is closed", reason="closed", store=self.location)
        if self._pid != os.getpid():
            hint = "open a new store in each process"
            raise StoreError("the store was opened before a fork", reason="closed", store=self.location, hint=hint)

    # Writing

    def append(
        self,
        session_id: str,
        stream_kind: str,
        stream_id: str,
        drafts: Iterable[Draft],
        artifacts: Iterable[bytes] = (),
        *,
        expected_seq: int | None = None,
    ) -> list[Frame]:
        batch = prepare_append(session_id, stream_kind, stream_id, drafts, artifacts, expected_seq=expected_seq)
        self._check_open()
        if not batch.drafts:
            if batch.artifacts:
                self._write_artifacts(batch.artifacts)
            return []
        frames = self._write(batch)
        self._wake()
        return frames

    def restore(
        self,
        frames: Iterable[Mapping[str, object]],
        artifacts: Iterable[bytes] = (),
        states: Iterable[tuple[str, Document]] = (),
    ) -> Imported:
        batch = prepare_restore(frames, artifacts, states)
        self._check_open()
        imported = self._write_restored(batch)
        self._wake()
        return imported

    def put_artifact(self, content: bytes) -> str:
        contents = check_artifacts([content])
        self._check_open()
        self._write_artifacts(contents)
        return next(iter(contents))

    def save_state(self, session_id: str, key: str, value: object, expected_version: int | None = None) -> int:
        change = prepare_state(session_id, key, value, expected_version)
        self._check_open()
        return self._write_state(change)

    def notify(self, channel: str, payload: str = "") -> None:
        check_name(channel, "the channel")
        check_notice(payload)
        self._check_open()
        self._write_notice(channel, payload)
        self._wake()

    # Reading

    def read(
        self,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        after: int = -1,
        limit: int | None = None,
        since_ms: int | None = None,
        *,
        newest: bool = False,
    ) -> list[Frame]:
        self._check_open()
        selection = Selection(
            session_id=session_id,
            stream_id=stream_id,
            types=types,
            after=after,
            since_ms=since_ms,
            limit=limit,
            newest=newest,
        )
        return self._read_frames(selection)

    def page(
        self,
        cursor: int = 0,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        limit: int = 500,
    ) -> Page:
        self._check_open()
        return self._read_page(
            Selection(session_id=session_id, stream_id=stream_id, types=types, cursor=cursor, limit=max(limit, 1))
        )

    def get_artifact(self, digest: str) -> bytes:
        check_digest(digest)
        self._check_open()
        return check_stored_artifact(self._read_artifact(digest), digest, self.location)

    # Waiting

    def _wake(self) -> None:
        """Make all waiting calls check their condition again."""
        with self._woken:
            self._wakes += 1
            self._woken.notify_all()

    def _wait_until(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for a change that makes `ready` true. Return false on a timeout or when the store is closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._check_open()
        while not self._closed:
            with self._woken:
                seen = self._wakes
            try:
                if ready():
                    return True
            except StoreError:
                if self._closed:
                    return False
                raise
            if not self._wait_for_wake(seen, deadline):
                return False
        return False

    def _wait_for_wake(self, seen: int, deadline: float | None) -> bool:
        """Wait until there were more wake-ups than `seen`. Return false on a timeout or when the store is closed."""
        while not self._closed:
            left = self._poll_seconds if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            with self._woken:
                if self._wakes == seen and not self._closed:
                    self._woken.wait(min(left, self._poll_seconds))
                if self._wakes != seen:
                    return True
            if not self._closed:
                self._poll()
        return False

    def wait(self, after_cursor: int, timeout: float | None = None) -> bool:
        return self._wait_until(lambda: self.cursor() > after_cursor, timeout)

    def follow(
        self,
        cursor: int | None = None,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[Frame]:
        place = self.cursor() if cursor is None else cursor
        while not self._closed and not (stop and stop()):
            try:
                page = self.page(place, session_id, stream_id, types)
            except StoreError:
                if self._closed:
                    return
                raise
            yield from page.frames
            if page.cursor == place:
                self.wait(place, _STOP_SECONDS)
            place = page.cursor

    def listen(self, channel: str) -> Listener:
        check_name(channel, "the channel")
        self._check_open()
        return _NoticeListener(self._last_notice(), lambda after: self._read_notices(channel, after), self._wait_until)

    # Export, import and closing

    def export_lines(self, session_id: str | None = None) -> Iterator[str]:
        return jsonl.export_lines(self, session_id)

    def import_lines(self, lines: Iterable[str]) -> Imported:
        return jsonl.import_lines(self, lines)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._wake()
            if self._pid == os.getpid():
                self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Hooks that each store implements. Their arguments are checked, and the store is open.

    @abstractmethod
    def _write(self, batch: AppendBatch) -> list[Frame]:
        """Write a batch that has drafts, in one transaction."""

    @abstractmethod
    def _write_restored(self, batch: RestoreBatch) -> Imported:
        """Write the new frames, artifacts and documents of a batch in one transaction."""

    @abstractmethod
    def _write_artifacts(self, artifacts: Mapping[str, bytes]) -> None:
        """Write artifacts by digest."""

    @abstractmethod
    def _write_state(self, change: StateChange) -> int:
        """Save a document, and return its new version."""

    @abstractmethod
    def _write_notice(self, channel: str, payload: str) -> None:
        """Write a notice, and remove those older than `NOTICES_MS`."""

    @abstractmethod
    def _read_frames(self, selection: Selection) -> list[Frame]:
        """Return the selected frames, the oldest first."""

    @abstractmethod
    def _read_page(self, selection: Selection) -> Page:
        """Return the page that begins after the cursor of the selection, which has a limit of at least 1."""

    @abstractmethod
    def _read_artifact(self, digest: str) -> bytes | None:
        """Return the stored content of an artifact without verifying it."""

    @abstractmethod
    def _read_notices(self, channel: str, after: int) -> list[Notice]:
        """Return the notices of a channel after a number."""

    @abstractmethod
    def _last_notice(self) -> int:
        """Return the number of the last notice of any channel, or 0."""

    # Without an effect where no other process can write, and there is nothing to close.

    def _poll(self) -> None:
        """Call `_wake` if another process wrote. Waiting calls do this every `_poll_seconds`."""

    def _release(self) -> None:
        """Close files and connections."""
