"""The interface of a store: the one declaration that sessions, replays and surfaces rely on.

Any object with these methods is a store. Nothing in Metier asks for the class of a store, so an implementation of your
own needs no base class. The contract tests in `tests/record/store` run against it unchanged.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Protocol, Self

from metier.record.store.values import (
    GRACE_MS,
    Document,
    Draft,
    Frame,
    Imported,
    Page,
    Pruned,
    Stats,
    Summary,
)


class Listener(Protocol):
    """Receives the notices of one channel of a store."""

    @abstractmethod
    def get(self, timeout: float | None = None) -> list[str]:
        """Return the payloads sent since the last call, and wait for the first if there is none yet.

        The list is empty when the timeout has passed or the store is closed.
        """


class Store(Protocol):
    """Keeps events in streams, the artifacts they name, and small documents, such as snapshots of sessions.

    All methods are synchronous and can be called from any thread. A store cannot be used after a fork; open a new one
    in the child process.

    All errors are `StoreError`, with a stable `reason`. An argument that cannot be stored raises one with the reason
    "invalid", and a store that is closed one with the reason "closed", before anything is written. A write either
    happens as a whole, once, and is durable when the method returns, or raises and changes nothing.

    To write a store, implement every method. Inheriting from this class is optional; if you do, Python reports missing
    methods when the store is created. `metier.record.store` has helpers for the parts that all stores share:

    - `prepare_append`, `prepare_restore` and `prepare_state` check and copy the arguments of a write.
    - `number_drafts` and `new_rows` give events their seq inside of a transaction, and find the ones already stored.
    - `check_name`, `check_digest`, `check_artifacts`, `check_stored_artifact` and `check_notice` check the rest.
    - `canonical`, `parse_frame` and `parse_value` turn frames and documents into text and back, and `digests_in` finds
      the artifacts that a frame names.
    - `export_lines` and `import_lines` implement the methods of the same name for any store.
    """

    location: str
    """The store's name for users: a path, or a URL without its password."""

    # Events

    @abstractmethod
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
        """Write events and the artifacts they name in one transaction, and return the frames in the drafts' order.

        The seq of the first event of a stream is 0, and rises by 1 without a gap, however many processes write. A draft
        whose id is already in the stream is not written again, even if it differs; its stored frame is returned. It is
        therefore safe to repeat an append whose answer was lost. An id of another stream, or a stream of another
        session or kind, is refused (reason "conflict").

        With `expected_seq`, the events are written only if that is the last seq of the stream (-1: it has no events).
        Otherwise nothing is written (`StreamConflict`). Of several writers that expect the same seq, exactly one
        succeeds. An append without a new draft, such as a repeat, is never a conflict.

        Without drafts, no stream is created; the artifacts are still written.
        """

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
    ) -> list[Frame]:
        """Return events in the order in which they were written, which within a stream is the order of seq.

        All filters are combined. `after` is a seq: only later events of each stream are returned. `since_ms` is the
        earliest timestamp. `limit` keeps the first events, or the last ones with `newest`. An unknown session or stream
        has no events.
        """

    @abstractmethod
    def page(
        self,
        cursor: int = 0,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        limit: int = 500,
    ) -> Page:
        """Return the next events of the whole store after a cursor; 0 is the beginning.

        Following the pages from cursor to cursor returns every event exactly once. An event whose transaction began
        early and ended late is never skipped; the page ends before it instead. A cursor is valid only in its own store.
        """

    @abstractmethod
    def cursor(self) -> int:
        """Return the cursor after all events that a page would return now."""

    @abstractmethod
    def wait(self, after_cursor: int, timeout: float | None = None) -> bool:
        """Block until there may be events after the cursor.

        Returns false when the timeout has passed or the store is closed.
        """

    @abstractmethod
    def follow(
        self,
        cursor: int | None = None,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[Frame]:
        """Yield events as they are written, starting after a cursor (`None`: now).

        It ends when the store is closed or `stop` returns true. `stop` is called at least once a second.
        """

    @abstractmethod
    def last_seq(self, stream_id: str) -> int:
        """Return the seq of the last event of a stream, or -1 if it has none."""

    @abstractmethod
    def sessions(self) -> list[Summary]:
        """Return all sessions that have events, the oldest first."""

    # Artifacts

    @abstractmethod
    def put_artifact(self, content: bytes) -> str:
        """Store bytes under their digest (`sha256:<hex>`), and return it. Equal bytes are stored once."""

    @abstractmethod
    def get_artifact(self, digest: str) -> bytes:
        """Return the bytes of a digest.

        The digest is verified: the reason of the error is "missing-artifact" or "changed-artifact".
        """

    @abstractmethod
    def artifacts(self, session_id: str | None = None) -> list[str]:
        """Return the sorted digests of all artifacts, or of those that the events of a session name."""

    # State

    @abstractmethod
    def save_state(self, session_id: str, key: str, value: object, expected_version: int | None = None) -> int:
        """Save a small JSON document, and return its new version.

        With an expected version (0: none yet), another version in the store raises `StateConflict`.
        """

    @abstractmethod
    def load_state(self, session_id: str, key: str) -> Document | None:
        """Return a document of a session with its version."""

    @abstractmethod
    def states(self, session_id: str | None = None, key: str | None = None) -> list[tuple[str, Document]]:
        """Return documents with the ids of their sessions, sorted by session and key.

        `session_id` and `key` limit them to one session or one key.
        """

    # Notices

    @abstractmethod
    def notify(self, channel: str, payload: str = "") -> None:
        """Send a notice to all listeners on a channel of this store, in this process and in others.

        An open listener receives it once and in order, or at most twice if its connection broke in between.
        """

    @abstractmethod
    def listen(self, channel: str) -> Listener:
        """Return a listener that receives the notices sent on a channel from now on."""

    # Administration

    @abstractmethod
    def stats(self) -> Stats:
        """Return how much the store holds."""

    @abstractmethod
    def prune(self, older_than_ms: int, keep_sessions: Collection[str] = (), *, grace_ms: int = GRACE_MS) -> Pruned:
        """Remove all sessions whose last event is older than a point in time, together with their documents.

        Artifacts that no event names any more as a whole string are removed too, unless they were stored within the
        last `grace_ms` milliseconds. So are old documents of sessions without events.
        """

    @abstractmethod
    def export_lines(self, session_id: str | None = None) -> Iterator[str]:
        """Yield one session, or the whole store, as JSON lines without line ends.

        Artifacts come first, then frames, then documents. An artifact is `{"artifact": digest, "base64": ...}`, and a
        document is `{"state": key, "session_id": ..., "version": ..., "value": ...}`. Each session ends with the line
        `{"end": session_id, "lines": ..., "sha256": ...}`: the number of its lines, and the hash of their texts with a
        line feed after each. What belongs to no session comes last, with the end `null`. Every other line is a frame.
        """

    @abstractmethod
    def import_lines(self, lines: Iterable[str]) -> Imported:
        """Write the lines of an export. Content that is already stored is skipped, so an import can be repeated.

        All lines are checked before anything is written: their form, digests, gaps in seq, and differences from what is
        stored. A session whose end line does not fit, or a file that was cut before one, is refused (reason "changed"),
        and so is a session whose record has another version (reason "version"). An error names the number of the line.
        """

    @abstractmethod
    def restore(
        self,
        frames: Iterable[Mapping[str, object]],
        artifacts: Iterable[bytes] = (),
        states: Iterable[tuple[str, Document]] = (),
    ) -> Imported:
        """Write complete frames at the seq they have, in one transaction. `import_lines` uses it.

        A frame that is already stored is skipped if it is the same (else reason "conflict"). A frame that would leave a
        gap is refused (reason "gap"). A document is written only if its version is higher than the stored one.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files and connections, and end all waiting calls. A second call does nothing."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
