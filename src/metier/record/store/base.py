"""What the three stores share: the checks before a write, waiting for a change, following, listening, export.

A store rings its bell (`ring`) after each of its own writes and whenever it learns of a write by another process, and
whoever waits looks again. Invariant: rings are counted before the look, so that one in between is never missed.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from metier.errors import StoreError
from metier.record.store import lines as jsonl
from metier.record.store.values import (
    NOTICE_BYTES,
    STATE_BYTES,
    Batch,
    Document,
    Draft,
    Frame,
    Page,
    StateChange,
    Summary,
    artifacts_of,
    check_artifact,
    check_digest,
    check_frame,
    check_name,
    check_whole,
    encode,
    missing_artifact,
    plain,
    prepare,
)

TOUCH_MS: Final = 600_000
"""A stored artifact is marked as used again at most this often, so that loading a skill twice writes no row twice."""

NOTICES_MS: Final = 3_600_000
"""How long a notice is kept for listeners that lost their connection."""

_BREATH: Final = 1.0
"""Seconds after which a follower looks whether it shall stop."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Listener:
    """An ear on one channel of a store."""

    def __init__(self, store: "BaseStore", channel: str) -> None:
        self._store, self._channel, self._last = store, channel, store.last_notice()

    def get(self, timeout: float | None = None) -> list[str]:
        """The payloads since the last call; waits for the first. Empty when time is over or the store is closed."""
        heard: list[tuple[int, str]] = []

        def ready() -> bool:
            heard.extend(self._store.notices(self._channel, self._last))
            return bool(heard)

        if self._store.until(ready, timeout):
            self._last = heard[-1][0]
        return [payload for _, payload in heard]


