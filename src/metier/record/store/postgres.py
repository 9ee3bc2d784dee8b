"""The store for many hosts with one trail: PostgreSQL.

Seq: a writer holds the row of its stream, so its stream has no gap. Positions: they are drawn from a sequence, and a
transaction may end long after it drew, so a follower that went by visible positions would jump over it. Each writer
therefore publishes, as a shared advisory lock and before it draws, the last position that was given; everything up to
the lowest lock that is held is settled, and a page never goes beyond. Writers of different streams thus never wait for
each other, and their commits share the server's flushes.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, LiteralString

from metier.record.store import postgres_statements as statements
from metier.record.store.base import NOTICES_MS, TOUCH_MS, BaseStore, now_ms
from metier.record.store.lines import Imported
from metier.record.store.postgres_link import Connection, Link
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


class PostgresStore(BaseStore):
    """See `Store`. One pool for the process; every write is one transaction that may safely run twice."""

    poll_seconds: ClassVar[float] = 1.0

    def __init__(self, url: str, *, on_trouble: Callable[[str], None] | None = None, patience: float = 30.0) -> None:
        self._link = Link(url, patience=patience, on_trouble=on_trouble, ring=self.ring)
        self._terms = {"ms": str(int(patience * 1000))}
        super().__init__(self._link.location)

    def until(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        self._link.listen()
        return super().until(ready, timeout)

    def look_outside(self) -> None:
        self.ring()  # a notification can be lost with its connection, so waiters look for themselves once a second

    def release(self) -> None:
        self._link.close()

    # Writing

    def write(self, batch: Batch, state: StateChange | None) -> list[Frame]:
        def work(connection: Connection, again: bool) -> list[Frame]:
            wanted = {batch.stream_id: Stream(batch.stream_id, batch.session_id, batch.stream_kind)}
            with connection.pipeline():
                with connection.transaction():
                    connection.execute(statements.TERMS, self._terms)
                    streams, known = self._hold(connection, wanted, batch.ids)
                    stream = streams[batch.stream_id]
                    same_stream(stream, batch.session_id, batch.stream_kind)
                    frames, rows = number(batch, stream.next_seq, known)
                    self._keep(connection, batch.artifacts)
                    self._insert(connection, rows)
                    if state is not None:
                        self._save(connection, state, again)
                self._tell(connection)
            return frames

        return self._link.run(work)

    def write_restored(
        self, frames: list[Frame], artifacts: Mapping[str, bytes], states: list[tuple[str, str, int, str]]
    ) -> Imported:
        def work(connection: Connection, _: bool) -> Imported:
            wanted = {
                frame["stream_id"]: Stream(frame["stream_id"], frame["session_id"], frame["stream_kind"])
                for frame in frames
            }
            with connection.transaction():
                connection.execute(statements.TERMS, self._terms)
                streams, known = self._hold(connection, wanted, [frame["id"] for frame in frames])
                rows = settle(frames, streams, known)
                kept = self._keep(connection, artifacts)
                self._insert(connection, rows)
                saved = 0
                statement = """
                    INSERT INTO metier_states AS old (session_id, key, version, saved_ms, value)
                    VALUES (%s, %s, %s, %s, %s) ON CONFLICT (session_id, key) DO UPDATE
                    SET version = excluded.version, saved_ms = excluded.saved_ms, value = excluded.value
                    WHERE old.version < excluded.version"""
                for session, key, version, text in states:
                    saved += connection.execute(statement, (session, key, version, now_ms(), text)).rowcount
            self._tell(connection)
            return Imported(len(rows), kept, saved)

        return self._link.run(work)

    def write_artifacts(self, artifacts: Mapping[str, bytes]) -> None:
        def work(connection: Connection, _: bool) -> None:
            with connection.transaction():
                connection.execute(statements.TERMS, self._terms)
                self._keep(connection, artifacts)

        self._link.run(work)

    def write_state(self, change: StateChange) -> int:
        def work(connection: Connection, again: bool) -> int:
            with connection.transaction():
                connection.execute(statements.TERMS, self._terms)
                return self._save(connection, change, again)

        return self._link.run(work)

    @staticmethod
    def _save(connection: Connection, change: StateChange, again: bool) -> int:
        place = (change.session_id, change.key)
        query = "SELECT version, value FROM metier_states WHERE session_id = %s AND key = %s FOR UPDATE"
        found = connection.execute(query, place).fetchone()
        if found is None:
            # An empty place to lock, so that of two first saves one waits for the other.
            connection.execute("INSERT INTO metier_states VALUES (%s, %s, 0, 0, '') ON CONFLICT DO NOTHING", place)
            found = connection.execute(query, place).fetchone()
            assert found
        standing: int = found[0]
        if again and change.expected is not None and found == (change.expected + 1, change.text):
            return standing  # the first try was committed, only its answer was lost
        version = change.next_version(standing)
        statement = """
            UPDATE metier_states SET version = %s, saved_ms = %s, value = %s WHERE session_id = %s AND key = %s"""
        connection.execute(statement, (version, now_ms(), change.text, *place))
        return version

    def write_notice(self, channel: str, payload: str) -> None:
        def work(connection: Connection, _: bool) -> None:
            now = now_ms()
            with connection.transaction():
                connection.execute(statements.TERMS, self._terms)
                # One sender at a time: the order of numbers is then the order of commits, and no listener misses one.
                connection.execute("LOCK TABLE metier_notices IN SHARE ROW EXCLUSIVE MODE")
                connection.execute("DELETE FROM metier_notices WHERE sent_ms < %s", (now - NOTICES_MS,))
                statement = "INSERT INTO metier_notices (channel, sent_ms, payload) VALUES (%s, %s, %s)"
                connection.execute(statement, (channel, now, payload))
            self._tell(connection)

        self._link.run(work)

    def _tell(self, connection: Connection) -> None:
        """Wake the followers on other hosts.

        It is a transaction of its own: commits that notify wait for each other inside of the server, and would no
        longer share a flush. Should it be lost, followers look once a second anyway.
        """
        connection.execute("SELECT pg_notify(%s, '')", (self._link.channel,))

    @staticmethod
    def _hold(
        connection: Connection, wanted: Mapping[str, Stream], events: list[str]
    ) -> tuple[dict[str, Stream], dict[str, str]]:
        """The heads of streams, locked until the end of the transaction, and the texts of those events that are there.

        Streams are locked in an order that is the same for everybody. The texts are looked up after that, by a
        statement of its own: it sees what the writer before us committed.
        """
        ids = sorted(wanted)
        while True:
            held = connection.execute(statements.HOLD, (ids,))
            known = connection.execute(statements.TEXTS, (events,))
            streams = {row[0]: Stream(*row) for row in held}
            missing = [wanted[id_] for id_ in ids if id_ not in streams]
            if not missing:
                return streams, dict(known.fetchall())
            for stream in missing:
                connection.execute(statements.CREATE, (stream.id, stream.session_id, stream.kind, statements.NO_END))

    @staticmethod
    def _keep(connection: Connection, artifacts: Mapping[str, bytes]) -> int:
        """Write the artifacts that are new; the number of them."""
        if not artifacts:
            return 0
        # Keeps a prune out (it locks the table) between the look and the end of the transaction.
        connection.execute("LOCK TABLE metier_streams IN ROW SHARE MODE")
        query = "SELECT digest, touched_ms FROM metier_artifacts WHERE digest = ANY(%s)"
        found: dict[str, int] = dict(connection.execute(query, (list(artifacts),)).fetchall())
        kept, now = 0, now_ms()
        for digest, content in artifacts.items():
            if digest not in found:
                kept += connection.execute(statements.KEEP, (digest, now, len(content), content)).rowcount
        stale = [digest for digest, touched in found.items() if touched < now - TOUCH_MS]
        if stale:
            statement = "UPDATE metier_artifacts SET touched_ms = %s WHERE digest = %s"
            for digest in sorted(stale):
                connection.execute(statement, (now, digest))
        return kept

    @staticmethod
    def _insert(connection: Connection, rows: list[Row]) -> None:
        if not rows:
            return
        connection.execute(statements.PUBLISH)
        with connection.cursor() as cursor:
            cursor.executemany(statements.INSERT, rows)
            uses = sorted({(row.session_id, digest) for row in rows for digest in references([row.text])})
            if uses:
                cursor.executemany(statements.USE, uses)
            for stream_id in sorted({row.stream_id for row in rows}):
                own = [row for row in rows if row.stream_id == stream_id]
                times = [row.timestamp_ms for row in own]
                cursor.execute(statements.ADVANCE, (own[-1].seq + 1, min(times), max(times), stream_id))

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
        self.usable()
        query, values = self._selection(0, statements.NO_END, session_id, stream_id, types, limit, after, since_ms)
        ordered: Any = backwards(query) if newest else query
        rows = self._link.run(lambda connection, _: connection.execute(ordered, values).fetchall())
        return [parse(text) for _, text in (reversed(rows) if newest else rows)]

    def page(
        self,
        cursor: int = 0,
        session_id: str | None = None,
        stream_id: str | None = None,
        types: Collection[str] | None = None,
        limit: int = 500,
    ) -> Page:
        self.usable()
        limit = max(limit, 1)

        def work(connection: Connection, _: bool) -> tuple[int, list[tuple[Any, ...]]]:
            end = self._settled(connection)
            query, values = self._selection(cursor, end, session_id, stream_id, types, limit)
            return end, connection.execute(query, values).fetchall()

        end, rows = self._link.run(work)
        place = rows[-1][0] if len(rows) == limit else max(end, cursor)
        return Page(tuple(parse(text) for _, text in rows), place)

    @staticmethod
    def _settled(connection: Connection) -> int:
        """The position up to which everything that was drawn is committed or gone."""
        # In this order: who publishes after the first look draws behind it; who ended before the second is visible.
        row = connection.execute(statements.GIVEN).fetchone()
        assert row
        given: int = row[0]
        behind = [(given - low) % statements.ROUND for (low,) in connection.execute(statements.PUBLISHED)]
        # Who published after the first look may be ahead of it, which comes out as almost a whole round behind.
        return given - max((steps for steps in behind if steps < statements.ROUND // 2), default=0)

    @staticmethod
    def _selection(
        cursor: int,
        end: int,
        session_id: str | None,
        stream_id: str | None,
        types: Collection[str] | None,
        limit: int | None,
        after: int = -1,
        since_ms: int | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        query = statements.ALL if session_id is None else statements.OF_SESSION
        values: dict[str, Any] = {
            "cursor": cursor,
            "end": end,
            "session": session_id,
            "stream": stream_id,
            "types": None if types is None else list(types),
            "after": after,
            "since": -1 if since_ms is None else since_ms,
            "limit": limit,
        }
        return statements.OF_STREAM if stream_id is not None else query, values

    def cursor(self) -> int:
        self.usable()
        return self._link.run(lambda connection, _: self._settled(connection))

    def last_seq(self, stream_id: str) -> int:
        found = self._rows("SELECT next_seq FROM metier_streams WHERE stream_id = %s", stream_id)
        return int(found[0][0]) - 1 if found else -1

    def sessions(self) -> list[Summary]:
        query = """
            SELECT session_id, min(first_ms), max(last_ms), sum(next_seq)::int8 FROM metier_streams
            GROUP BY session_id"""
        found = [Summary(*row) for row in self._rows(query)]
        # Sorted here and not there: the server's collation is anybody's.
        return sorted(found, key=lambda summary: (summary.first_ms, summary.id))

    def read_artifact(self, digest: str) -> bytes | None:
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
        return Document(key, found[0][0], parse(found[0][1])) if found else None

    def states(self, session_id: str | None = None, key: str | None = None) -> list[tuple[str, Document]]:
        query = """
            SELECT session_id, key, version, value FROM metier_states
            WHERE (%s::text IS NULL OR session_id = %s) AND (%s::text IS NULL OR key = %s)"""
        rows = sorted(self._rows(query, session_id, session_id, key, key), key=lambda row: row[:2])
        return [(session, Document(name, version, parse(text))) for session, name, version, text in rows]

    def notices(self, channel: str, after: int) -> list[tuple[int, str]]:
        query = "SELECT number, payload FROM metier_notices WHERE number > %s AND channel = %s ORDER BY number"
        return [(row[0], row[1]) for row in self._rows(query, after, channel)]

    def last_notice(self) -> int:
        return int(self._rows("SELECT coalesce(max(number), 0) FROM metier_notices")[0][0])

    def stats(self) -> Stats:
        query = """
            SELECT (SELECT count(DISTINCT session_id) FROM metier_streams), (SELECT count(*) FROM metier_streams),
            (SELECT coalesce(sum(next_seq), 0)::int8 FROM metier_streams), (SELECT count(*) FROM metier_artifacts),
            (SELECT coalesce(sum(size), 0)::int8 FROM metier_artifacts), (SELECT count(*) FROM metier_states),
            (SELECT sum(pg_total_relation_size(name::regclass))::int8 FROM unnest(array['metier_streams',
            'metier_events', 'metier_artifacts', 'metier_artifact_uses', 'metier_states', 'metier_notices']) AS name)"""
        return Stats("postgres", self.location, self._link.schema, *self._rows(query)[0])

    def _rows(self, query: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        self.usable()
        return self._link.run(lambda connection, _: connection.execute(query, values).fetchall())

    # Retention

    def prune(self, older_than_ms: int, keep_sessions: Collection[str] = (), *, grace_ms: int = GRACE_MS) -> Pruned:
        keep = list(keep_sessions)
        sessions = events = 0
        for summary in self.sessions():
            if summary.last_ms < older_than_ms and summary.id not in keep:
                gone = self._forget(summary.id, older_than_ms)
                sessions, events = sessions + (gone > 0), events + gone

        def sweep(connection: Connection, _: bool) -> list[int]:
            with connection.transaction():
                self._alone(connection)
                statement = """
                    DELETE FROM metier_states WHERE saved_ms < %s AND session_id <> ALL(%s)
                    AND session_id NOT IN (SELECT session_id FROM metier_streams)"""
                connection.execute(statement, (older_than_ms, keep))
                statement = """
                    DELETE FROM metier_artifacts AS old WHERE touched_ms <= %s
                    AND NOT EXISTS (SELECT 1 FROM metier_artifact_uses AS used WHERE used.digest = old.digest)
                    RETURNING size"""
                return [row[0] for row in connection.execute(statement, (now_ms() - grace_ms,))]

        sizes = self._link.run(sweep)
        return Pruned(sessions, events, len(sizes), sum(sizes))

    def _forget(self, session_id: str, older_than_ms: int) -> int:
        """Remove a session whole, unless it has come back to life since it was listed; the number of its events."""

        def work(connection: Connection, _: bool) -> int:
            with connection.transaction():
                self._alone(connection)
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

        return self._link.run(work)

    def _alone(self, connection: Connection) -> None:
        """Keep appends out until the end of the transaction; each of them begins with a look at this table."""
        connection.execute(statements.TERMS, self._terms)
        connection.execute("LOCK TABLE metier_streams IN EXCLUSIVE MODE")
