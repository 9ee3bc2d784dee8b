"""The connection to a PostgreSQL server: a pool, migrations, what happens when the server goes away, and its bell.

Every operation is one function that may run again: it is repeated, with growing pauses and within a bound, when the
connection breaks under it. Operations are therefore written so that a second run changes nothing, also when the first
was committed and only the answer was lost. Errors and reports never show a password.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from metier.errors import ConfigError, MissingExtra, StoreError, StoreReason
from metier.record.store.migrations import migrations
from metier.record.store.values import newer_schema, not_text

try:
    import psycopg
    import psycopg_pool
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise MissingExtra("PostgreSQL stores", "postgres") from error

Connection = psycopg.Connection[tuple[Any, ...]]
Result = TypeVar("Result")

POOL_SIZE: Final = 8
"""Connections a process holds at most; servers allow a hundred by default, and an append is over soon."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_MIGRATION_LOCK: Final = 0x4D45_5452_4D49_4752
_AGAIN: Final = ("40001", "40P01", "23505")
"""Serialization failure, deadlock, and an id that another stream took this moment: nothing was written, and the same
again will pass or find out why not."""

# What psycopg logs about a lost connection is told through `on_trouble`, so it need not reach a terminal.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class Link:
    """A server that may go away and come back."""

    def __init__(
        self, url: str, *, patience: float, on_trouble: Callable[[str], None] | None, ring: Callable[[], None]
    ) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            # The message would repeat parts of the URL, and one of them may be a password.
            hint = "postgresql://user@host:port/database"
            raise ConfigError("the URL of the PostgreSQL store cannot be understood", hint=hint) from None
        self.location = _location(given)
        self._url, self._patience, self._ring = url, patience, ring
        self._say = on_trouble or _silence
        self._options: dict[str, Any] = {
            "autocommit": True,
            "connect_timeout": 10,
            "fallback_application_name": "metier",
            "tcp_user_timeout": int(patience * 1000),
        }
        self._options = {key: value for key, value in self._options.items() if key not in given}
        self._closed = threading.Event()
        self._mending = threading.Lock()
        self._generation = 0
        self._ear: threading.Thread | None = None
        try:
            with self.connect() as connection:
                self.schema = self._migrate(connection)
                found = connection.execute("SELECT 'metier_events'::regclass::oid::int8").fetchone()
        except psycopg.Error as error:
            raise self._trouble(error, opening=True) from error
        assert found
        # Two stores in two schemas of one database do not wake each other.
        self.channel = f"metier_{found[0]}"
        self._pool = self._make_pool()

    # Operations

    def run(self, work: Callable[[Connection, bool], Result]) -> Result:
        """Do something on a connection, again if it breaks. `work` hears whether this is a repetition."""
        deadline: float | None = None
        turns = 0
        while True:
            generation = self._generation
            try:
                with self._pool.connection(self._patience) as connection:
                    return work(connection, turns > 0)
            except psycopg.Error as error:
                deadline = deadline or time.monotonic() + self._patience
                turns += 1
                if error.sqlstate in _AGAIN and time.monotonic() < deadline:
                    self._closed.wait(_FIRST_PAUSE)
                elif _is_lost(error) and not self._closed.is_set():
                    self._mend(generation, error, deadline)
                else:
                    raise self._trouble(error) from error
            except UnicodeEncodeError as error:
                raise not_text(self.location) from error

    def connect(self) -> Connection:
        return psycopg.connect(self._url, **self._options)

    def _make_pool(self) -> psycopg_pool.ConnectionPool[Connection]:
        pool = psycopg_pool.ConnectionPool[Connection](
            self._url,
            kwargs=self._options,
            min_size=1,
            max_size=POOL_SIZE,
            configure=_configure,
            name=self.location,
            open=False,
        )
        pool.open()
        return pool

    def _mend(self, generation: int, cause: psycopg.Error, deadline: float) -> None:
        """Wait until the server answers, then replace the pool; one thread does it for all."""
        with self._mending:
            if self._generation != generation or self._closed.is_set():
                return
            begun, pause, turns = time.monotonic(), _FIRST_PAUSE, 0
            self._say(f"{self.location}: the connection is lost ({_line(cause)}); trying for {self._patience:g} s")
            while True:
                try:
                    self.connect().close()
                    break
                except psycopg.Error as error:
                    turns += 1
                    if time.monotonic() + pause > deadline:
                        self._say(f"{self.location}: given up after {turns} tries")
                        raise self._trouble(error) from error
                    self._say(f"{self.location}: try {turns} failed, the next in {pause:g} s ({_line(error)})")
                    if self._closed.wait(pause):
                        raise self._trouble(error) from error
                    pause = min(pause * 2, _LONGEST_PAUSE)
            old, self._pool = self._pool, self._make_pool()
            self._generation += 1
            old.close()
            self._say(f"{self.location}: connected again after {time.monotonic() - begun:.1f} s")

    # Schema

    def _migrate(self, connection: Connection) -> int:
        """Run the steps that are missing, each once, however many processes start together."""
        steps = migrations("postgres")
        found = self._schema_of(connection)
        if found < len(steps):
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
                connection.execute("""
                    CREATE TABLE IF NOT EXISTS metier_migrations (number integer PRIMARY KEY, name text NOT NULL,
                    applied_at timestamptz NOT NULL DEFAULT now())""")
                for step in steps[self._schema_of(connection) :]:
                    for statement in step.statements:
                        connection.execute(statement.encode())
                    statement = "INSERT INTO metier_migrations (number, name) VALUES (%s, %s)"
                    connection.execute(statement, (step.number, step.name))
        return len(steps)

    def _schema_of(self, connection: Connection) -> int:
        """The number of the last step that ran, without asking for more rights than reading."""
        there = connection.execute("SELECT to_regclass('metier_migrations') IS NOT NULL").fetchone()
        if not there or not there[0]:
            return 0
        row = connection.execute("SELECT coalesce(max(number), 0) FROM metier_migrations").fetchone()
        assert row
        if row[0] > len(migrations("postgres")):
            raise newer_schema(self.location, row[0], len(migrations("postgres")))
        return int(row[0])

    # The bell

    def listen(self) -> None:
        """Ring from now on when another host wrote."""
        with self._mending:
            if self._ear is None and not self._closed.is_set():
                self._ear = threading.Thread(target=self._hear, name="metier-store-listener", daemon=True)
                self._ear.start()

    def _hear(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closed.is_set():
            try:
                with self.connect() as connection:
                    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))
                    pause = _FIRST_PAUSE
                    self._ring()  # whatever was written before the ear was open
                    while not self._closed.is_set():
                        for _ in connection.notifies(timeout=5, stop_after=1):
                            self._ring()
            except psycopg.Error:
                # Whoever waits looks by himself once in a while, and reports the trouble; the ear only tries again.
                self._closed.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def close(self) -> None:
        self._closed.set()
        if self._ear:
            try:
                with self._pool.connection(1) as connection:
                    connection.execute("SELECT pg_notify(%s, '')", (self.channel,))
            except psycopg.Error:
                pass  # then the ear has lost its connection too, and ends by itself
            self._ear.join(6)
        self._pool.close()

    # Errors

    def _trouble(self, error: psycopg.Error, *, opening: bool = False) -> StoreError:
        """What the server refused, as one clear error with the way out."""
        state = error.sqlstate or ""
        reason: StoreReason = "unopenable" if opening else "failed"
        hint = ""
        if state in ("53100", "53200"):
            reason, hint = "full", "free some space on the server; nothing stored was harmed"
        elif state == "25006":
            reason, hint = "read-only", "it may be a standby: name the primary, or target_session_attrs=read-write"
        elif state == "55P03":
            reason, hint = "busy", f"another writer held its lock for more than {self._patience:g} s"
        elif state in ("XX001", "XX002"):
            reason, hint = "corrupt", "the server's data is damaged: restore a backup"
        elif state in ("42501", "3F000"):
            reason, hint = "unopenable", "the user needs a schema in which it may create and write tables"
        elif _is_lost(error):
            reason = "unopenable" if opening else "lost"
            hint = "start the server or mend the URL; no acknowledged event is lost"
        return StoreError(_line(error), reason=reason, store=self.location, hint=hint)


def _silence(_: str) -> None:
    """Nobody wants to know."""


def _configure(connection: Connection) -> None:
    # Each statement must see what was committed before it: after a lock, that is the point of having waited for it.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    # A plan that is kept from when a table was small reads all of it, at every append, once it has grown.
    connection.execute("SET plan_cache_mode = force_custom_plan")


def _is_lost(error: psycopg.Error) -> bool:
    """Whether the connection, and not the statement, is to blame."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith("08") or state in ("57P01", "57P02", "57P03", "57P05", "53300", "25P03")


def _line(error: psycopg.Error) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."


def _location(given: dict[str, Any]) -> str:
    user = f"{given['user']}@" if given.get("user") else ""
    port = f":{given['port']}" if given.get("port") else ""
    return f"postgresql://{user}{given.get('host') or ''}{port}/{given.get('dbname') or ''}"
