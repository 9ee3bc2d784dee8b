"""What the stores in databases share: the statements that are the same in SQLite and PostgreSQL, and their results.

Statements name tables as PostgreSQL has them, and have `%s` in place of values. Each store runs them in its own way.

Rows are written with few statements. Each statement costs: SQLite gives other threads the interpreter, which they keep
a while, and a server plans it anew. A statement with thousands of rows would have to be prepared for each number of
them. So rows are written 64 or 16 at a time, and what remains together.
"""

import functools
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from metier.record.store.base import TOUCH_MS, BaseStore, Notice, Selection, now_ms
from metier.record.store.schema import SCHEMA
from metier.record.store.values import (
    GRACE_MS,
    Document,
    Frame,
    Pruned,
    Stats,
    Summary,
    parse_frame,
    parse_value,
)
from metier.record.store.writes import EventRow, StateRow, digests_in

INSERT_EVENTS: Final = "INSERT INTO metier_events (id, session_id, stream_id, seq, timestamp_ms, type, body) VALUES {}"
"""The rows, which stand for `{}`, are inserted in their order, so positions rise with seq."""
INSERT_USES: Final = "INSERT INTO metier_artifact_uses (session_id, digest) VALUES {} ON CONFLICT DO NOTHING"
_INSERT_ARTIFACT: Final = """
INSERT INTO metier_artifacts (digest, touched_ms, size, content) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"""
_RESTORE_STATE: Final = """
INSERT INTO metier_states (session_id, key, version, saved_ms, value)
VALUES (%s, %s, %s, %s, %s) ON CONFLICT (session_id, key) DO UPDATE
SET version = excluded.version, saved_ms = excluded.saved_ms, value = excluded.value
WHERE metier_states.version < excluded.version"""
_COUNTS: Final = """
SELECT (SELECT count(DISTINCT session_id) FROM metier_streams), (SELECT count(*) FROM metier_streams),
(SELECT CAST(coalesce(sum(next_seq), 0) AS bigint) FROM metier_streams), (SELECT count(*) FROM metier_artifacts),
(SELECT CAST(coalesce(sum(size), 0) AS bigint) FROM metier_artifacts), (SELECT count(*) FROM metier_states)"""
_UNUSED_ARTIFACTS: Final = """
DELETE FROM metier_artifacts WHERE touched_ms <= %s
AND NOT EXISTS (SELECT 1 FROM metier_artifact_uses WHERE metier_artifact_uses.digest = metier_artifacts.digest)
RETURNING size"""
_COLUMNS: Final = ("id", "session_id", "stream_id", "seq", "timestamp_ms", "type")
"""What an event has in columns of its own, besides its text."""
_SIZES: Final = (64, 16)
_AMONG: Final = 500
"""The most values that one query looks for. SQLite has a limit, and larger plans are not faster."""

Value: TypeAlias = str | int | bytes | None
Record: TypeAlias = tuple[Any, ...]
"""A row of a result. The schema says what is in it."""
Row = TypeVar("Row", bound=tuple[str | int, ...])
Result = TypeVar("Result")


class Results(Protocol):
    """What a statement returned, as both drivers give it."""

    @property
    def rowcount(self) -> int: ...
    def fetchall(self) -> list[Any]: ...


Execute: TypeAlias = Callable[[str, Sequence[Value]], Results]
"""Runs one statement of a transaction."""


