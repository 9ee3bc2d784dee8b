"""A store written from scratch against the documented interface: no base class, and only public names.

It keeps everything in lists and dictionaries under one condition, and scans them for every read. It shows what an
implementation outside Metier needs, and the contract tests run against it like against the built-in stores.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from metier.record.store import (
    GRACE_MS,
    Document,
    Draft,
    EventRow,
    Frame,
    Imported,
    Page,
    Pruned,
    StateChange,
    Stats,
    StoreError,
    StreamHead,
    Summary,
    check_artifacts,
    check_digest,
    check_name,
    check_notice,
    check_stored_artifact,
    digests_in,
    export_lines,
    import_lines,
    new_rows,
    number_drafts,
    parse_frame,
    parse_value,
    prepare_append,
    prepare_restore,
    prepare_state,
)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Event:
    position: int
    row: EventRow


@dataclass(frozen=True)
class Saved:
    version: int
    text: str
    at_ms: int


class StrangerListener:
    def __init__(self, store: "StrangerStore", channel: str, seen: int) -> None:
        self._store, self._channel, self._seen = store, channel, seen

    def get(self, timeout: float | None = None) -> list[str]:
        found, self._seen = self._store._notices_after(self._channel, self._seen, timeout)
        return found


def opened(url: str, *, on_trouble: Callable[[str], None] | None, patience: float, outage: float) -> "StrangerStore":
    """What the entry point names. There is no file and no server to wait for."""
    return StrangerStore(url)


class StrangerStore:
    def __init__(self, location: str = "stranger:") -> None:
        self.location = location
        self._changed = threading.Condition()
        self._closed = False
        self._position = 0
        self._events: list[Event] = []
        self._streams: dict[str, StreamHead] = {}
        self._contents: dict[str, tuple[bytes, int]] = {}
        self._documents: dict[tuple[str, str], Saved] = {}
        self._notices: list[tuple[str, str]] = []

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
        with self._open():
            stream = self._streams.get(stream_id) or batch.new_stream()
            frames, rows = number_drafts(batch, stream, self._texts(batch.ids))
            self._put(batch.artifacts)
            self._add(rows, {stream_id: stream})
            return frames

    def restore(
        self,
        frames: Iterable[Mapping[str, object]],
        artifacts: Iterable[bytes] = (),
        states: Iterable[tuple[str, Document]] = (),
    ) -> Imported:
        batch = prepare_restore(frames, artifacts, states)
        with self._open():
            streams = {id_: self._streams.get(id_, new) for id_, new in batch.new_streams().items()}
            rows = new_rows(batch.frames, streams, self._texts(batch.ids))
            fresh = [digest for digest in batch.artifacts if digest not in self._contents]
            self._put(batch.artifacts)
            self._add(rows, streams)
            saved = 0
            for session_id, key, version, text in batch.states:
                stored = self._documents.get((session_id, key))
                if stored is None or stored.version < version:
                    self._documents[session_id, key] = Saved(version, text, now_ms())
                    saved += 1
            return Imported(len(rows), len(fresh), saved)

    def put_artifact(self, content: bytes) -> str:
        contents = check_artifacts([content])
        with self._open():
            self._put(contents)
        return next(iter(contents))

    def save_state(self, session_id: str, key: str, value: object, expected_version: int | None = None) -> int:
        change = prepare_state(session_id, key, value, expected_version)
        with self._open():
            return self._save(change)

    def notify(self, channel: str, payload: str = "") -> None:
        check_name(channel, "the channel")
        check_notice(payload)
        with self._open():
            self._notices.append((channel, payload))
            self._changed.notify_all()

    def _add(self, rows: list[EventRow], streams: Mapping[str, StreamHead]) -> None:
        for row in rows:
            self._position += 1
            self._events.append(Event(self._position, row))
            stream = self._streams.setdefault(row.stream_id, streams[row.stream_id])
            stream.next_seq = row.seq + 1
        self._changed.notify_all()

    def _put(self, contents: Mapping[str, bytes]) -> None:
        self._contents.update((digest, (content, now_ms())) for digest, content in contents.items())

    def _save(self, change: StateChange) -> int:
        stored = self._documents.get((change.session_id, change.key))
        version = change.next_version(stored.version if stored else 0)
        self._documents[change.session_id, change.key] = Saved(version, change.text, now_ms())
        return version

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
        with self._open():
            rows = [event.row for event in self._select(session_id, stream_id, types)]
        rows = [row for row in rows if row.seq > after and row.timestamp_ms >= (since_ms or 0)]
        if limit is not None:
            rows = rows[max(len(rows) - limit, 0) :] if newest else rows[:limit]
        return [parse_frame(row.text) for row in rows]

    def page(
        self,
        cursor: int = 0,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        limit: int = 500,
    ) -> Page:
        with self._open():
            found = [event for event in self._select(session_id, stream_id, types) if event.position > cursor]
            events = found[: max(limit, 1)]
            end = events[-1].position if len(found) > len(events) else max(self._position, cursor)
        return Page(tuple(parse_frame(event.row.text) for event in events), end)

    def cursor(self) -> int:
        with self._open():
            return self._position

    def last_seq(self, stream_id: str) -> int:
        with self._open():
            stream = self._streams.get(stream_id)
            return stream.next_seq - 1 if stream else -1

    def sessions(self) -> list[Summary]:
        with self._open():
            rows = [event.row for event in self._events]
        found: list[Summary] = []
        for session_id in {row.session_id for row in rows}:
            times = [row.timestamp_ms for row in rows if row.session_id == session_id]
            found.append(Summary(session_id, min(times), max(times), len(times)))
        return sorted(found, key=lambda summary: (summary.first_ms, summary.id))

    def get_artifact(self, digest: str) -> bytes:
        check_digest(digest)
        with self._open():
            content = self._contents[digest][0] if digest in self._contents else None
        return check_stored_artifact(content, digest, self.location)

    def artifacts(self, session_id: str | None = None) -> list[str]:
        with self._open():
            return sorted(self._contents.keys() & self._used(session_id) if session_id else self._contents)

    def load_state(self, session_id: str, key: str) -> Document | None:
        with self._open():
            saved = self._documents.get((session_id, key))
        return Document(key, saved.version, parse_value(saved.text)) if saved else None

    def states(self, session_id: str | None = None, key: str | None = None) -> list[tuple[str, Document]]:
        with self._open():
            places = sorted(self._documents)
            return [
                (session, Document(name, saved.version, parse_value(saved.text)))
                for session, name in places
                for saved in [self._documents[session, name]]
                if session_id in (None, session) and key in (None, name)
            ]

    def _select(self, session_id: str | None, stream_id: str | None, types: Collection[str] | None) -> Iterator[Event]:
        for event in self._events:
            same_session = session_id in (None, event.row.session_id)
            same_stream = stream_id in (None, event.row.stream_id)
            if same_session and same_stream and (types is None or event.row.type in types):
                yield event

    def _texts(self, ids: list[str]) -> dict[str, str]:
        return {event.row.id: event.row.text for event in self._events if event.row.id in ids}

    def _used(self, session_id: str | None = None) -> set[str]:
        texts = [event.row.text for event in self._select(session_id, None, None)]
        return set[str]().union(*map(digests_in, texts))

    # Waiting

    def wait(self, after_cursor: int, timeout: float | None = None) -> bool:
        with self._open():
            self._changed.wait_for(lambda: self._closed or self._position > after_cursor, timeout)
            return not self._closed and self._position > after_cursor

    def follow(
        self,
        cursor: int | None = None,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[Frame]:
        place = self.cursor() if cursor is None else cursor
        while not (stop and stop()):
            try:
                page = self.page(place, session_id, stream_id, types)
                yield from page.frames
                place = page.cursor
                self.wait(place, 1.0)
            except StoreError as error:
                if error.reason == "closed":
                    return
                raise

    def listen(self, channel: str) -> StrangerListener:
        check_name(channel, "the channel")
        with self._open():
            return StrangerListener(self, channel, len(self._notices))

    def _notices_after(self, channel: str, seen: int, timeout: float | None) -> tuple[list[str], int]:
        """Return the payloads of a channel after the first `seen` notices, and how many there are now."""

        def found() -> list[str]:
            return [payload for name, payload in self._notices[seen:] if name == channel]

        with self._open():
            self._changed.wait_for(lambda: self._closed or found(), timeout)
            return found(), len(self._notices)

    # Administration

    def stats(self) -> Stats:
        with self._open():
            artifact_bytes = sum(len(content) for content, _ in self._contents.values())
            return Stats(
                kind="stranger",
                location=self.location,
                schema=1,
                sessions=len({event.row.session_id for event in self._events}),
                streams=len(self._streams),
                events=len(self._events),
                artifacts=len(self._contents),
                artifact_bytes=artifact_bytes,
                states=len(self._documents),
                bytes=artifact_bytes + sum(len(event.row.text) for event in self._events),
            )

    def prune(self, older_than_ms: int, keep_sessions: Collection[str] = (), *, grace_ms: int = GRACE_MS) -> Pruned:
        with self._open():
            sessions = {summary.id: summary.last_ms for summary in self.sessions()}
            old = {id_ for id_, last in sessions.items() if last < older_than_ms and id_ not in keep_sessions}
            events = len(self._events)
            self._events = [event for event in self._events if event.row.session_id not in old]
            self._streams = {id_: stream for id_, stream in self._streams.items() if stream.session_id not in old}
            kept = (sessions.keys() | set(keep_sessions)) - old
            self._documents = {
                (session, key): saved
                for (session, key), saved in self._documents.items()
                if session in kept or (session not in old and saved.at_ms >= older_than_ms)
            }
            used, latest = self._used(), now_ms() - grace_ms
            unused = [id_ for id_, (_, put_ms) in self._contents.items() if id_ not in used and put_ms <= latest]
            sizes = [len(self._contents.pop(digest)[0]) for digest in unused]
            return Pruned(len(old), events - len(self._events), len(sizes), sum(sizes))

    def export_lines(self, session_id: str | None = None) -> Iterator[str]:
        return export_lines(self, session_id)

    def import_lines(self, lines: Iterable[str]) -> Imported:
        return import_lines(self, lines)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> threading.Condition:
        if self._closed:
            raise StoreError("the store is closed", reason="closed", store=self.location)
        return self._changed
