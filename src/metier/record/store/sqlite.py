"""The default store: one SQLite file, shared by any number of processes on one machine.

Writers queue for the file's write lock, so positions are in the order of commits, and a follower that goes by position
misses nothing. `sqlite_file` opens and locks the file and makes commits durable.
"""

import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

from metier.errors import StoreError
from metier.record.store.base import NOTICES_MS, TOUCH_MS, BaseStore, Notice, now_ms
from metier.record.store.group import GroupCommit
from metier.record.store.selection import Selection, newest_first
from metier.record.store.sqlite_file import SqliteFile, busy_error
from metier.record.store.together import parts, values_of, with_rows
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
    number_group,
)

_ALL: Final = """
SELECT position, body FROM events
WHERE position > :cursor AND seq > :after AND timestamp_ms >= :since
AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types))) ORDER BY position LIMIT :limit"""
_OF_SESSION: Final = """
SELECT position, body FROM events
WHERE session_id = :session AND position > :cursor AND seq > :after AND timestamp_ms >= :since
AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types))) ORDER BY position LIMIT :limit"""
_OF_STREAM: Final = """
SELECT position, body FROM events
WHERE stream_id = :stream AND (:session IS NULL OR session_id = :session)
AND position > :cursor AND seq > :after AND timestamp_ms >= :since
AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types))) ORDER BY seq LIMIT :limit"""

_INSERT_EVENTS: Final = "INSERT INTO events (id, session_id, stream_id, seq, timestamp_ms, type, body) VALUES {}"
_UPDATE_STREAMS: Final = """
INSERT INTO streams (stream_id, session_id, stream_kind, next_seq, first_ms, last_ms)
VALUES {} ON CONFLICT (stream_id) DO UPDATE SET next_seq = excluded.next_seq,
first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms)"""
_INSERT_USES: Final = "INSERT OR IGNORE INTO artifact_uses (session_id, digest) VALUES {}"
_RESTORE_STATE: Final = """
INSERT INTO states (session_id, key, version, saved_ms, value) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (session_id, key) DO UPDATE
SET version = excluded.version, saved_ms = excluded.saved_ms, value = excluded.value
WHERE states.version < excluded.version"""

_Record: TypeAlias = tuple[Any, ...]
"""A row of a result. The schema says what is in it."""


