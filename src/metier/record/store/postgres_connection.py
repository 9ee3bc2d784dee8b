"""The connection to a PostgreSQL server: its pool, the tables, reconnecting, and notifications of changes.

Every operation is a function that can run again: when its connection breaks, it is repeated after growing pauses and
within a time limit. A second run must therefore change nothing, even if the first one was committed and only its answer
was lost. A server that was given up is tried once by each later operation. Errors and reports never show a password.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from metier.errors import ConfigError, StoreError, StoreReason, report_missing
from metier.record.store.checks import invalid_text
from metier.record.store.schema import SCHEMA, check_schema, statements

try:
    import psycopg
    import psycopg_pool
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.rows import TupleRow
except ImportError as error:
    report_missing(error, "PostgreSQL stores", "postgres")

Connection = psycopg.Connection[TupleRow]
RawCursor = psycopg.RawCursor[TupleRow]
Result = TypeVar("Result")

POOL_SIZE: Final = 8
"""The most connections of a process. Servers allow a hundred by default, and an append is short."""

_CONNECT_SECONDS: Final = 3
"""How long one attempt to connect may take. A server that does not answer at all would hold every call longer."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
_SCHEMA_LOCK: Final = 0x4D45_5452_4D49_4752
_RETRYABLE: Final = ("40001", "40P01", "23505")
"""Serialization failure, deadlock, and an id that another stream took at the same moment. Nothing was written, and a
second run either succeeds or finds the cause."""

# The timeouts bound how long a stalled writer can block others. Commits are durable whatever the server's defaults are.
# A plan cached while a table was small would scan the whole table at every append once it has grown.
_SETTINGS: Final = """
SELECT set_config('lock_timeout', %(ms)s, false), set_config('idle_in_transaction_session_timeout', %(ms)s, false),
CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END,
set_config('plan_cache_mode', 'force_custom_plan', false)"""

