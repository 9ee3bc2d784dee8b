"""The file of a SQLite store: made, opened, locked, kept durable, and what is said when that cannot be.

WAL with synchronous=FULL: a commit is in the log, and the log on the disk, before a write returns, so that neither a
killed process nor a power cut takes it away. One connection writes, another reads, each under a lock of its own.

Invariant: a file that exists is never opened and closed here by hand. SQLite's locks belong to the process, and closing
any descriptor of the file would drop those of a store that has it open in another thread.
"""

import errno
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

from metier.errors import StoreError, StoreReason
from metier.record.store.migrations import migrations
from metier.record.store.values import newer_schema, not_text

_APPLICATION: Final = 0x4D455452
"""The mark in the file's header that makes it ours ("METR")."""

_LOG_BYTES: Final = 64_000_000
"""To what size the log is cut back after a checkpoint; it grows beyond while a reader holds on to an old state."""

_LOG_PAGES: Final = 4000
"""When the log is merged into the file. An append touches the same few pages as the last one, so a longer log saves
most of the merging; 16 MB of it are read in a moment after a crash."""

_ELSEWHERE: Final = "name another place with --store"
_FULL: Final = "free some space or `metier store prune`, then go on; nothing stored was harmed"
_READ_ONLY: Final = f"give this user the right to write there, or {_ELSEWHERE}"
_DAMAGED: Final = "move the file aside; a new one is made at the next start, and `metier store import` fills it"


