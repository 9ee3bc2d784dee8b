"""The store for many hosts that share one record: PostgreSQL.

Seq: a writer locks the row of its stream, so a stream has no gap. Positions: they come from a sequence, and a
transaction may end long after it took one, so a follower that goes by visible positions would skip it. Each writer
therefore publishes the last position taken, as a shared advisory lock, before it takes its own. All positions up to the
lowest published one are settled, and a page never goes further. Writers of different streams never wait for each other:
appends of one process share transactions (see `group`), and a stream that somebody else has locked is left out of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from metier.errors import StoreError
from metier.record.store import sql
from metier.record.store.base import NOTICES_MS, Selection, now_ms
from metier.record.store.group import GroupCommit
from metier.record.store.postgres_connection import Connection, PostgresConnection, RawCursor
from metier.record.store.sql import Execute, Record, Result, SqlStore, Value
from metier.record.store.values import Frame, Imported, Page
from metier.record.store.writes import (
    AppendBatch,
    EventRow,
    RestoreBatch,
    StateChange,
    StreamHead,
    new_rows,
    number_drafts,
    number_group,
)

MAX_BIGINT: Final = (1 << 63) - 1
"""The largest bigint: a position or time after all others."""

LOCK_RANGE: Final = 1 << 31
"""An advisory lock carries the lower 31 bits of a position. The last position taken supplies the rest."""

PUBLISH_POSITION: Final = """
SELECT pg_advisory_xact_lock_shared('metier_events'::regclass::oid::int4, mod(last_value, 2147483648)::int4)
FROM metier_positions"""
SELECT_TAKEN: Final = "SELECT last_value FROM metier_positions"
SELECT_PUBLISHED: Final = """
SELECT objid::int8 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND classid = 'metier_events'::regclass::oid"""

LOCK_STREAMS: Final = """
SELECT stream_id, session_id, stream_kind, next_seq FROM metier_streams
WHERE stream_id = ANY(%s) ORDER BY stream_id FOR UPDATE"""
CREATE_STREAM: Final = """
INSERT INTO metier_streams (stream_id, session_id, stream_kind, next_seq, first_ms, last_ms)
VALUES (%s, %s, %s, 0, %s, 0) ON CONFLICT DO NOTHING"""
LOCK_FREE_STREAMS: Final = f"{LOCK_STREAMS} SKIP LOCKED"
_UPDATE_FROM: Final = """
UPDATE metier_streams AS old SET next_seq = new.next_seq,
first_ms = least(old.first_ms, new.first_ms), last_ms = greatest(old.last_ms, new.last_ms)
FROM {} AS new (stream_id, next_seq, first_ms, last_ms) WHERE old.stream_id = new.stream_id"""
# One stream is the common case, and planning a join with a function costs the server more.
UPDATE_STREAM: Final = _UPDATE_FROM.format("(VALUES (%s, %s::int8, %s::int8, %s::int8))")
UPDATE_STREAMS: Final = _UPDATE_FROM.format("unnest(%s::text[], %s::int8[], %s::int8[], %s::int8[])")
SELECT_TEXTS: Final = "SELECT id, body FROM metier_events WHERE id = ANY(%s)"
SIZE: Final = """
SELECT sum(pg_total_relation_size(name::regclass))::int8 FROM unnest(array['metier_streams',
'metier_events', 'metier_artifacts', 'metier_artifact_uses', 'metier_states', 'metier_notices']) AS name"""

_LEADERS: Final = 2
"""Transactions of appends at a time: while the server flushes one, the next is sent."""

_ALONE: Final = 32
"""So many appends to a stream go alone after one was left out of a transaction, instead of failing first."""

_CONTENDED_STREAMS: Final = 1_000
"""The most streams of others that are remembered."""


class PostgresStore(SqlStore):
    """A `Store` in a PostgreSQL database, with one pool for the process. Every write can safely run twice."""

    _kind = "postgres"
    _poll_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        url: str,
        *,
        on_trouble: Callable[[str], None] | None = None,
        patience: float = 30.0,
        outage: float = 3.0,
    ) -> None:
        self._server = PostgresConnection(
            url, patience=patience, outage=outage, on_trouble=on_trouble, on_change=self._wake
        )
        self._contended: dict[str, int] = {}
        """Streams that others write to, and how many appends to each do not try to share a transaction."""
        self._group = GroupCommit[AppendBatch, list[Frame]](
            self._commit, self._commit_later, lambda: self._server.busy(patience), leaders=_LEADERS, patience=patience
        )
        super().__init__(self._server.location)

    def _wait_until(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        self._server.start_listening()
        return super()._wait_until(ready, timeout)

    def _poll(self) -> None:
        self._wake()  # a notification can be lost with its connection, so waiting calls check once a second

    def _release(self) -> None:
        self._server.close()

    # Writing

    def _write(self, batch: AppendBatch) -> list[Frame]:
        left = self._contended.pop(batch.stream_id, 0)
        if not left:
            return self._group.write(batch)
        self._contended[batch.stream_id] = left - 1
        return self._commit_alone(batch)

    def _commit_later(self, batch: AppendBatch) -> list[Frame]:
        """Write one append that was left out of a transaction. The next ones to a stream of others go alone, too."""
        frames = self._commit_alone(batch)
        if frames[0]["seq"] > 0:  # the stream was there, so somebody else had locked it
            if len(self._contended) >= _CONTENDED_STREAMS:
                self._contended.clear()
            self._contended[batch.stream_id] = _ALONE
        return frames

    def _commit_alone(self, batch: AppendBatch) -> list[Frame]:
        """Write one append. It waits for its stream, which is created if it is missing."""

        def work(connection: Connection, _: bool) -> list[Frame]:
            with connection.pipeline():
                with connection.transaction():
                    streams, known = self._lock_streams(connection, {batch.stream_id: batch.new_stream()}, batch.ids)
                    frames, rows = number_drafts(batch, streams[batch.stream_id], known)
                    sql.insert_artifacts(_execute(connection), batch.artifacts)
                    self._insert(connection, rows)
                self._notify_followers(connection)
            return frames

        return self._server.run(work)

    def _commit(self, batches: Sequence[AppendBatch]) -> list[list[Frame] | StoreError | None]:
        """Write appends in one transaction, to streams that are there and that nobody else has locked.

        The outcome of each of the others is `None`: nobody waits for a stream of somebody else.
        """

        def work(connection: Connection, _: bool) -> list[list[Frame] | StoreError | None]:
            ids = sorted({batch.stream_id for batch in batches})
            events = [id_ for batch in batches for id_ in batch.ids]
            with connection.pipeline():
                with connection.transaction():
                    locked = connection.execute(LOCK_FREE_STREAMS, (ids,))
                    known = connection.execute(SELECT_TEXTS, (events,))
                    streams = {row[0]: StreamHead(*row) for row in locked}
                    own = [batch for batch in batches if batch.stream_id in streams]
                    group = number_group(own, streams, dict(known.fetchall()))
                    sql.insert_artifacts(_execute(connection), group.artifacts)
                    self._insert(connection, group.rows)
                if group.rows:
                    self._notify_followers(connection)
            outcomes = iter(group.outcomes)
            return [next(outcomes) if batch.stream_id in streams else None for batch in batches]

        return self._server.run(work)

    def _write_restored(self, batch: RestoreBatch) -> Imported:
        def work(connection: Connection, _: bool) -> Imported:
            with connection.transaction():
                streams, known = self._lock_streams(connection, batch.new_streams(), batch.ids)
                rows = new_rows(batch.frames, streams, known)
                new_artifacts = sql.insert_artifacts(_execute(connection), batch.artifacts)
                self._insert(connection, rows)
                saved = sql.restore_states(_execute(connection), batch.states)
            self._notify_followers(connection)
            return Imported(len(rows), new_artifacts, saved)

        return self._server.run(work)

    def _write_artifacts(self, artifacts: Mapping[str, bytes]) -> None:
        def work(connection: Connection, _: bool) -> None:
            with connection.transaction():
                connection.execute("LOCK TABLE metier_streams IN ROW SHARE MODE")
                sql.insert_artifacts(_execute(connection), artifacts)

        self._server.run(work)

    def _write_state(self, change: StateChange) -> int:
        def work(connection: Connection, repeated: bool) -> int:
            with connection.transaction():
                return self._save(connection, change, repeated)

        return self._server.run(work)

    @staticmethod
    def _save(connection: Connection, change: StateChange, repeated: bool) -> int:
        place = (change.session_id, change.key)
        query = "SELECT version, value FROM metier_states WHERE session_id = %s AND key = %s FOR UPDATE"
        found = connection.execute(query, place).fetchone()
        if found is None:
            # An empty row to lock, so that of two first saves one waits for the other.
            connection.execute("INSERT INTO metier_states VALUES (%s, %s, 0, 0, '') ON CONFLICT DO NOTHING", place)
            found = connection.execute(query, place).fetchone()
            assert found
        stored: int = found[0]
        if repeated and change.expected is not None and found == (change.expected + 1, change.text):
            return stored  # the first attempt was committed, and only its answer was lost
        version = change.next_version(stored)
        statement = """
            UPDATE metier_states SET version = %s, saved_ms = %s, value = %s WHERE session_id = %s AND key = %s"""
        connection.execute(statement, (version, now_ms(), change.text, *place))
        return version

    def _write_notice(self, channel: str, payload: str) -> None:
        def work(connection: Connection, _: bool) -> None:
            now = now_ms()
            with connection.transaction():
                # One sender at a time: numbers are then in the order of commits, and no listener misses one.
                connection.execute("LOCK TABLE metier_notices IN SHARE ROW EXCLUSIVE MODE")
                connection.execute("DELETE FROM metier_notices WHERE sent_ms < %s", (now - NOTICES_MS,))
                statement = "INSERT INTO metier_notices (channel, sent_ms, payload) VALUES (%s, %s, %s)"
                connection.execute(statement, (channel, now, payload))
            self._notify_followers(connection)

        self._server.run(work)

    def _notify_followers(self, connection: Connection) -> None:
        """Wake the followers on other hosts.

        This is a separate transaction: commits that notify wait for each other inside the server, and would no longer
        share a flush. If it is lost, followers still poll once a second.
        """
        connection.execute("SELECT pg_notify(%s, '')", (self._server.channel,))

    @staticmethod
    def _lock_streams(
        connection: Connection, wanted: Mapping[str, StreamHead], events: list[str]
    ) -> tuple[dict[str, StreamHead], dict[str, str]]:
        """Lock streams until the end of the transaction. Return their heads, and the stored texts of the events.

        All writers lock streams in the same order. The texts are read by a separate statement after the lock, so that
        it sees everything the previous writer committed.
        """
        ids = sorted(wanted)
        while True:
            locked = connection.execute(LOCK_STREAMS, (ids,))
            known = connection.execute(SELECT_TEXTS, (events,))
            streams = {row[0]: StreamHead(*row) for row in locked}
            missing = [wanted[id_] for id_ in ids if id_ not in streams]
            if not missing:
                return streams, dict(known.fetchall())
            for stream in missing:
                values = (stream.id, stream.session_id, stream.kind, MAX_BIGINT)
                connection.execute(CREATE_STREAM, values)

    @staticmethod
    def _insert(connection: Connection, rows: Sequence[EventRow]) -> None:
        if not rows:
            return
        connection.execute(PUBLISH_POSITION)
        with RawCursor(connection) as cursor:  # it takes numbered values as they are, and need not look for them
            for statement, values in ((sql.INSERT_EVENTS, rows), (sql.INSERT_USES, sql.uses_of(rows))):
                for part in sql.parts(values):
                    cursor.execute(sql.with_rows(statement, part, numbered=True).encode(), sql.values_of(part))
        changed = [(id_, *head) for id_, head in sorted(sql.heads_after(rows).items())]
        if len(changed) == 1:
            connection.execute(UPDATE_STREAM, changed[0])
        else:
            connection.execute(UPDATE_STREAMS, [list(column) for column in zip(*changed, strict=True)])

    # Reading

    def _rows(self, query: str, *values: Value) -> list[Record]:
        self._check_open()
        return self._server.run(lambda connection, _: connection.execute(query.encode(), values).fetchall())

    def _read_page(self, selection: Selection) -> Page:
        def work(connection: Connection, _: bool) -> tuple[int, list[Record]]:
            end = self._settled(connection)
            query, values = sql.selecting(selection, end)
            return end, connection.execute(query.encode(), values).fetchall()

        end, rows = self._server.run(work)
        cursor = rows[-1][0] if len(rows) == selection.limit else max(end, selection.cursor)
        return Page(tuple(map(sql.frame_of, rows)), cursor)

    @staticmethod
    def _settled(connection: Connection) -> int:
        """Return the position up to which every position taken is committed or was rolled back."""
        # In this order: a writer that publishes after the first query takes a later position, and one that ended before
        # the second query is visible.
        row = connection.execute(SELECT_TAKEN).fetchone()
        assert row
        taken: int = row[0]
        behind = [(taken - low) % LOCK_RANGE for (low,) in connection.execute(SELECT_PUBLISHED)]
        # A writer that published after the first query may be ahead of it, and then seems to be far behind.
        return taken - max((steps for steps in behind if steps < LOCK_RANGE // 2), default=0)

    def cursor(self) -> int:
        self._check_open()
        return self._server.run(lambda connection, _: self._settled(connection))

    def _last_notice(self) -> int:
        return int(self._rows("SELECT coalesce(max(number), 0) FROM metier_notices")[0][0])

    def _size(self) -> int:
        return int(self._rows(SIZE)[0][0])

    # Retention

    def _removing(self, work: Callable[[Execute], Result]) -> Result:
        def locked(connection: Connection, _: bool) -> Result:
            with connection.transaction():
                # Each append starts by reading this table.
                connection.execute("LOCK TABLE metier_streams IN EXCLUSIVE MODE")
                return work(_execute(connection))

        return self._server.run(locked)


def _execute(connection: Connection) -> Execute:
    return lambda statement, values: connection.execute(statement.encode(), values)
