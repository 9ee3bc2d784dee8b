"""A store in memory, for tests and for sessions that are not kept.

It keeps texts, as the other stores do, so that everything it returns went through the same encoding. One lock guards
all content. Invariant: a write raises before it changes anything, or happens as a whole.
"""

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from metier.record.store.base import NOTICES_MS, BaseStore, Notice, Selection, now_ms
from metier.record.store.values import (
    GRACE_MS,
    Document,
    Frame,
    Imported,
    Page,
    Pruned,
    Stats,
    Summary,
    parse_frame,
    parse_value,
)
from metier.record.store.writes import (
    AppendBatch,
    EventRow,
    RestoreBatch,
    StateChange,
    StreamHead,
    digests_in,
    new_rows,
    number_drafts,
)


class _StoredArtifact(NamedTuple):
    content: bytes
    touched_ms: int


class _State(NamedTuple):
    version: int
    text: str
    saved_ms: int


class _SentNotice(NamedTuple):
    number: int
    channel: str
    payload: str
    sent_ms: int


class MemoryStore(BaseStore):
    """A `Store` that exists as long as its process."""

    def __init__(self) -> None:
        super().__init__("memory:")
        self._lock = threading.RLock()
        self._position = 0
        self._events: dict[int, EventRow] = {}
        self._by_id: dict[str, int] = {}
        self._streams: dict[str, StreamHead] = {}
        self._positions: dict[str, list[int]] = {}
        """The positions of each stream's events, by seq. A session asks for its latest events before every step."""
        self._contents: dict[str, _StoredArtifact] = {}
        self._uses: dict[str, set[str]] = {}
        self._states: dict[tuple[str, str], _State] = {}
        self._notices: list[_SentNotice] = []
        self._notice_number = 0

    # Writing

    def _write(self, batch: AppendBatch) -> list[Frame]:
        with self._lock:
            stream = self._streams.get(batch.stream_id) or batch.new_stream()
            frames, rows = number_drafts(batch, stream, self._texts(batch.ids))
            self._write_artifacts(batch.artifacts)
            self._streams[stream.id] = stream
            self._insert(rows)
            return frames

    def _write_restored(self, batch: RestoreBatch) -> Imported:
        with self._lock:
            streams = batch.new_streams()
            streams.update((id_, stream) for id_, stream in self._streams.items() if id_ in streams)
            rows = new_rows(batch.frames, streams, self._texts(batch.ids))
            new_artifacts = len(batch.artifacts.keys() - self._contents.keys())
            self._write_artifacts(batch.artifacts)
            self._streams.update(streams)
            self._insert(rows)
            saved = 0
            for session_id, key, version, text in batch.states:
                state = self._states.get((session_id, key))
                if state is None or state.version < version:
                    self._states[session_id, key] = _State(version, text, now_ms())
                    saved += 1
            return Imported(len(rows), new_artifacts, saved)

    def _write_artifacts(self, artifacts: Mapping[str, bytes]) -> None:
        with self._lock:
            for digest, content in artifacts.items():
                self._contents[digest] = _StoredArtifact(content, now_ms())

    def _write_state(self, change: StateChange) -> int:
        with self._lock:
            place = (change.session_id, change.key)
            known = self._states.get(place)
            version = change.next_version(known.version if known else 0)
            self._states[place] = _State(version, change.text, now_ms())
            return version

    def _write_notice(self, channel: str, payload: str) -> None:
        with self._lock:
            now = now_ms()
            self._notice_number += 1
            self._notices = [notice for notice in self._notices if notice.sent_ms > now - NOTICES_MS]
            self._notices.append(_SentNotice(self._notice_number, channel, payload, now))

    def _insert(self, rows: list[EventRow]) -> None:
        for row in rows:
            self._position += 1
            self._events[self._position] = row
            self._by_id[row.id] = self._position
            self._positions.setdefault(row.stream_id, []).append(self._position)
            self._streams[row.stream_id].next_seq = row.seq + 1
            self._uses.setdefault(row.session_id, set()).update(digests_in(row.text))

    # Reading

    def _read_frames(self, selection: Selection) -> list[Frame]:
        with self._lock:
            found = (row.text for row in self._select(selection))
            limit = selection.limit
            texts = deque(found, limit) if selection.newest else list(islice(found, limit))
        return [parse_frame(text) for text in texts]

    def _read_page(self, selection: Selection) -> Page:
        with self._lock:
            rows = list(islice(self._select(selection), selection.limit))
            full = len(rows) == selection.limit
            end = self._by_id[rows[-1].id] if full else max(self._position, selection.cursor)
        return Page(tuple(parse_frame(row.text) for row in rows), end)

    def _select(self, selection: Selection) -> Iterator[EventRow]:
        session_id, stream_id, types = selection.session_id, selection.stream_id, selection.types
        cursor, after, since_ms = selection.cursor, selection.after, selection.since_ms
        places = self._events if stream_id is None else self._positions.get(stream_id, [])[after + 1 :]
        return (
            row
            for position, row in ((place, self._events[place]) for place in places)
            if position > cursor
            and session_id in (None, row.session_id)
            and stream_id in (None, row.stream_id)
            and (types is None or row.type in types)
            and row.seq > after
            and (since_ms is None or row.timestamp_ms >= since_ms)
        )

    def _texts(self, ids: Iterable[str]) -> dict[str, str]:
        return {id_: self._events[self._by_id[id_]].text for id_ in ids if id_ in self._by_id}

    def cursor(self) -> int:
        return self._position

    def last_seq(self, stream_id: str) -> int:
        self._check_open()
        with self._lock:
            stream = self._streams.get(stream_id)
            return stream.next_seq - 1 if stream else -1

    def sessions(self) -> list[Summary]:
        self._check_open()
        times: dict[str, list[int]] = {}
        with self._lock:
            for row in self._events.values():
                times.setdefault(row.session_id, []).append(row.timestamp_ms)
        found = [Summary(session_id, min(given), max(given), len(given)) for session_id, given in times.items()]
        return sorted(found, key=lambda summary: (summary.first_ms, summary.id))

    def _read_artifact(self, digest: str) -> bytes | None:
        with self._lock:
            artifact = self._contents.get(digest)
        return artifact.content if artifact else None

    def artifacts(self, session_id: str | None = None) -> list[str]:
        self._check_open()
        with self._lock:
            wanted = self._contents.keys() if session_id is None else self._uses.get(session_id, set())
            return sorted(digest for digest in wanted if digest in self._contents)

    def load_state(self, session_id: str, key: str) -> Document | None:
        self._check_open()
        with self._lock:
            state = self._states.get((session_id, key))
        return Document(key, state.version, parse_value(state.text)) if state else None

    def states(self, session_id: str | None = None, key: str | None = None) -> list[tuple[str, Document]]:
        self._check_open()
        with self._lock:
            found = sorted(
                item for item in self._states.items() if session_id in (None, item[0][0]) and key in (None, item[0][1])
            )
        return [(session, Document(name, state.version, parse_value(state.text))) for (session, name), state in found]

    def _read_notices(self, channel: str, after: int) -> list[Notice]:
        with self._lock:
            return [
                Notice(notice.number, notice.payload)
                for notice in self._notices
                if notice.number > after and notice.channel == channel
            ]

    def _last_notice(self) -> int:
        return self._notice_number

    def stats(self) -> Stats:
        self._check_open()
        with self._lock:
            size = sum(len(artifact.content) for artifact in self._contents.values())
            texts = sum(len(row.text) for row in self._events.values())
            return Stats(
                kind="memory",
                location=self.location,
                schema=0,
                sessions=len({stream.session_id for stream in self._streams.values()}),
                streams=len(self._streams),
                events=len(self._events),
                artifacts=len(self._contents),
                artifact_bytes=size,
                states=len(self._states),
                bytes=size + texts,
            )

    # Retention

    def prune(self, older_than_ms: int, keep_sessions: Collection[str] = (), *, grace_ms: int = GRACE_MS) -> Pruned:
        self._check_open()
        with self._lock:
            old = {
                summary.id
                for summary in self.sessions()
                if summary.last_ms < older_than_ms and summary.id not in keep_sessions
            }
            events = self._remove_sessions(old)
            self._remove_states(old, older_than_ms, keep_sessions)
            sizes = self._remove_artifacts(now_ms() - grace_ms)
            return Pruned(len(old), events, len(sizes), sum(sizes))

    def _remove_sessions(self, old: set[str]) -> int:
        """Remove the events of sessions, and return their number."""
        gone = [(position, row) for position, row in self._events.items() if row.session_id in old]
        for position, row in gone:
            del self._events[position], self._by_id[row.id]
        self._streams = {id_: stream for id_, stream in self._streams.items() if stream.session_id not in old}
        self._positions = {id_: places for id_, places in self._positions.items() if id_ in self._streams}
        self._uses = {session: digests for session, digests in self._uses.items() if session not in old}
        return len(gone)

    def _remove_states(self, old: set[str], older_than_ms: int, keep_sessions: Collection[str]) -> None:
        """Remove the documents of removed sessions, and old ones of sessions that have no events."""
        living = {stream.session_id for stream in self._streams.values()} | set(keep_sessions)
        for place, state in list(self._states.items()):
            stale = place[0] not in living and state.saved_ms < older_than_ms
            if place[0] in old or stale:
                del self._states[place]

    def _remove_artifacts(self, unused_since_ms: int) -> list[int]:
        """Remove the artifacts that no event names, and return their sizes."""
        used = set[str]().union(*self._uses.values())
        unused = [
            digest
            for digest, artifact in self._contents.items()
            if digest not in used and artifact.touched_ms <= unused_since_ms
        ]
        return [len(self._contents.pop(digest).content) for digest in unused]