class SqlStore(BaseStore):
    """The common part of a store in a database. Each adds how it writes, waits and numbers positions."""

    _kind: str

    @abstractmethod
    def _rows(self, query: str, *values: Value) -> list[Record]:
        """Return the rows that a query finds in one state of the database."""

    @abstractmethod
    def _removing(self, work: Callable[[Execute], Result]) -> Result:
        """Do some work in one transaction, during which nobody appends."""

    @abstractmethod
    def _size(self) -> int:
        """Return the size of the store on disk."""

    # Reading

    def _read_frames(self, selection: Selection) -> list[Frame]:
        query, values = selecting(selection)
        rows = self._rows(query, *values)
        return [frame_of(row) for row in (reversed(rows) if selection.newest else rows)]

    def last_seq(self, stream_id: str) -> int:
        found = self._rows("SELECT next_seq FROM metier_streams WHERE stream_id = %s", stream_id)
        return int(found[0][0]) - 1 if found else -1

    def sessions(self) -> list[Summary]:
        query = """
            SELECT session_id, min(first_ms), max(last_ms), CAST(sum(next_seq) AS bigint) FROM metier_streams
            GROUP BY session_id"""
        found = [Summary(*row) for row in self._rows(query)]
        # Sorted here, like all that follows, because the collation of a server is unknown.
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
        where, values = combined({"session_id = %s": session_id, "key = %s": key})
        rows = self._rows(f"SELECT session_id, key, version, value FROM metier_states{where}", *values)  # noqa: S608
        rows.sort(key=lambda row: row[:2])
        return [(session, Document(name, version, parse_value(text))) for session, name, version, text in rows]

    def _read_notices(self, channel: str, after: int) -> list[Notice]:
        query = "SELECT number, payload FROM metier_notices WHERE number > %s AND channel = %s ORDER BY number"
        return [Notice(*row) for row in self._rows(query, after, channel)]

    def stats(self) -> Stats:
        sessions, streams, events, artifacts, artifact_bytes, states = self._rows(_COUNTS)[0]
        return Stats(
            kind=self._kind,
            location=self.location,
            schema=SCHEMA,
            sessions=sessions,
            streams=streams,
            events=events,
            artifacts=artifacts,
            artifact_bytes=artifact_bytes,
            states=states,
            bytes=self._size(),
        )

    # Retention

    def prune(self, older_than_ms: int, keep_sessions: Collection[str] = (), *, grace_ms: int = GRACE_MS) -> Pruned:
        sessions = events = 0
        for summary in self.sessions():
            if summary.last_ms < older_than_ms and summary.id not in keep_sessions:
                removed = self._remove_session(summary.id, older_than_ms)
                sessions, events = sessions + (removed > 0), events + removed

        def work(execute: Execute) -> list[int]:
            query = """
                SELECT DISTINCT session_id FROM metier_states WHERE saved_ms < %s
                AND session_id NOT IN (SELECT session_id FROM metier_streams)"""
            for (session_id,) in execute(query, (older_than_ms,)).fetchall():
                if session_id not in keep_sessions:
                    statement = "DELETE FROM metier_states WHERE session_id = %s AND saved_ms < %s"
                    execute(statement, (session_id, older_than_ms))
            return [row[0] for row in execute(_UNUSED_ARTIFACTS, (now_ms() - grace_ms,)).fetchall()]

        sizes = self._removing(work)
        return Pruned(sessions, events, len(sizes), sum(sizes))

    def _remove_session(self, session_id: str, older_than_ms: int) -> int:
        """Remove a session, unless it got new events since it was listed, and return the number of its events."""

        def work(execute: Execute) -> int:
            query = "SELECT max(last_ms) FROM metier_streams WHERE session_id = %s"
            ((last,),) = execute(query, (session_id,)).fetchall()
            if last is None or last >= older_than_ms:
                return 0
            for table in ("metier_streams", "metier_artifact_uses", "metier_states"):
                execute(f"DELETE FROM {table} WHERE session_id = %s", (session_id,))  # noqa: S608 - names of ours
            return execute("DELETE FROM metier_events WHERE session_id = %s", (session_id,)).rowcount

        return self._removing(work)


# Statements


def combined(conditions: Mapping[str, Value]) -> tuple[str, list[Value]]:
    """Return the WHERE of the conditions that have a value, and these values."""
    given = {condition: value for condition, value in conditions.items() if value is not None}
    return f" WHERE {' AND '.join(given)}" if given else "", [*given.values()]


def frame_of(row: Record) -> Frame:
    """The frame in a row of `selecting`. If its text and columns differ, one was changed, and it fits no chain."""
    frame = parse_frame(row[1])
    columns = dict(zip(_COLUMNS, row[2:], strict=True))
    return frame if columns.items() <= frame.items() else {**frame, **columns, "chain": ""}


