"""The default store: one SQLite file, shared by any number of processes on one machine.

Writers queue for the file's write lock, so positions are in the order of commits, and a follower that goes by position
misses nothing. `sqlite_file` opens and locks the file and makes commits durable.
"""

import functools
import json
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Final

from metier.errors import StoreError
from metier.record.store import sql
from metier.record.store.base import NOTICES_MS, Selection, now_ms
from metier.record.store.group import GroupCommit
from metier.record.store.sql import Execute, Record, Result, SqlStore, Value
from metier.record.store.sqlite_file import SqliteFile, busy_error
from metier.record.store.values import GRACE_MS, Frame, Imported, Page, Pruned
from metier.record.store.writes import (
    AppendBatch,
    EventRow,
    RestoreBatch,
    StateChange,
    StreamHead,
    new_rows,
    number_group,
)

_UPDATE_STREAMS: Final = """
INSERT INTO metier_streams (stream_id, session_id, stream_kind, next_seq, first_ms, last_ms)
VALUES {} ON CONFLICT (stream_id) DO UPDATE SET next_seq = excluded.next_seq,
first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms)"""


class SqliteStore(SqlStore):
    """A `Store` in one SQLite file."""

    _kind = "sqlite"
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
            sql.insert_artifacts(_execute(db), group.artifacts)
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
            new_artifacts = sql.insert_artifacts(_execute(db), batch.artifacts)
            self._insert(db, rows, streams)
            saved = sql.restore_states(_execute(db), batch.states)
        return Imported(len(rows), new_artifacts, saved)

    def _write_artifacts(self, artifacts: Mapping[str, bytes]) -> None:
        with self._file.writing() as db:
            sql.insert_artifacts(_execute(db), artifacts)

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
    def _insert(db: sqlite3.Connection, rows: Sequence[EventRow], streams: Mapping[str, StreamHead]) -> None:
        heads = sql.heads_after(rows)
        changed = [(id_, streams[id_].session_id, streams[id_].kind, *head) for id_, head in heads.items()]
        for statement, values in (
            (sql.INSERT_EVENTS, rows),
            (_UPDATE_STREAMS, changed),
            (sql.INSERT_USES, sql.uses_of(rows)),
        ):
            for part in sql.parts(values):
                db.execute(_own(sql.with_rows(statement, part)), sql.values_of(part))

    # Reading

    def _rows(self, query: str, *values: Value) -> list[Record]:
        with self._file.reading() as db:
            return db.execute(_own(query), values).fetchall()

    def _read_page(self, selection: Selection) -> Page:
        query, values = sql.selecting(selection)
        with self._file.reading() as db:
            rows: list[Record] = db.execute(_own(query), values).fetchall()
            full = len(rows) == selection.limit
            end = rows[-1][0] if full else max(self._last_position(db), selection.cursor)
        return Page(tuple(map(sql.frame_of, rows)), end)

    @staticmethod
    def _last_position(db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()[0])

    def cursor(self) -> int:
        with self._file.reading() as db:
            return self._last_position(db)

    def _last_notice(self) -> int:
        return int(self._rows("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'notices'")[0][0])

    def _size(self) -> int:
        return self._file.size()

    # Retention

    def prune(self, older_than_ms: int, keep_sessions: Collection[str] = (), *, grace_ms: int = GRACE_MS) -> Pruned:
        pruned = super().prune(older_than_ms, keep_sessions, grace_ms=grace_ms)
        self._file.shrink()
        return pruned

    def _removing(self, work: Callable[[Execute], Result]) -> Result:
        with self._file.writing() as db:
            return work(_execute(db))


@functools.cache
def _own(statement: str) -> str:
    """A statement as SQLite has it: here tables need no prefix, because the file has no others."""
    return statement.replace("metier_", "").replace("%s", "?")


def _execute(db: sqlite3.Connection) -> Execute:
    return lambda statement, values: db.execute(_own(statement), values)