class SqliteFile:
    """Two connections to one file: `writing` for one durable transaction, `reading` for one unchanging state."""

    def __init__(self, path: str, patience: float, guard: Callable[[], None]) -> None:
        """`guard` is asked under the lock before each use, and raises when the store must not be used any more."""
        self._path, self._patience, self._guard = path, patience, guard
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._closed = False
        make_file(path)
        with self._translated(opening=True):
            self._writer = self._connect()
            try:
                self.schema = self._retried(self._prepare)
                self._reader = self._connect()
            except BaseException:
                self._writer.close()
                raise
            self._writer.execute("PRAGMA busy_timeout = 0")
        # A store that nobody closed is closed when nobody has it any more, but never by a fork of its process.
        weakref.finalize(self, _release, os.getpid(), self._reader, self._writer)

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """The write lock of the file, for one transaction that is on disk when the block ends."""
        deadline = time.monotonic() + self._patience
        with self._translated():
            if not self._write_lock.acquire(timeout=self._patience):
                raise _busy(self._path, self._patience)
            try:
                self._guard()
                self._begin(deadline)
                try:
                    yield self._writer
                    self._writer.execute("COMMIT")
                except BaseException:
                    _roll_back(self._writer)
                    raise
            finally:
                self._write_lock.release()

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """One state of the file, which stays as it is while others write on."""
        with self._translated(), self._read_lock:
            self._guard()
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                _roll_back(self._reader)

    def version(self) -> int:
        """A number that changes with every commit by anybody but the reader, which never writes."""
        with self._translated(), self._read_lock:
            return 0 if self._closed else int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    def shrink(self) -> None:
        """Give the space of what was removed back to the disk."""
        with self._translated(), self._write_lock:
            self._guard()
            # A script, because only that runs the statement to its end: it frees one page a step.
            self._writer.executescript("PRAGMA incremental_vacuum")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def size(self) -> int:
        return sum(os.stat(file).st_size for file in (self._path, f"{self._path}-wal") if os.path.isfile(file))

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            self._closed = True
            self._reader.close()
            self._writer.close()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=self._patience, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone does not reach the disk there
            db.execute("PRAGMA checkpoint_fullfsync = ON")
            db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}").fetchall()
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _prepare(self) -> int:
        """Look whose file it is before anything in it is changed, then bring its schema up to date."""
        db, steps = self._writer, migrations("sqlite")
        version = self._judge(db)
        if version == 0:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}").fetchall()
        if version < len(steps):
            db.execute("BEGIN IMMEDIATE")
            try:
                for step in steps[self._judge(db) :]:
                    for statement in step.statements:
                        db.execute(statement)
                db.execute(f"PRAGMA application_id = {_APPLICATION}")
                db.execute(f"PRAGMA user_version = {len(steps)}")
                db.execute("COMMIT")
            except BaseException:
                _roll_back(db)
                raise
        return len(steps)

    def _judge(self, db: sqlite3.Connection) -> int:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        mark = int(db.execute("PRAGMA application_id").fetchone()[0])
        if mark != _APPLICATION and (mark or version or db.execute("SELECT 1 FROM sqlite_master").fetchone()):
            message = "is a SQLite database of another program"
            raise StoreError(message, reason="unopenable", store=self._path, hint=_ELSEWHERE)
        if version > len(migrations("sqlite")):
            raise newer_schema(self._path, version, len(migrations("sqlite")))
        return version

    def _retried(self, attempt: Callable[[], int]) -> int:
        """Changing the journal mode gives up at once where another starter does the same, whatever the timeout says."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                _pause(1)

    def _begin(self, deadline: float) -> None:
        # SQLite's own waiting sleeps up to 100 ms while the lock is free; short uneven pauses keep it in use.
        turns = 0
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                turns += 1
                _pause(turns)

    @contextmanager
    def _translated(self, *, opening: bool = False) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise database_error(error, self._path, opening=opening, patience=self._patience) from error
        except UnicodeEncodeError as error:
            raise not_text(self._path) from error


def make_file(path: str) -> None:
    """Create the file (0600) and its folder (0700) where they are missing, and refuse what can never be a store."""
    try:
        folder = os.path.dirname(path)
        _make_folder(folder)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            mode = os.stat(path).st_mode if os.path.exists(path) else stat.S_IFREG
        else:
            os.close(descriptor)
            _sync_folder(folder)
            return
    except OSError as error:
        raise file_error(error, path) from error
    if stat.S_ISDIR(mode):
        raise StoreError("is a folder, not a file", reason="unopenable", store=path, hint="name a file inside of it")
    if not stat.S_ISREG(mode):
        raise StoreError("is not a regular file", reason="unopenable", store=path, hint=_ELSEWHERE)
    for place, what in ((path, "the file"), (folder, "its folder")):
        # SQLite would open it and fail at the first write, or fail with a message that does not say why.
        if os.path.exists(place) and not os.access(place, os.R_OK | os.W_OK):
            raise StoreError(f"{what} cannot be written", reason="read-only", store=path, hint=_READ_ONLY)


def _make_folder(folder: str) -> None:
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    _make_folder(parent)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
    else:
        _sync_folder(parent)


def _sync_folder(folder: str) -> None:
    """A new name survives a power cut only when its folder is on disk as well."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_error(error: OSError, path: str) -> StoreError:
    """What the operating system refused, as one clear error."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError("the disk is full", reason="full", store=path, hint=_FULL)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        why = "the file system is read-only" if error.errno == errno.EROFS else "no permission to create it"
        return StoreError(why, reason="read-only", store=path, hint=_READ_ONLY)
    where = f" ({error.filename})" if error.filename and error.filename != path else ""
    return StoreError(f"cannot be created: {error.strerror}{where}", reason="unopenable", store=path, hint=_ELSEWHERE)


def database_error(error: sqlite3.Error, path: str, *, opening: bool, patience: float) -> StoreError:
    """What SQLite refused, as one clear error with the way out."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return StoreError("the disk is full", reason="full", store=path, hint=_FULL)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreError("cannot be written", reason="read-only", store=path, hint=_READ_ONLY)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _busy(path, patience)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreError("is no SQLite database, or damaged", reason="corrupt", store=path, hint=_DAMAGED)
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreError(f"is damaged: {error}", reason="corrupt", store=path, hint=_DAMAGED)
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreError("cannot be opened", reason="unopenable", store=path, hint=_READ_ONLY)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    reason: StoreReason = "unopenable" if opening else "failed"
    return StoreError(f"{error} [{name}]", reason=reason, store=path, hint="the disk may have a fault; see the log")


def _busy(path: str, patience: float) -> StoreError:
    hint = "another process holds it; end that one, or wait"
    return StoreError(f"busy for more than {patience:g} s", reason="busy", store=path, hint=hint)


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _release(process: int, *connections: sqlite3.Connection) -> None:
    if os.getpid() == process:
        for connection in connections:
            connection.close()


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")


def _pause(turns: int) -> None:
    """Between half a millisecond and some milliseconds, never the same for two processes in step."""
    time.sleep((500 + time.perf_counter_ns() % 1000 * min(turns, 10)) / 1_000_000)


def _is_full(path: str) -> bool:
    try:
        status = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return status.f_bavail * status.f_frsize < 1 << 16
