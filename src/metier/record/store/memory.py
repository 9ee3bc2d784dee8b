"""A store that lives and dies with its process: for tests, and for sessions that nobody wants to keep.

It keeps texts, as the others do, so that whatever it returns went through the same encoding. One lock guards
everything; a write either raises before it changes anything or happens whole.
"""

import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from metier.record.store.base import NOTICES_MS, BaseStore, now_ms
from metier.record.store.lines import Imported
from metier.record.store.values import (
    GRACE_MS,
    Batch,
    Document,
    Frame,
    Page,
    Pruned,
    Row,
    StateChange,
    Stats,
    Stream,
    Summary,
    number,
    parse,
    references,
    same_stream,
    settle,
)


@dataclass(slots=True)
class _State:
    version: int
    text: str
    saved_ms: int


class MemoryStore(BaseStore):
    """See `Store`."""

    def __init__(self) -> None:
        super().__init__("memory:")
        self._lock = threading.RLock()
        self._position = 0
        self._events: dict[int, Row] = {}
        self._by_id: dict[str, int] = {}
        self._streams: dict[str, Stream] = {}
        self._contents: dict[str, tuple[bytes, int]] = {}
        self._uses: dict[str, set[str]] = {}
        self._states: dict[tuple[str, str], _State] = {}
        self._notices: list[tuple[int, str, str, int]] = []
        self._noticed = 0

    def write(self, batch: Batch, state: StateChange | None) -> list[Frame]:
        with self._lock:
            stream = self._streams.get(batch.stream_id)
            stream = stream or Stream(batch.stream_id, batch.session_id, batch.stream_kind)
            same_stream(stream, batch.session_id, batch.stream_kind)
            frames, rows = number(batch, stream.next_seq, self._texts(batch.ids))
            if state is not None:
                self.write_state(state)
            self.write_artifacts(batch.artifacts)
            self._streams[stream.id] = stream
            self._insert(rows)
            return frames

    def write_restored(
        self, frames: list[Frame], artifacts: Mapping[str, bytes], states: list[tuple[str, str, int, str]]
    ) -> Imported:
        with self._lock:
            streams = {
                frame["stream_id"]: Stream(frame["stream_id"], frame["session_id"], frame["stream_kind"])
                for frame in frames
            }
            streams.update((id_, stream) for id_, stream in self._streams.items() if id_ in streams)
            rows = settle(frames, streams, self._texts([frame["id"] for frame in frames]))
            fresh = len(artifacts.keys() - self._contents.keys())
            self.write_artifacts(artifacts)
            self._streams.update(streams)
            self._insert(rows)
            saved = 0
            for session_id, key, version, text in states:
                state = self._states.get((session_id, key))
                if state is None or state.version < version:
                    self._states[session_id, key] = _State(version, text, now_ms())
                    saved += 1
            return Imported(len(rows), fresh, saved)

    def write_artifacts(self, artifacts: Mapping[str, bytes]) -> None:
        with self._lock:
            self._contents.update((digest, (content, now_ms())) for digest, content in artifacts.items())

    def write_state(self, change: StateChange) -> int:
        with self._lock:
            place = (change.session_id, change.key)
            known = self._states.get(place)
            version = change.next_version(known.version if known else 0)
            self._states[place] = _State(version, change.text, now_ms())
            return version

    def write_notice(self, channel: str, payload: str) -> None:
        with self._lock:
            now = now_ms()
            self._noticed += 1
            self._notices = [notice for notice in self._notices if notice[3] > now - NOTICES_MS]
            self._notices.append((self._noticed, channel, payload, now))

    def notices(self, channel: str, after: int) -> list[tuple[int, str]]:
        with self._lock:
            return [(number_, text) for number_, name, text, _ in self._notices if number_ > after and name == channel]

    def last_notice(self) -> int:
        return self._noticed

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
        self.usable()
        with self._lock:
            found = (
                row.text
                for row in self._select(0, session_id, stream_id, types)
                if row.seq > after and (since_ms is None or row.timestamp_ms >= since_ms)
            )
            texts = deque(found, limit) if newest else list(islice(found, limit))
        return [parse(text) for text in texts]

    def page(
        self,
        cursor: int = 0,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        limit: int = 500,
    ) -> Page:
        self.usable()
        with self._lock:
            rows = list(islice(self._select(cursor, session_id, stream_id, types), max(limit, 1)))
            end = self._by_id[rows[-1].id] if len(rows) == max(limit, 1) else max(self._position, cursor)
        return Page(tuple(parse(row.text) for row in rows), end)

    def cursor(self) -> int:
        return self._position

    def last_seq(self, stream_id: str) -> int:
        self.usable()
        with self._lock:
            stream = self._streams.get(stream_id)
            return stream.next_seq - 1 if stream else -1

    def sessions(self) -> list[Summary]:
        self.usable()
        times: dict[str, list[int]] = {}
        with self._lock:
            for row in self._events.values():
                times.setdefault(row.session_id, []).append(row.timestamp_ms)
        found = [Summary(session_id, min(given), max(given), len(given)) for session_id, given in times.items()]
        return sorted(found, key=lambda summary: (summary.first_ms, summary.id))

    def read_artifact(self, digest: str) -> bytes | None:
        with self._lock:
            return self._contents.get(digest, (None, 0))[0]

    def artifacts(self, session_id: str | None = None) -> list[str]:
        self.usable()
        with self._lock:
            wanted = self._contents.keys() if session_id is None else self._uses.get(session_id, set())
            return sorted(digest for digest in wanted if digest in self._contents)

    def load_state(self, session_id: str, key: str) -> Document | None:
        self.usable()
        with self._lock:
            state = self._states.get((session_id, key))
        return Document(key, state.version, parse(state.text)) if state else None

    def states(self, session_id: str | None = None, key: str | None = None) -> list[tuple[str, Document]]:
        self.usable()
        with self._lock:
            found = sorted(
                item for item in self._states.items() if session_id in (None, item[0][0]) and key in (None, item[0][1])
            )
        return [(session, Document(name, state.version, parse(state.text))) for (session, name), state in found]

    def stats(self) -> Stats:
        self.usable()
        with self._lock:
            size = sum(len(content) for content, _ in self._contents.values())
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

    def prune(self, older_than_ms: int, keep_sessions: Collection[str] = (), *, grace_ms: int = GRACE_MS) -> Pruned:
        self.usable()
        with self._lock:
            old = {
                summary.id
                for summary in self.sessions()
                if summary.last_ms < older_than_ms and summary.id not in keep_sessions
            }
            gone = [(position, row) for position, row in self._events.items() if row.session_id in old]
            for position, row in gone:
                del self._events[position], self._by_id[row.id]
            self._streams = {id_: stream for id_, stream in self._streams.items() if stream.session_id not in old}
            self._uses = {session: digests for session, digests in self._uses.items() if session not in old}
            living = {stream.session_id for stream in self._streams.values()} | set(keep_sessions)
            for session, key in list(self._states):
                stale = session not in living and self._states[session, key].saved_ms < older_than_ms
                if session in old or stale:
                    del self._states[session, key]
            used = set[str]().union(*self._uses.values())
            limit = now_ms() - grace_ms
            loose = [
                digest for digest, (_, touched) in self._contents.items() if digest not in used and touched <= limit
            ]
            freed = sum(len(self._contents.pop(digest)[0]) for digest in loose)
            return Pruned(len(old), len(gone), len(loose), freed)

    def look_outside(self) -> None:
        """There is no outside."""

    def release(self) -> None:
        """Nothing to let go of."""

    def _texts(self, ids: Iterable[str]) -> dict[str, str]:
        return {id_: self._events[self._by_id[id_]].text for id_ in ids if id_ in self._by_id}

    def _insert(self, rows: list[Row]) -> None:
        for row in rows:
            self._position += 1
            self._events[self._position] = row
            self._by_id[row.id] = self._position
            self._streams[row.stream_id].next_seq = row.seq + 1
            self._uses.setdefault(row.session_id, set()).update(references([row.text]))

    def _select(
        self, cursor: int, session_id: str | None, stream_id: str | None, types: Collection[str] | None
    ) -> Iterable[Row]:
        return (
            row
            for position, row in self._events.items()
            if position > cursor
            and session_id in (None, row.session_id)
            and stream_id in (None, row.stream_id)
            and (types is None or row.type in types)
        )