class SqliteStore(BaseStore):
    """A `Store` in one SQLite file."""

    _poll_seconds: ClassVar[float] = 0.02

    def __init__(self, path: str, *, patience: float = 30.0) -> None:
        super().__init__(os.path.abspath(path))
        self._file = SqliteFile(self.location, patience, self._check_open)
        self._group = GroupCommit[AppendBatch | StateChange, list[Frame] | int](
            self._commit, self._commit_alone, lambda: busy_error(self.location, patience), leaders=1, patience=patience
        )
        self._seen = self._file.version()

    def _poll(self) -> None:
        version = self._file.version()
        if version != self._seen:
            self._seen = version
            self._wake()

    def _release(self) -> None:
        self._file.close()

    # Writing

    def _write(self, batch: AppendBatch) -> list[Frame]:
        frames = self._group.write(batch)
        assert isinstance(frames, list)
        return frames

    def _write_state(self, change: StateChange) -> int:
        version = self._group.write(change)
        assert isinstance(version, int)
        return version

    def _commit_alone(self, write: AppendBatch | StateChange) -> list[Frame] | int:
        (outcome,) = self._commit([write])
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    def _commit(self, writes: Sequence[AppendBatch | StateChange]) -> list[list[Frame] | int | StoreError]:
        """Write appends and documents in one transaction. What is refused is refused before it writes anything."""
        appends = [write for write in writes if isinstance(write, AppendBatch)]
        with self._file.writing() as db:
            group = number_group(
                appends,
                self._select_streams(db, {batch.stream_id for batch in appends}),
                self._select_texts(db, [id_ for batch in appends for id_ in batch.ids]),
            )
            self._insert_artifacts(db, group.artifacts)
            self._insert(db, group.rows, group.streams)
            frames = iter(group.outcomes)
            return [next(frames) if isinstance(write, AppendBatch) else self._save(db, write) for write in writes]

    @staticmethod
    def _save(db: sqlite3.Connection, change: StateChange) -> int | StoreError:
        query = "SELECT version FROM states WHERE session_id = ? AND key = ?"
        statement = "REPLACE INTO states (session_id, key, version, saved_ms, value) VALUES (?, ?, ?, ?, ?)"
        found = db.execute(query, (change.session_id, change.key)).fetchone()
        try:
            version = change.next_version(int(found[0]) if found else 0)
        except StoreError as error:
            return error
        db.execute(statement, (change.session_id, change.key, version, now_ms(), change.text))
        return version

    def _write_restored(self, batch: RestoreBatch) -> Imported:
        with self._file.writing() as db:
            streams = batch.new_streams()
            streams.update(self._select_streams(db, streams))
            rows = new_rows(batch.frames, streams, self._select_texts(db, batch.ids))
            new_artifacts = self._insert_artifacts(db, batch.artifacts)
            self._insert(db, rows, streams)
            now = now_ms()
            states = [(state.session_id, state.key, state.version, now, state.text) for state in batch.states]
            saved = db.executemany(_RESTORE_STATE, states).rowcount if states else 0
        return Imported(len(rows), new_artifacts, saved)

    def _write_artifacts(self, artifacts: Mapping[str, bytes]) -> None:
        with self._file.writing() as db:
            self._insert_artifacts(db, artifacts)

    def _write_notice(self, channel: str, payload: str) -> None:
        now = now_ms()
        with self._file.writing() as db:
            db.execute("DELETE FROM notices WHERE sent_ms < ?", (now - NOTICES_MS,))
            db.execute("INSERT INTO notices (channel, sent_ms, payload) VALUES (?, ?, ?)", (channel, now, payload))

    @staticmethod
    def _select_streams(db: sqlite3.Connection, ids: Iterable[str]) -> dict[str, StreamHead]:
        query = """
            SELECT stream_id, session_id, stream_kind, next_seq FROM streams
            WHERE stream_id IN (SELECT value FROM json_each(?))"""
        return {row[0]: StreamHead(*row) for row in db.execute(query, (json.dumps(list(ids)),))}

    @staticmethod
    def _select_texts(db: sqlite3.Connection, ids: list[str]) -> dict[str, str]:
        query = "SELECT id, body FROM events WHERE id IN (SELECT value FROM json_each(?))"
        return dict(db.execute(query, (json.dumps(ids),)).fetchall())

    @staticmethod
    def _insert_artifacts(db: sqlite3.Connection, artifacts: Mapping[str, bytes]) -> int:
        """Write the artifacts that are new, and return their number."""
        if not artifacts:
            return 0
        count, now = 0, now_ms()
        query = "SELECT digest, touched_ms FROM artifacts WHERE digest IN (SELECT value FROM json_each(?))"
        found: dict[str, int] = dict(db.execute(query, (json.dumps(list(artifacts)),)).fetchall())
        for digest, content in artifacts.items():
            if digest not in found:
                statement = "INSERT INTO artifacts (digest, touched_ms, size, content) VALUES (?, ?, ?, ?)"
                db.execute(statement, (digest, now, len(content), content))
                count += 1
            elif found[digest] < now - TOUCH_MS:
                db.execute("UPDATE artifacts SET touched_ms = ? WHERE digest = ?", (now, digest))
        return count

    @staticmethod
    def _insert(db: sqlite3.Connection, rows: Sequence[EventRow], streams: Mapping[str, StreamHead]) -> None:
        _insert_together(db, _INSERT_EVENTS, rows)
        heads: dict[str, tuple[int, int, int]] = {}
        for row in rows:
            _, first, last = heads.get(row.stream_id, (0, row.timestamp_ms, row.timestamp_ms))
            heads[row.stream_id] = (row.seq + 1, min(first, row.timestamp_ms), max(last, row.timestamp_ms))
        changed = [(id_, streams[id_].session_id, streams[id_].kind, *head) for id_, head in heads.items()]
        _insert_together(db, _UPDATE_STREAMS, changed)
        uses = {(row.session_id, digest) for row in rows for digest in digests_in(row.text)}
        _insert_together(db, _INSERT_USES, sorted(uses))

    # Reading

    def _read_frames(self, selection: Selection) -> list[Frame]:
        with self._file.reading() as db:
            rows = self._select(db, selection)
        return [parse_frame(text) for _, text in (reversed(rows) if selection.newest else rows)]

    def _read_page(self, selection: Selection) -> Page:
        with self._file.reading() as db:
            rows = self._select(db, selection)
            full = len(rows) == selection.limit
            end = rows[-1][0] if full else max(self._last_position(db), selection.cursor)
        return Page(tuple(parse_frame(text) for _, text in rows), end)

    @staticmethod
    def _select(db: sqlite3.Connection, selection: Selection) -> list[tuple[int, str]]:
        """Return the positions and texts of the selected events."""
        values = {
            "cursor": selection.cursor,
            "session": selection.session_id,
            "stream": selection.stream_id,
            "types": None if selection.types is None else json.dumps(list(selection.types)),
            "after": selection.after,
            "since": -1 if selection.since_ms is None else selection.since_ms,
            "limit": -1 if selection.limit is None else selection.limit,
        }
        query = _ALL if selection.session_id is None else _OF_SESSION
        query = query if selection.stream_id is None else _OF_STREAM
        return db.execute(newest_first(query) if selection.newest else query, values).fetchall()

    @staticmethod
    def _last_position(db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()[0])

    def cursor(self) -> int:
        with self._file.reading() as db:
            return self._last_position(db)

    def last_seq(self, stream_id: str) -> int:
        found = self._rows("SELECT next_seq FROM streams WHERE stream_id = ?", stream_id)
        return int(found[0][0]) - 1 if found else -1

    def sessions(self) -> list[Summary]:
        query = """
            SELECT session_id, min(first_ms), max(last_ms), sum(next_seq) FROM streams
            GROUP BY session_id ORDER BY min(first_ms), session_id"""
        return [Summary(*row) for row in self._rows(query)]

    def _read_artifact(self, digest: str) -> bytes | None:
        found = self._rows("SELECT content FROM artifacts WHERE digest = ?", digest)
        return bytes(found[0][0]) if found else None

    def artifacts(self, session_id: str | None = None) -> list[str]:
        if session_id is None:
            return [row[0] for row in self._rows("SELECT digest FROM artifacts ORDER BY digest")]
        query = "SELECT digest FROM artifact_uses JOIN artifacts USING (digest) WHERE session_id = ? ORDER BY digest"
        return [row[0] for row in self._rows(query, session_id)]

    def load_state(self, session_id: str, key: str) -> Document | None:
        found = self._rows("SELECT version, value FROM states WHERE session_id = ? AND key = ?", session_id, key)
        return Document(key, found[0][0], parse_value(found[0][1])) if found else None

    def states(self, session_id: str | None = None, key: str | None = None) -> list[tuple[str, Document]]:
        query = """
            SELECT session_id, key, version, value FROM states
            WHERE (session_id = ?1 OR ?1 IS NULL) AND (key = ?2 OR ?2 IS NULL) ORDER BY session_id, key"""
        rows = self._rows(query, session_id, key)
        return [(session, Document(name, version, parse_value(text))) for session, name, version, text in rows]

    def _read_notices(self, channel: str, after: int) -> list[Notice]:
        query = "SELECT number, payload FROM notices WHERE number > ? AND channel = ? ORDER BY number"
        return [Notice(*row) for row in self._rows(query, after, channel)]

    def _last_notice(self) -> int:
        return int(self._rows("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'notices'")[0][0])

    def stats(self) -> Stats:
        query = """
            SELECT (SELECT count(DISTINCT session_id) FROM streams), (SELECT count(*) FROM streams),
            (SELECT coalesce(sum(next_seq), 0) FROM streams), (SELECT count(*) FROM artifacts),
            (SELECT coalesce(sum(size), 0) FROM artifacts), (SELECT count(*) FROM states)"""
        sessions, streams, events, artifacts, artifact_bytes, states = self._rows(query)[0]
        return Stats(
            kind="sqlite",
            location=self.location,
            schema=self._file.schema,
            sessions=sessions,
            streams=streams,
            events=events,
            artifacts=artifacts,
            artifact_bytes=artifact_bytes,
            states=states,
            bytes=self._file.size(),
        )

    def _rows(self, query: str, *values: str | int | None) -> list[_Record]:
        with self._file.reading() as db:
            return db.execute(query, values).fetchall()

    # Retention

    def prune(self, older_than_ms: int, keep_sessions: Collection[str] = (), *, grace_ms: int = GRACE_MS) -> Pruned:
        sessions = events = 0
        for summary in self.sessions():
            if summary.last_ms < older_than_ms and summary.id not in keep_sessions:
                removed = self._remove_session(summary.id, older_than_ms)
                sessions, events = sessions + (removed > 0), events + removed
        with self._file.writing() as db:
            statement = """
                DELETE FROM states WHERE saved_ms < ? AND session_id NOT IN (SELECT session_id FROM streams)
                AND session_id NOT IN (SELECT value FROM json_each(?))"""
            db.execute(statement, (older_than_ms, json.dumps(list(keep_sessions))))
            statement = """
                DELETE FROM artifacts WHERE touched_ms <= ? AND digest NOT IN (SELECT digest FROM artifact_uses)
                RETURNING size"""
            sizes = [row[0] for row in db.execute(statement, (now_ms() - grace_ms,)).fetchall()]
        self._file.shrink()
        return Pruned(sessions, events, len(sizes), sum(sizes))

    def _remove_session(self, session_id: str, older_than_ms: int) -> int:
        """Remove a session, unless it got new events since it was listed, and return the number of its events."""
        with self._file.writing() as db:
            last = db.execute("SELECT max(last_ms) FROM streams WHERE session_id = ?", (session_id,)).fetchone()[0]
            if last is None or last >= older_than_ms:
                return 0
            for statement in (
                "DELETE FROM streams WHERE session_id = ?",
                "DELETE FROM artifact_uses WHERE session_id = ?",
                "DELETE FROM states WHERE session_id = ?",
            ):
                db.execute(statement, (session_id,))
            return db.execute("DELETE FROM events WHERE session_id = ?", (session_id,)).rowcount


def _insert_together(db: sqlite3.Connection, statement: str, rows: Sequence[tuple[str | int, ...]]) -> None:
    for part in parts(rows):
        db.execute(with_rows(statement, part), values_of(part))