class BaseStore(ABC):
    """The common part of the stores; see `Store` for the contract of each method."""

    poll_seconds: ClassVar[float] = 3600.0
    """How long a waiter trusts the bell alone."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._bell = threading.Condition()
        self._rings = 0
        self._closed = False
        self._pid = os.getpid()

    def usable(self) -> None:
        """Refuse a store that is closed, or that was opened before a fork: both sides would use one connection."""
        if self._closed:
            raise StoreError("the store is closed", reason="closed", store=self.location)
        if self._pid != os.getpid():
            hint = "open a store of its own in each process"
            raise StoreError("the store was opened before a fork", reason="closed", store=self.location, hint=hint)

    # Writing

    def append(
        self,
        session_id: str,
        stream_kind: str,
        stream_id: str,
        drafts: Iterable[Draft],
        artifacts: Iterable[bytes] = (),
        state: tuple[str, Any, int] | None = None,
    ) -> list[Frame]:
        batch = prepare(session_id, stream_kind, stream_id, drafts, artifacts)
        saved = None
        if state is not None:
            key, value, expected = state
            check_whole(expected, "the expected version")
            saved = StateChange(batch.session_id, check_name(key, "the key"), self._state_text(value), expected)
        self.usable()
        if not batch.drafts:
            if batch.artifacts:
                self.write_artifacts(batch.artifacts)
            if saved is not None:
                self.write_state(saved)
            return []
        frames = self.write(batch, saved)
        self.ring()
        return frames

    def restore(
        self,
        frames: Iterable[Mapping[str, Any]],
        artifacts: Iterable[bytes] = (),
        states: Iterable[tuple[str, Document]] = (),
    ) -> jsonl.Imported:
        checked = [check_frame(frame) for frame in frames]
        texts = [
            (check_name(session_id, "the session id"), check_name(document.key, "the key"), document.version, text)
            for session_id, document in states
            for text in [self._state_text(document.value)]
        ]
        contents = artifacts_of(artifacts)
        self.usable()
        done = self.write_restored(checked, contents, texts)
        self.ring()
        return done

    def put_artifact(self, content: bytes) -> str:
        contents = artifacts_of([content])
        self.usable()
        self.write_artifacts(contents)
        return next(iter(contents))

    def get_artifact(self, digest: str) -> bytes:
        check_digest(digest)
        self.usable()
        content = self.read_artifact(digest)
        if content is None:
            raise missing_artifact(digest, self.location)
        return check_artifact(content, digest, self.location)

    def save_state(self, session_id: str, key: str, value: Any, expected_version: int | None = None) -> int:
        check_name(session_id, "the session id")
        check_name(key, "the key")
        if expected_version is not None:
            check_whole(expected_version, "the expected version")
        change = StateChange(session_id, key, self._state_text(value), expected_version)
        self.usable()
        return self.write_state(change)

    def notify(self, channel: str, payload: str = "") -> None:
        check_name(channel, "the channel")
        try:
            size = len(payload.encode())
        except UnicodeEncodeError:
            size = -1
        if not 0 <= size <= NOTICE_BYTES or "\0" in payload:
            hint = f"text of at most {NOTICE_BYTES} bytes; say where to look"
            raise StoreError("the notice cannot be sent", reason="invalid", hint=hint)
        self.usable()
        self.write_notice(channel, payload)
        self.ring()

    # Waiting

    def ring(self) -> None:
        """Wake whoever waits for a change."""
        with self._bell:
            self._rings += 1
            self._bell.notify_all()

    @abstractmethod
    def look_outside(self) -> None:
        """Ring if another process wrote. Called every `poll_seconds` by waiters."""

    def until(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for a change that makes `ready` true; false when time is over or the store is closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self.usable()
        while not self._closed:
            with self._bell:
                heard = self._rings
            try:
                if ready():
                    return True
            except StoreError:
                if self._closed:
                    return False
                raise
            while not self._closed:
                left = self.poll_seconds if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                with self._bell:
                    if self._rings == heard and not self._closed:
                        self._bell.wait(min(left, self.poll_seconds))
                    if self._rings != heard:
                        break
                if not self._closed:
                    self.look_outside()
        return False

    def wait(self, after_cursor: int, timeout: float | None = None) -> bool:
        return self.until(lambda: self.cursor() > after_cursor, timeout)

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
                self.wait(place, _BREATH)
            place = page.cursor

    def listen(self, channel: str) -> Listener:
        check_name(channel, "the channel")
        self.usable()
        return Listener(self, channel)

    # Moving

    def export_lines(self, session_id: str | None = None) -> Iterator[str]:
        return jsonl.export_lines(self, session_id)

    def import_lines(self, lines: Iterable[str]) -> jsonl.Imported:
        return jsonl.import_lines(self, lines)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.ring()
            if self._pid == os.getpid():
                self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def _state_text(value: Any) -> str:
        return encode(plain(value, "state"), "the state", STATE_BYTES)

    # What each store does in its own way

    @abstractmethod
    def write(self, batch: Batch, state: StateChange | None) -> list[Frame]: ...

    @abstractmethod
    def write_restored(
        self, frames: list[Frame], artifacts: Mapping[str, bytes], states: list[tuple[str, str, int, str]]
    ) -> jsonl.Imported: ...

    @abstractmethod
    def write_artifacts(self, artifacts: Mapping[str, bytes]) -> None: ...

    @abstractmethod
    def write_state(self, change: StateChange) -> int: ...

    @abstractmethod
    def write_notice(self, channel: str, payload: str) -> None: ...

    @abstractmethod
    def read_artifact(self, digest: str) -> bytes | None: ...

    @abstractmethod
    def notices(self, channel: str, after: int) -> list[tuple[int, str]]: ...

    @abstractmethod
    def last_notice(self) -> int: ...

    @abstractmethod
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
    ) -> list[Frame]: ...

    @abstractmethod
    def page(
        self,
        cursor: int = 0,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        limit: int = 500,
    ) -> Page: ...

    @abstractmethod
    def cursor(self) -> int: ...

    @abstractmethod
    def last_seq(self, stream_id: str) -> int: ...

    @abstractmethod
    def sessions(self) -> list[Summary]: ...

    @abstractmethod
    def artifacts(self, session_id: str | None = None) -> list[str]: ...

    @abstractmethod
    def load_state(self, session_id: str, key: str) -> Document | None: ...

    @abstractmethod
    def states(self, session_id: str | None = None, key: str | None = None) -> list[tuple[str, Document]]: ...

    @abstractmethod
    def release(self) -> None: ...
