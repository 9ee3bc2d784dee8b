"""The default store: one SQLite file, shared by any number of processes of one machine.

Writers queue for the file's one write lock, so the order of positions is the order of commits, and a follower that goes
by position misses nothing. How the file is opened, locked and kept durable is in `sqlite_file`.
"""

import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, Final

from metier.record.store.base import NOTICES_MS, TOUCH_MS, BaseStore, now_ms
from metier.record.store.lines import Imported
from metier.record.store.sqlite_file import SqliteFile
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
    backwards,
    number,
    parse,
    references,
    same_stream,
    settle,
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

Stored = tuple[int, str]
"""A position and the text there."""


class SqliteStore(BaseStore):
    """See `Store`."""

    poll_seconds: ClassVar[float] = 0.02

    def __init__(self, path: str, *, patience: float = 30.0) -> None:
        super().__init__(os.path.abspath(path))
        self._file = SqliteFile(self.location, patience, self.usable)
        self._seen = self._file.version()

    def look_outside(self) -> None:
        version = self._file.version()
        if version != self._seen:
            self._seen = version
            self.ring()

    def release(self) -> None:
        self._file.close()

    # Writing

    def write(self, batch: Batch, state: StateChange | None) -> list[Frame]:
        with self._file.writing() as db:
            stream = self._streams(db, [batch.stream_id]).get(batch.stream_id)
            stream = stream or Stream(batch.stream_id, batch.session_id, batch.stream_kind)
            same_stream(stream, batch.session_id, batch.stream_kind)
            frames, rows = number(batch, stream.next_seq, self._texts(db, batch.ids))
            self._keep(db, batch.artifacts)
            self._insert(db, rows, {stream.id: stream})
            if state is not None:
                self._save(db, state)
        return frames

    def write_restored(
        self, frames: list[Frame], artifacts: Mapping[str, bytes], states: list[tuple[str, str, int, str]]
    ) -> Imported:
        with self._file.writing() as db:
            streams = {
                frame["stream_id"]: Stream(frame["stream_id"], frame["session_id"], frame["stream_kind"])
                for frame in frames
            }
            streams.update(self._streams(db, streams))
            rows = settle(frames, streams, self._texts(db, [frame["id"] for frame in frames]))
            kept = self._keep(db, artifacts)
            self._insert(db, rows, streams)
            statement = """
                INSERT INTO states (session_id, key, version, saved_ms, value) VALUES (?, ?, ?, ?, ?)
                ON CONFLICT (session_id, key) DO UPDATE
                SET version = excluded.version, saved_ms = excluded.saved_ms, value = excluded.value
                WHERE states.version < excluded.version"""
            now = now_ms()
            values = [(session, key, version, now, text) for session, key, version, text in states]
            saved = db.executemany(statement, values).rowcount if values else 0
        return Imported(len(rows), kept, saved)

    def write_artifacts(self, artifacts: Mapping[str, bytes]) -> None:
        with self._file.writing() as db:
            self._keep(db, artifacts)

    def write_state(self, change: StateChange) -> int:
        with self._file.writing() as db:
            return self._save(db, change)

    @staticmethod
    def _save(db: sqlite3.Connection, change: StateChange) -> int:
        query = "SELECT version FROM states WHERE session_id = ? AND key = ?"
        found = db.execute(query, (change.session_id, change.key)).fetchone()
        version = change.next_version(int(found[0]) if found else 0)
        statement = "REPLACE INTO states (session_id, key, version, saved_ms, value) VALUES (?, ?, ?, ?, ?)"
        db.execute(statement, (change.session_id, change.key, version, now_ms(), change.text))
        return version

    def write_notice(self, channel: str, payload: str) -> None:
        now = now_ms()
        with self._file.writing() as db:
            db.execute("DELETE FROM notices WHERE sent_ms < ?", (now - NOTICES_MS,))
            db.execute("INSERT INTO notices (channel, sent_ms, payload) VALUES (?, ?, ?)", (channel, now, payload))

    @staticmethod
    def _streams(db: sqlite3.Connection, ids: Iterable[str]) -> dict[str, Stream]:
        query = """
            SELECT stream_id, session_id, stream_kind, next_seq FROM streams
            WHERE stream_id IN (SELECT value FROM json_each(?))"""
        return {row[0]: Stream(*row) for row in db.execute(query, (json.dumps(list(ids)),))}

    @staticmethod
    def _texts(db: sqlite3.Connection, ids: list[str]) -> dict[str, str]:
        query = "SELECT id, body FROM events WHERE id IN (SELECT value FROM json_each(?))"
        return dict(db.execute(query, (json.dumps(ids),)).fetchall())

    @staticmethod
    def _keep(db: sqlite3.Connection, artifacts: Mapping[str, bytes]) -> int:
        """Write the artifacts that are new; the number of them."""
        kept, now = 0, now_ms()
        for digest, content in artifacts.items():
            found = db.execute("SELECT touched_ms FROM artifacts WHERE digest = ?", (digest,)).fetchone()
            if found is None:
                statement = "INSERT INTO artifacts (digest, touched_ms, size, content) VALUES (?, ?, ?, ?)"
                db.execute(statement, (digest, now, len(content), content))
                kept += 1
            elif found[0] < now - TOUCH_MS:
                db.execute("UPDATE artifacts SET touched_ms = ? WHERE digest = ?", (now, digest))
        return kept

    @staticmethod
    def _insert(db: sqlite3.Connection, rows: list[Row], streams: Mapping[str, Stream]) -> None:
        statement = """
            INSERT INTO events (id, session_id, stream_id, seq, timestamp_ms, type, body)
            VALUES (?, ?, ?, ?, ?, ?, ?)"""
        db.executemany(statement, rows)
        statement = """
            INSERT INTO streams (stream_id, session_id, stream_kind, next_seq, first_ms, last_ms)
            VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (stream_id) DO UPDATE SET next_seq = excluded.next_seq,
            first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms)"""
        for row in rows:
            values = (row.stream_id, row.session_id, streams[row.stream_id].kind, row.seq + 1)
            db.execute(statement, (*values, row.timestamp_ms, row.timestamp_ms))
        uses = [(row.session_id, digest) for row in rows for digest in sorted(references([row.text]))]
        db.executemany("INSERT OR IGNORE INTO artifact_uses (session_id, digest) VALUES (?, ?)", uses)

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
        with self._file.reading() as db:
            rows = self._select(db, 0, session_id, stream_id, types, limit, after, since_ms, newest=newest)
        return [parse(text) for _, text in (reversed(rows) if newest else rows)]

    def page(
        self,
        cursor: int = 0,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        limit: int = 500,
    ) -> Page:
        limit = max(limit, 1)
        with self._file.reading() as db:
            rows = self._select(db, cursor, session_id, stream_id, types, limit)
            end = rows[-1][0] if len(rows) == limit else max(self._head(db), cursor)
        return Page(tuple(parse(text) for _, text in rows), end)

    @staticmethod
    def _select(
        db: sqlite3.Connection,
        cursor: int,
        session_id: str | None,
        stream_id: str | None,
        types: Collection[str] | None,
        limit: int | None,
        after: int = -1,
        since_ms: int | None = None,
        *,
        newest: bool = False,
    ) -> list[Stored]:
        values: dict[str, Any] = {
            "cursor": cursor,
            "session": session_id,
            "stream": stream_id,
            "types": None if types is None else json.dumps(list(types)),
            "after": after,
            "since": -1 if since_ms is None else since_ms,
            "limit": -1 if limit is None else limit,
        }
        query = _OF_STREAM if stream_id is not None else _OF_SESSION if session_id is not None else _ALL
        return db.execute(backwards(query) if newest else query, values).fetchall()

    @staticmethod
    def _head(db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()[0])

    def cursor(self) -> int:
        with self._file.reading() as db:
            return self._head(db)

    def last_seq(self, stream_id: str) -> int:
        found = self._rows("SELECT next_seq FROM streams WHERE stream_id = ?", stream_id)
        return int(found[0][0]) - 1 if found else -1

    def sessions(self) -> list[Summary]:
        query = """
            SELECT session_id, min(first_ms), max(last_ms), sum(next_seq) FROM streams
            GROUP BY session_id ORDER BY min(first_ms), session_id"""
        return [Summary(*row) for row in self._rows(query)]

    def read_artifact(self, digest: str) -> bytes | None:
        found = self._rows("SELECT content FROM artifacts WHERE digest = ?", digest)
        return bytes(found[0][0]) if found else None

    def artifacts(self, session_id: str | None = None) -> list[str]:
        if session_id is None:
            return [row[0] for row in self._rows("SELECT digest FROM artifacts ORDER BY digest")]
        query = "SELECT digest FROM artifact_uses JOIN artifacts USING (digest) WHERE session_id = ? ORDER BY digest"
        return [row[0] for row in self._rows(query, session_id)]

    def load_state(self, session_id: str, key: str) -> Document | None:
        found = self._rows("SELECT version, value FROM states WHERE session_id = ? AND key = ?", session_id, key)
        return Document(key, found[0][0], parse(found[0][1])) if found else None

    def states(self, session_id: str | None = None, key: str | None = None) -> list[tuple[str, Document]]:
        query = """
            SELECT session_id, key, version, value FROM states
            WHERE (session_id = ?1 OR ?1 IS NULL) AND (key = ?2 OR ?2 IS NULL) ORDER BY session_id, key"""
        rows = self._rows(query, session_id, key)
        return [(session, Document(name, version, parse(text))) for session, name, version, text in rows]

    def notices(self, channel: str, after: int) -> list[tuple[int, str]]:
        query = "SELECT number, payload FROM notices WHERE number > ? AND channel = ? ORDER BY number"
        return self._rows(query, after, channel)

    def last_notice(self) -> int:
        return int(self._rows("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'notices'")[0][0])

    def stats(self) -> Stats:
        query = """
            SELECT (SELECT count(DISTINCT session_id) FROM streams), (SELECT count(*) FROM streams),
            (SELECT coalesce(sum(next_seq), 0) FROM streams), (SELECT count(*) FROM artifacts),
            (SELECT coalesce(sum(size), 0) FROM artifacts), (SELECT count(*) FROM states)"""
        counts = self._rows(query)[0]
        return Stats("sqlite", self.location, self._file.schema, *counts, bytes=self._file.size())

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._file.reading() as db:
            return db.execute(query, values).fetchall()

    # Retention

    def prune(self, older_than_ms: int, keep_sessions: Collection[str] = (), *, grace_ms: int = GRACE_MS) -> Pruned:
        old = [
            summary.id
            for summary in self.sessions()
            if summary.last_ms < older_than_ms and summary.id not in keep_sessions
        ]
        sessions = events = 0
        for session in old:
            with self._file.writing() as db:
                # It may have come back to life since it was listed.
                last = db.execute("SELECT max(last_ms) FROM streams WHERE session_id = ?", (session,)).fetchone()[0]
                if last is None or last >= older_than_ms:
                    continue
                sessions += 1
                events += db.execute("DELETE FROM events WHERE session_id = ?", (session,)).rowcount
                for statement in (
                    "DELETE FROM streams WHERE session_id = ?",
                    "DELETE FROM artifact_uses WHERE session_id = ?",
                    "DELETE FROM states WHERE session_id = ?",
                ):
                    db.execute(statement, (session,))
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
