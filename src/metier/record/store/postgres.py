"""The store for many hosts that share one record: PostgreSQL.

Seq: a writer locks the row of its stream, so a stream has no gap. Positions: they come from a sequence, and a
transaction may end long after it took one, so a follower that goes by visible positions would skip it. Each writer
therefore publishes the last position taken, as a shared advisory lock, before it takes its own. All positions up to the
lowest published one are settled, and a page never goes further. Writers of different streams never wait for each other:
appends of one process share transactions (see `group`), and a stream that somebody else has locked is left out of them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Final, LiteralString

from metier.errors import StoreError
from metier.record.store import postgres_statements as statements
from metier.record.store.base import NOTICES_MS, TOUCH_MS, BaseStore, Notice, now_ms
from metier.record.store.group import GroupCommit
from metier.record.store.postgres_connection import Connection, PostgresConnection, RawCursor, TupleRow
from metier.record.store.selection import Selection, newest_first
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
    number_drafts,
    number_group,
)

_LEADERS: Final = 2
"""Transactions of appends at a time: while the server flushes one, the next is sent."""


_ALONE: Final = 32
"""So many appends to a stream go alone after one was left out of a transaction, instead of failing first."""

_CONTENDED_STREAMS: Final = 1_000
"""The most streams of others that are remembered."""


class PostgresStore(BaseStore):
    """A `Store` in a PostgreSQL database, with one pool for the process. Every write can safely run twice."""

    _poll_seconds: ClassVar[float] = 1.0

    def __init__(self, url: str, *, on_trouble: Callable[[str], None] | None = None, patience: float = 30.0) -> None:
        self._server = PostgresConnection(url, patience=patience, on_trouble=on_trouble, on_change=self._wake)
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
                    self._insert_artifacts(connection, batch.artifacts)
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
                    locked = connection.execute(statements.LOCK_FREE_STREAMS, (ids,))
                    known = connection.execute(statements.SELECT_TEXTS, (events,))
                    streams = {row[0]: StreamHead(*row) for row in locked}
                    own = [batch for batch in batches if batch.stream_id in streams]
                    group = number_group(own, streams, dict(known.fetchall()))
                    self._insert_artifacts(connection, group.artifacts)
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
                new_artifacts = self._insert_artifacts(connection, batch.artifacts)
                self._insert(connection, rows)
                saved = 0
                for session, key, version, text in batch.states:
                    values = (session, key, version, now_ms(), text)
                    saved += connection.execute(statements.RESTORE_STATE, values).rowcount
            self._notify_followers(connection)
            return Imported(len(rows), new_artifacts, saved)

        return self._server.run(work)

    def _write_artifacts(self, artifacts: Mapping[str, bytes]) -> None:
        def work(connection: Connection, _: bool) -> None:
            with connection.transaction():
                connection.execute("LOCK TABLE metier_streams IN ROW SHARE MODE")
                self._insert_artifacts(connection, artifacts)

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
            locked = connection.execute(statements.LOCK_STREAMS, (ids,))
            known = connection.execute(statements.SELECT_TEXTS, (events,))
            streams = {row[0]: StreamHead(*row) for row in locked}
            missing = [wanted[id_] for id_ in ids if id_ not in streams]
            if not missing:
                return streams, dict(known.fetchall())
            for stream in missing:
                values = (stream.id, stream.session_id, stream.kind, statements.MAX_BIGINT)
                connection.execute(statements.CREATE_STREAM, values)

    @staticmethod
    def _insert_artifacts(connection: Connection, artifacts: Mapping[str, bytes]) -> int:
        """Write the artifacts that are new, and return their number.

        The transaction has selected from `metier_streams` for an update, or locked it, and a prune waits for its end.
        """
        if not artifacts:
            return 0
        query = "SELECT digest, touched_ms FROM metier_artifacts WHERE digest = ANY(%s)"
        found: dict[str, int] = dict(connection.execute(query, (list(artifacts),)).fetchall())
        count, now = 0, now_ms()
        for digest, content in artifacts.items():
            if digest not in found:
                count += connection.execute(statements.INSERT_ARTIFACT, (digest, now, len(content), content)).rowcount
        stale = [digest for digest, touched in found.items() if touched < now - TOUCH_MS]
        for digest in sorted(stale):
            connection.execute("UPDATE metier_artifacts SET touched_ms = %s WHERE digest = %s", (now, digest))
        return count

    @staticmethod
    def _insert(connection: Connection, rows: Sequence[EventRow]) -> None:
        if not rows:
            return
        connection.execute(statements.PUBLISH_POSITION)
        _insert_together(connection, statements.INSERT_EVENTS, rows)
        uses = sorted({(row.session_id, digest) for row in rows for digest in digests_in(row.text)})
        _insert_together(connection, statements.INSERT_USES, uses)
        heads: dict[str, tuple[str, int, int, int]] = {}
        for row in rows:
            _, _, first, last = heads.get(row.stream_id, ("", 0, row.timestamp_ms, row.timestamp_ms))
            times = (min(first, row.timestamp_ms), max(last, row.timestamp_ms))
            heads[row.stream_id] = (row.stream_id, row.seq + 1, *times)
        changed = [heads[id_] for id_ in sorted(heads)]
        if len(changed) == 1:
            connection.execute(statements.UPDATE_STREAM, changed[0])
        else:
            connection.execute(statements.UPDATE_STREAMS, [list(column) for column in zip(*changed, strict=True)])

    # Reading

    def _read_frames(self, selection: Selection) -> list[Frame]:
        rows = self._server.run(
            lambda connection, _: self._select(connection, selection, statements.MAX_BIGINT),
        )
        return [parse_frame(text) for _, text in (reversed(rows) if selection.newest else rows)]

    def _read_page(self, selection: Selection) -> Page:
        def work(connection: Connection, _: bool) -> tuple[int, list[TupleRow]]:
            end = self._settled(connection)
            return end, self._select(connection, selection, end)

        end, rows = self._server.run(work)
        cursor = rows[-1][0] if len(rows) == selection.limit else max(end, selection.cursor)
        return Page(tuple(parse_frame(text) for _, text in rows), cursor)

    @staticmethod
    def _select(connection: Connection, selection: Selection, end: int) -> list[TupleRow]:
        """Return the positions and texts of the selected events up to a position."""
        values = {
            "cursor": selection.cursor,
            "end": end,
            "session": selection.session_id,
            "stream": selection.stream_id,
            "types": None if selection.types is None else list(selection.types),
            "after": selection.after,
            "since": -1 if selection.since_ms is None else selection.since_ms,
            "limit": selection.limit,
        }
        query = statements.ALL if selection.session_id is None else statements.OF_SESSION
        query = query if selection.stream_id is None else statements.OF_STREAM
        return connection.execute(newest_first(query) if selection.newest else query, values).fetchall()

    @staticmethod
    def _settled(connection: Connection) -> int:
        """Return the position up to which every position taken is committed or was rolled back."""
        # In this order: a writer that publishes after the first query takes a later position, and one that ended before
        # the second query is visible.
        row = connection.execute(statements.SELECT_TAKEN).fetchone()
        assert row
        taken: int = row[0]
        behind = [(taken - low) % statements.LOCK_RANGE for (low,) in connection.execute(statements.SELECT_PUBLISHED)]
        # A writer that published after the first query may be ahead of it, and then seems to be far behind.
        return taken - max((steps for steps in behind if steps < statements.LOCK_RANGE // 2), default=0)

    def cursor(self) -> int:
        self._check_open()
        return self._server.run(lambda connection, _: self._settled(connection))

    def last_seq(self, stream_id: str) -> int:
        found = self._rows("SELECT next_seq FROM metier_streams WHERE stream_id = %s", stream_id)
        return int(found[0][0]) - 1 if found else -1

    def sessions(self) -> list[Summary]:
        query = """
            SELECT session_id, min(first_ms), max(last_ms), sum(next_seq)::int8 FROM metier_streams
            GROUP BY session_id"""
        found = [Summary(*row) for row in self._rows(query)]
        # Sorted here because the collation of the server is unknown.
        return sorted(found, key=lambda summary: (summary.first_ms, summary.id))

    def _read_artifact(self, digest: str) -> bytes | None:
        found = self._rows("SELECT content FROM metier_artifacts WHERE digest = %s", digest)
        return bytes(found[0][0]) if found else None

    def artifacts(self, session_id: str | None = None) -> list[str]:
        if session_id is None:
            return sorted(row[0] for row in self._rows("SELECT digest FROM metier_artifacts"))
        query = """
            SELECT digest FROM metier_artifact_uses JOIN metier_artifacts USING (digest) WHERE session_id = %s"""
        return sorted(row[0] for row in self._rows(query, session_id))

    def load_state(self, session_id: str, key: str) -> Document | None:
        query = "SELECT version, value FROM metier_states WHERE session_id = %s AND key = %s"
        found = self._rows(query, session_id, key)
        return Document(key, found[0][0], parse_value(found[0][1])) if found else None

    def states(self, session_id: str | None = None, key: str | None = None) -> list[tuple[str, Document]]:
        query = """
            SELECT session_id, key, version, value FROM metier_states
            WHERE (%s::text IS NULL OR session_id = %s) AND (%s::text IS NULL OR key = %s)"""
        rows = sorted(self._rows(query, session_id, session_id, key, key), key=lambda row: row[:2])
        return [(session, Document(name, version, parse_value(text))) for session, name, version, text in rows]

    def _read_notices(self, channel: str, after: int) -> list[Notice]:
        query = "SELECT number, payload FROM metier_notices WHERE number > %s AND channel = %s ORDER BY number"
        return [Notice(*row) for row in self._rows(query, after, channel)]

    def _last_notice(self) -> int:
        return int(self._rows("SELECT coalesce(max(number), 0) FROM metier_notices")[0][0])

    def stats(self) -> Stats:
        sessions, streams, events, artifacts, artifact_bytes, states, size = self._rows(statements.COUNTS)[0]
        return Stats(
            kind="postgres",
            location=self.location,
            schema=self._server.schema,
            sessions=sessions,
            streams=streams,
            events=events,
            artifacts=artifacts,
            artifact_bytes=artifact_bytes,
            states=states,
            bytes=size,
        )

    def _rows(self, query: LiteralString, *values: str | int | None) -> list[TupleRow]:
        self._check_open()
        return self._server.run(lambda connection, _: connection.execute(query, values).fetchall())

    # Retention

    def prune(self, older_than_ms: int, keep_sessions: Collection[str] = (), *, grace_ms: int = GRACE_MS) -> Pruned:
        keep = list(keep_sessions)
        sessions = events = 0
        for summary in self.sessions():
            if summary.last_ms < older_than_ms and summary.id not in keep:
                removed = self._remove_session(summary.id, older_than_ms)
                sessions, events = sessions + (removed > 0), events + removed

        def work(connection: Connection, _: bool) -> list[int]:
            with connection.transaction():
                self._block_appends(connection)
                statement = """
                    DELETE FROM metier_states WHERE saved_ms < %s AND session_id <> ALL(%s)
                    AND session_id NOT IN (SELECT session_id FROM metier_streams)"""
                connection.execute(statement, (older_than_ms, keep))
                statement = """
                    DELETE FROM metier_artifacts AS old WHERE touched_ms <= %s
                    AND NOT EXISTS (SELECT 1 FROM metier_artifact_uses AS used WHERE used.digest = old.digest)
                    RETURNING size"""
                return [row[0] for row in connection.execute(statement, (now_ms() - grace_ms,))]

        sizes = self._server.run(work)
        return Pruned(sessions, events, len(sizes), sum(sizes))

    def _remove_session(self, session_id: str, older_than_ms: int) -> int:
        """Remove a session, unless it got new events since it was listed, and return the number of its events."""

        def work(connection: Connection, _: bool) -> int:
            with connection.transaction():
                self._block_appends(connection)
                query = "SELECT max(last_ms) FROM metier_streams WHERE session_id = %s"
                row = connection.execute(query, (session_id,)).fetchone()
                if not row or row[0] is None or row[0] >= older_than_ms:
                    return 0
                for statement in (
                    "DELETE FROM metier_streams WHERE session_id = %s",
                    "DELETE FROM metier_artifact_uses WHERE session_id = %s",
                    "DELETE FROM metier_states WHERE session_id = %s",
                ):
                    connection.execute(statement, (session_id,))
                return connection.execute("DELETE FROM metier_events WHERE session_id = %s", (session_id,)).rowcount

        return self._server.run(work)

    def _block_appends(self, connection: Connection) -> None:
        """Keep appends out until the end of the transaction; each of them starts by reading this table."""
        connection.execute("LOCK TABLE metier_streams IN EXCLUSIVE MODE")


def _insert_together(connection: Connection, statement: str, rows: Sequence[tuple[str | int, ...]]) -> None:
    with RawCursor(connection) as cursor:  # it takes numbered values as they are, and need not look for them
        for part in parts(rows):
            cursor.execute(with_rows(statement, part, numbered=True).encode(), values_of(part))
