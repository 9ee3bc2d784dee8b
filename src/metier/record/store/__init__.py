"""The trail of what happened: events in streams, the artifacts they speak of, and small session state.

One protocol, three implementations that pass one contract suite: memory (tests, throw-away sessions), SQLite (the
default, one file) and PostgreSQL (many hosts, one trail). Invariant: what `append` returned is on disk, once, at its
seq, and reads back byte for byte; what it did not return is there whole or not at all.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import unquote

from metier.errors import ConfigError, StateConflict, StoreError
from metier.record.store.base import Listener
from metier.record.store.lines import Imported
from metier.record.store.values import (
    ENVELOPE,
    EVENT_BYTES,
    GRACE_MS,
    NOTICE_BYTES,
    STATE_BYTES,
    Document,
    Draft,
    Frame,
    Page,
    Pruned,
    Stats,
    Summary,
    canonical,
)

__all__ = [
    "ENVELOPE",
    "EVENT_BYTES",
    "GRACE_MS",
    "NOTICE_BYTES",
    "STATE_BYTES",
    "Document",
    "Draft",
    "Frame",
    "Imported",
    "Listener",
    "Page",
    "Pruned",
    "StateConflict",
    "Stats",
    "Store",
    "StoreError",
    "Summary",
    "canonical",
    "open_store",
]

_HINT: Final = "memory:, a path, sqlite:///path or postgresql://user@host/database"


class Store(Protocol):
    """Where events go. All methods are synchronous and may be called from any thread; none survives a fork.

    Every method raises `StoreError` (with a stable `reason`) and nothing else of its own; an argument that cannot be
    stored raises it with reason "invalid" before anything is written.
    """

    location: str
    """The store as a person would name it, without a password."""

    def append(
        self,
        session_id: str,
        stream_kind: str,
        stream_id: str,
        drafts: Iterable[Draft],
        artifacts: Iterable[bytes] = (),
        state: tuple[str, Any, int] | None = None,
    ) -> list[Frame]:
        """Write events and the artifacts they speak of, in one transaction, durable on return.

        `state` is a document of the session to be saved with them: key, value, and the version that must stand, which
        rises by 1. If another one stands, nothing is written (`StateConflict`).

        The frames come back in the order of the drafts. Seq starts at 0 and rises by 1 in its stream without a gap,
        however many processes write. A draft whose id is in the stream already is not written again, whatever it says:
        its stored frame is returned. So an append whose answer was lost is simply repeated. An id that belongs to
        another stream, or a stream that belongs to another session, is refused (reason "conflict").
        """
        ...

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
        """Events in the order in which they were written, which within a stream is the order of seq.

        The filters are combined. `after` is a seq: of each stream only the events behind it. A limit keeps the first
        events or, with `newest`, the last. Reading what is not there gives an empty list.
        """
        ...

    def page(
        self,
        cursor: int = 0,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        limit: int = 500,
    ) -> Page:
        """The next events of the whole store behind a cursor, for followers; 0 is the beginning.

        The pages from cursor to cursor hold every event exactly once. An event of a transaction that began early and
        ended late is never jumped over; the page ends before it instead. A cursor belongs to the store it came from.
        """
        ...

    def cursor(self) -> int:
        """The cursor behind everything that a page would show now."""
        ...

    def wait(self, after_cursor: int, timeout: float | None = None) -> bool:
        """Block until there may be events behind the cursor (true), or time is over or the store closed (false)."""
        ...

    def follow(
        self,
        cursor: int | None = None,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[Frame]:
        """Events as they come, from a cursor on (`None`: from now), until the store is closed or `stop` says so.

        `stop` is asked at least once a second.
        """
        ...

    def last_seq(self, stream_id: str) -> int:
        """The seq of the last event of a stream, -1 when there is none."""
        ...

    def sessions(self) -> list[Summary]:
        """All sessions that have events, the oldest first."""
        ...

    def put_artifact(self, content: bytes) -> str:
        """Keep bytes under their digest (`sha256:<hex>`); the same bytes are kept once. Durable on return."""
        ...

    def get_artifact(self, digest: str) -> bytes:
        """The bytes of a digest, checked: reason "missing-artifact" or "changed-artifact" when they are not those."""
        ...

    def artifacts(self, session_id: str | None = None) -> list[str]:
        """The digests of all artifacts, or of those that a session's events name; sorted."""
        ...

    def save_state(self, session_id: str, key: str, value: Any, expected_version: int | None = None) -> int:
        """Keep a small JSON document and return its new version.

        With an expected version (0: there is none yet) it is saved only if that one stands, else `StateConflict`.
        """
        ...

    def load_state(self, session_id: str, key: str) -> Document | None:
        """The document under a key, with its version."""
        ...

    def states(self, session_id: str | None = None, key: str | None = None) -> list[tuple[str, Document]]:
        """The documents of a session (or of all), under one key (or all), with their session, by session and key."""
        ...

    def notify(self, channel: str, payload: str = "") -> None:
        """Tell everyone who listens on a channel of this store, in this process and others.

        A listener that is open gets it once, in order; twice at most when the connection broke in between.
        """
        ...

    def listen(self, channel: str) -> Listener:
        """Hear the notices of a channel from now on: `listener.get(timeout)` gives a list of payloads."""
        ...

    def stats(self) -> Stats:
        """How much is stored."""
        ...

    def prune(self, older_than_ms: int, keep_sessions: Collection[str] = (), *, grace_ms: int = GRACE_MS) -> Pruned:
        """Remove the sessions whose last event is older than a point in time, whole, with their state.

        An artifact lives as long as an event names its digest as a whole string; those that none names any more go
        too, once nobody has put them for `grace_ms`.
        """
        ...

    def export_lines(self, session_id: str | None = None) -> Iterator[str]:
        """One session or all as JSON lines (without line ends): artifacts, then frames as stored, then state.

        An artifact is `{"artifact": digest, "base64": ...}`, state is `{"state": key, "session_id": ..., "version":
        ..., "value": ...}`, every other line is a frame.
        """
        ...

    def import_lines(self, lines: Iterable[str]) -> Imported:
        """Take in what `export_lines` gave. What is there already is skipped, so it can be repeated.

        The whole input is checked before anything is written: lines, digests, gaps in seq, and differences from what is
        stored, each refused with the number of the line.
        """
        ...

    def restore(
        self,
        frames: Iterable[Mapping[str, Any]],
        artifacts: Iterable[bytes] = (),
        states: Iterable[tuple[str, Document]] = (),
    ) -> Imported:
        """Write complete frames at the seq they have, in one transaction: the step below `import_lines`.

        A frame that is stored is skipped if it is the same (else reason "conflict"); one that would leave a gap is
        refused (reason "gap"). Of two versions of a document the higher one stays.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections; waiting followers return. Closing twice is harmless."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_store(url: str, *, on_trouble: Callable[[str], None] | None = None, patience: float = 30.0) -> Store:
    """The store of a URL: `memory:`, a path, `sqlite:///path`, or `postgresql://user@host/database`.

    `patience` is how many seconds an operation may wait for a busy file or a lost server before it raises; `on_trouble`
    hears of a lost server, of each try to reach it, and of its return.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", url)
    name = scheme[1].lower() if scheme else ""
    rest = url[len(name) + 1 :] if name else url
    if name == "memory" and not rest.strip("/"):
        from metier.record.store.memory import MemoryStore

        return MemoryStore()
    if name in ("postgresql", "postgres"):
        from metier.record.store.postgres import PostgresStore

        return PostgresStore(url, on_trouble=on_trouble, patience=patience)
    if name == "sqlite":
        if rest.startswith("//"):
            # Three slashes are an empty host and an absolute path; some write four. Two would name a host.
            rest = "/" + rest.lstrip("/") if rest.startswith("///") else ""
        path = unquote(rest)
    elif name and rest.startswith("//"):
        path = ""
    else:
        path = os.path.expanduser(url)
    if not path.strip("/") or "\0" in path:
        raise ConfigError(f"{url!r} is no store", hint=_HINT)
    from metier.record.store.sqlite import SqliteStore

    return SqliteStore(path, patience=patience)