# Lost connections are reported through `on_trouble`; without a handler, psycopg's log would reach the terminal.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class PostgresConnection:
    """A server that can become unreachable and come back."""

    def __init__(
        self,
        url: str,
        *,
        patience: float,
        outage: float,
        on_trouble: Callable[[str], None] | None,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when another host wrote, once `start_listening` was called."""
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            # The driver's message would repeat parts of the URL, and one of them may be a password.
            hint = "use postgresql://user@host:port/database"
            raise ConfigError("the URL of the PostgreSQL store is not valid", hint=hint) from None
        self.location = _location(given)
        defaults: dict[str, str | int] = {
            "connect_timeout": _CONNECT_SECONDS,
            "fallback_application_name": "metier",
            "tcp_user_timeout": int(patience * 1000),
        }
        self._conninfo = make_conninfo(url, **{key: value for key, value in defaults.items() if key not in given})
        self._patience, self._outage, self._on_change = patience, min(outage, patience), on_change
        self._report = on_trouble or _ignore
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._generation = 0
        self._given_up: psycopg.Error | None = None
        """Why the server was not reached the last time; `None` if it was."""
        self._listener: threading.Thread | None = None
        try:
            with self.connect() as connection:
                self._make_tables(connection)
                found = connection.execute("SELECT 'metier_events'::regclass::oid::int8").fetchone()
        except psycopg.Error as error:
            raise self._error(error, opening=True) from error
        assert found
        # Named for the table, so that two stores in two schemas of one database do not wake each other.
        self.channel = f"metier_{found[0]}"
        self._pool = self._make_pool()

    # Operations

    def run(self, work: Callable[[Connection, bool], Result]) -> Result:
        """Call `work` with a connection, and again if it breaks. Its second argument is true if it is repeated."""
        begun: float | None = None
        attempts = 0
        while True:
            generation, given_up = self._generation, self._given_up
            if given_up is not None:
                self._reconnect(generation, given_up, deadline=0)
                generation = self._generation
            try:
                with self._pool.connection(self._patience) as connection:
                    return work(connection, attempts > 0)
            except psycopg.Error as error:
                begun = begun or time.monotonic()
                attempts += 1
                if error.sqlstate in _RETRYABLE and time.monotonic() < begun + self._patience:
                    self._closed.wait(_FIRST_PAUSE)
                elif _is_lost(error) and not self._closed.is_set():
                    self._reconnect(generation, error, begun + self._outage)
                else:
                    raise self._error(error) from error
            except UnicodeEncodeError as error:
                raise invalid_text(self.location) from error

    def connect(self) -> Connection:
        return psycopg.connect(self._conninfo, autocommit=True)

    def _make_pool(self) -> psycopg_pool.ConnectionPool[Connection]:
        pool = psycopg_pool.ConnectionPool[Connection](
            self._conninfo,
            kwargs={"autocommit": True},
            min_size=1,
            max_size=POOL_SIZE,
            configure=self._configure,
            name=self.location,
            open=False,
        )
        pool.open()
        return pool

    def _configure(self, connection: Connection) -> None:
        # A statement after a lock must see everything committed while it waited for the lock.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.execute(_SETTINGS, {"ms": str(int(self._patience * 1000))})

    def _reconnect(self, generation: int, cause: psycopg.Error, deadline: float) -> None:
        """Wait until the server answers, then replace the pool. One thread does it for all."""
        known = self._given_up
        with self._lock:
            if self._generation != generation or self._closed.is_set():
                return
            if self._given_up is not known and self._given_up is not None:  # by the thread that had the lock
                raise self._error(self._given_up)
            begun = time.monotonic()
            if known is None:
                self._report(f"{self.location}: connection lost ({_one_line(cause)}); retrying for {self._outage:g} s")
            self._wait_for_server(deadline if known is None else 0)
            old, self._pool, self._given_up = self._pool, self._make_pool(), None
            self._generation += 1
            old.close()
            self._report(f"{self.location}: reconnected after {time.monotonic() - begun:.1f} s")

    def _wait_for_server(self, deadline: float) -> None:
        pause, attempts = _FIRST_PAUSE, 0
        while True:
            try:
                self.connect().close()
                return
            except psycopg.Error as error:
                attempts += 1
                if time.monotonic() + pause > deadline:
                    self._report(f"{self.location}: gave up after {attempts} attempts")
                    self._given_up = error
                    self._pool.close()  # whoever waits for a connection of it need not wait longer
                    raise self._error(error) from error
                failed = f"{self.location}: attempt {attempts} failed ({_one_line(error)})"
                self._report(f"{failed}; the next is in {pause:g} s")
                if self._closed.wait(pause):
                    raise self._error(error) from error
                pause = min(pause * 2, _LONGEST_PAUSE)

    # Schema

    def _make_tables(self, connection: Connection) -> None:
        """Make the tables of an empty database, once, however many processes start together."""
        if not self._is_empty(connection):
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            # This also lets the connection see what another process made while this one waited.
            connection.execute("CREATE TABLE IF NOT EXISTS metier_schema (version integer NOT NULL)")
            if self._is_empty(connection):
                for statement in statements("postgres"):
                    connection.execute(statement.encode())
                connection.execute("INSERT INTO metier_schema (version) VALUES (%s)", (SCHEMA,))

    def _is_empty(self, connection: Connection) -> bool:
        """Return whether there are no tables yet. This needs no other privilege than reading."""
        exists = connection.execute("SELECT to_regclass('metier_schema') IS NOT NULL").fetchone()
        if not exists or not exists[0]:
            return True
        row = connection.execute("SELECT version FROM metier_schema").fetchone()
        return check_schema(row[0] if row else 0, self.location) == 0

    # Changes by other hosts

    def start_listening(self) -> None:
        """Call `on_change` from now on when another host wrote."""
        with self._lock:
            if self._listener is None and not self._closed.is_set():
                self._listener = threading.Thread(target=self._listen, name="metier-store-listener", daemon=True)
                self._listener.start()

    def _listen(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closed.is_set():
            try:
                with self.connect() as connection:
                    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))
                    pause = _FIRST_PAUSE
                    self._on_change()  # for everything written before the connection listened
                    while not self._closed.is_set():
                        for _ in connection.notifies(timeout=5, stop_after=1):
                            self._on_change()
            except psycopg.Error:
                # Waiting calls poll, and raise the error themselves. This thread only tries again.
                self._closed.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def close(self) -> None:
        self._closed.set()
        if self._listener:
            try:
                with self._pool.connection(1) as connection:
                    connection.execute("SELECT pg_notify(%s, '')", (self.channel,))
            except psycopg.Error:
                pass  # the listening thread has lost its connection too, and ends by itself
            self._listener.join(6)
        self._pool.close()

    # Errors

    def busy(self, patience: float) -> StoreError:
        """Return the error for a write that got no turn."""
        hint = "other writes of this process wait for the server; see its log"
        return StoreError(f"busy for more than {patience:g} s", reason="busy", store=self.location, hint=hint)

    def _error(self, error: psycopg.Error, *, opening: bool = False) -> StoreError:
        """Return the `StoreError` for an error of the driver or the server, with a hint at what to do."""
        state = error.sqlstate or ""
        reason: StoreReason = "unopenable" if opening else "failed"
        hint = ""
        if state in ("53100", "53200"):
            reason, hint = "full", "free some space on the server; all stored data is intact"
        elif state == "25006":
            reason, hint = "read-only", "it may be a standby: name the primary, or add target_session_attrs=read-write"
        elif state == "55P03":
            reason, hint = "busy", f"another writer held its lock for more than {self._patience:g} s"
        elif state in ("XX001", "XX002"):
            reason, hint = "corrupt", "the data of the server is damaged: restore a backup"
        elif state in ("42501", "3F000"):
            reason, hint = "unopenable", "the user needs a schema in which it can create and write tables"
        elif _is_lost(error):
            reason = "unopenable" if opening else "lost"
            hint = "start the server or correct the URL; no acknowledged event is lost"
        return StoreError(_one_line(error), reason=reason, store=self.location, hint=hint)


def _ignore(_: str) -> None:
    """Drop reports if there is no `on_trouble`."""


def _is_lost(error: psycopg.Error) -> bool:
    """Whether the cause is the connection and not the statement."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith("08") or state in ("57P01", "57P02", "57P03", "57P05", "53300", "25P03")


def _one_line(error: psycopg.Error) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."


def _location(given: Mapping[str, str | int | None]) -> str:
    user = f"{given['user']}@" if given.get("user") else ""
    port = f":{given['port']}" if given.get("port") else ""
    return f"postgresql://{user}{given.get('host') or ''}{port}/{given.get('dbname') or ''}"