def selecting(selection: Selection, end: int | None = None) -> tuple[str, list[Value]]:
    """Return the query for the positions, texts and columns of the selected events up to a position, and its values."""
    # With a stream, the index of the stream is the right one: a computed column cannot tempt the planner.
    session = "session_id = %s" if selection.stream_id is None else "session_id || '' = %s"
    where, values = combined(
        {
            "stream_id = %s": selection.stream_id,
            session: selection.session_id,
            "position > %s": selection.cursor or None,
            "position <= %s": end,
            "seq > %s": selection.after if selection.after >= 0 else None,
            "timestamp_ms >= %s": selection.since_ms,
        }
    )
    if selection.types is not None:
        types = sorted(selection.types)
        marks = ", ".join(["%s"] * len(types)) or "NULL"
        where = f"{where} {'AND' if where else 'WHERE'} type IN ({marks})"
        values += types
    order = "position" if selection.stream_id is None else "seq"
    shown = ", ".join(("position", "body", *_COLUMNS))
    query = f"SELECT {shown} FROM metier_events{where} ORDER BY {order}"  # noqa: S608 - values are apart
    if selection.newest:
        query += " DESC"
    return (query, values) if selection.limit is None else (f"{query} LIMIT %s", [*values, selection.limit])


def insert_artifacts(execute: Execute, artifacts: Mapping[str, bytes]) -> int:
    """Write the artifacts that are new, and return their number."""
    if not artifacts:
        return 0
    count, now, digests = 0, now_ms(), sorted(artifacts)
    found: dict[str, int] = {}
    for start in range(0, len(digests), _AMONG):
        part = digests[start : start + _AMONG]
        marks = ", ".join(["%s"] * len(part))
        query = f"SELECT digest, touched_ms FROM metier_artifacts WHERE digest IN ({marks})"  # noqa: S608 - marks only
        found.update(execute(query, part).fetchall())
    for digest in digests:
        content = artifacts[digest]
        if digest not in found:
            count += execute(_INSERT_ARTIFACT, (digest, now, len(content), content)).rowcount
        elif found[digest] < now - TOUCH_MS:
            execute("UPDATE metier_artifacts SET touched_ms = %s WHERE digest = %s", (now, digest))
    return count


def restore_states(execute: Execute, states: Sequence[StateRow]) -> int:
    """Write the documents whose version is higher than the stored one, and return their number."""
    now = now_ms()
    rows = ((state.session_id, state.key, state.version, now, state.text) for state in states)
    return sum(execute(_RESTORE_STATE, row).rowcount for row in rows)


def heads_after(rows: Sequence[EventRow]) -> dict[str, tuple[int, int, int]]:
    """Return the next seq of each stream after these rows, and the times of its first and last one."""
    heads: dict[str, tuple[int, int, int]] = {}
    for row in rows:
        _, first, last = heads.get(row.stream_id, (0, row.timestamp_ms, row.timestamp_ms))
        heads[row.stream_id] = (row.seq + 1, min(first, row.timestamp_ms), max(last, row.timestamp_ms))
    return heads


def uses_of(rows: Sequence[EventRow]) -> list[tuple[str, str]]:
    """Return which session uses which artifact, by these rows."""
    return sorted({(row.session_id, digest) for row in rows for digest in digests_in(row.text)})


def parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The rows in the parts that are written together."""
    start = 0
    while start < len(rows):
        left = len(rows) - start
        count = next((size for size in _SIZES if left >= size), left)
        yield rows[start : start + count]
        start += count


def with_rows(statement: str, rows: Sequence[tuple[str | int, ...]], *, numbered: bool = False) -> str:
    """A statement that has `{}` in place of its rows, with a `%s`, or `$1` and so on, for each of their values."""
    return _with_rows(statement, len(rows[0]), len(rows), numbered)


def values_of(rows: Sequence[tuple[str | int, ...]]) -> list[str | int]:
    """The values of rows, one row after the other."""
    return [value for row in rows for value in row]


@functools.cache
def _with_rows(statement: str, width: int, count: int, numbered: bool) -> str:
    """There are few, so that a connection keeps them prepared."""
    marks = [f"${number}" if numbered else "%s" for number in range(1, width * count + 1)]
    rows = [",".join(marks[start : start + width]) for start in range(0, len(marks), width)]
    return statement.format(",".join(f"({row})" for row in rows))
