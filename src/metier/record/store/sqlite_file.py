"""The file of a SQLite store: creating, opening and locking it, durable commits, and clear errors.

The file uses WAL with synchronous=FULL: a commit is in the log, and the log is on disk, before a write returns, so
neither a killed process nor a power cut loses it. One connection writes and another reads, each under its own lock.

Invariant: an existing file is never opened and closed here directly. SQLite's locks belong to the process, and closing
any descriptor of the file would drop the locks of a store that has it open in another thread.
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
from metier.record.store.checks import invalid_text
from metier.record.store.schema import SCHEMA, check_schema, statements

_APPLICATION: Final = 0x4D455452
"""The application id in the file's header ("METR")."""

_LOG_BYTES: Final = 64_000_000
"""The size to which the log is truncated after a checkpoint. It is larger while a reader uses an old state."""

_LOG_PAGES: Final = 4000
"""How long the log gets before it is merged into the file. Most appends touch the same few pages as the last one, so a
longer log saves most of the merging. After a crash, 16 MB of log are read quickly."""

_ELSEWHERE: Final = "choose another path with --store"
_FULL: Final = "free some space or run `metier session store prune`, then try again; all stored data is intact"
_READ_ONLY: Final = f"allow this user to write there, or {_ELSEWHERE}"
_DAMAGED: Final = "move the file away and restore an export with `metier session store import`"


class SqliteFile:
    """Two connections to one file: `writing` runs a durable transaction, `reading` sees one consistent state."""

    def __init__(self, path: str, patience: float, check_open: Callable[[], None]) -> None:
        """`check_open` is called under the lock before each use, and raises if the store can no longer be used."""
        self._path, self._patience, self._check_open = path, patience, check_open
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._closed = False
        make_file(path)
        with self._translated(opening=True):
            self._writer = self._connect()
            try:
                self._retried(self._prepare)
                self._reader = self._connect()
            except BaseException:
                self._writer.close()
                raise
            self._writer.execute("PRAGMA busy_timeout = 0")
            self._identity = self._current_identity()
        # A store that was not closed is closed when it is garbage collected, but never by a forked process.
        weakref.finalize(self, _release, os.getpid(), self._reader, self._writer)

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Hold the file's write lock for one transaction, which is on disk when the block ends."""
        deadline = time.monotonic() + self._patience
        with self._translated():
            if not self._write_lock.acquire(timeout=self._patience):
                raise busy_error(self._path, self._patience)
            try:
                self._check_open()
                self._begin(deadline)
                try:
                    self._check_same()
                    yield self._writer
                    self._writer.execute("COMMIT")
                except BaseException:
                    _roll_back(self._writer)
                    raise
                self._check_same()
            finally:
                self._write_lock.release()

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Read one state of the file, which does not change while others write."""
        with self._translated(), self._read_lock:
            self._check_open()
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                _roll_back(self._reader)

    def version(self) -> int:
        """Return a number that changes with every commit of any other connection. The reader itself never writes."""
        with self._translated(), self._read_lock:
            return 0 if self._closed else int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    def shrink(self) -> None:
        """Return the space of removed content to the disk."""
        with self._translated(), self._write_lock:
            self._check_open()
            # The statement frees one page a step, and only `executescript` runs it to its end.
            self._writer.executescript("PRAGMA incremental_vacuum")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def size(self) -> int:
        return sum(os.stat(file).st_size for file in (self._path, f"{self._path}-wal") if os.path.isfile(file))

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            self._closed = True
            self._reader.close()
            self._writer.close()

    def _current_identity(self) -> tuple[int, int] | None:
        """The device and inode of the file that the path names now; `None` if there is none."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _check_same(self) -> None:
        """Refuse to write into a file that was deleted or replaced: nobody would find it, or its log would harm."""
        now = self._current_identity()
        if now != self._identity:
            what = "the file was deleted" if now is None else "another file is in its place"
            hint = "what was written since is lost; restart this process to use the file that is there"
            raise StoreError(f"{what} while it was in use", reason="lost", store=self._path, hint=hint)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=self._patience, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA fullfsync = ON")  # on macOS, fsync alone does not reach the disk
            db.execute("PRAGMA checkpoint_fullfsync = ON")
            db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}").fetchall()
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _prepare(self) -> None:
        """Check that the file is a Metier store before changing it, then make the tables if it is empty."""
        db = self._writer
        db.execute("BEGIN")
        try:
            empty = self._is_empty(db)
        finally:
            _roll_back(db)
        if empty:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}").fetchall()
        if empty:
            db.execute("BEGIN IMMEDIATE")
            try:
                if self._is_empty(db):  # no other process was first
                    for statement in statements("sqlite"):
                        db.execute(statement)
                    db.execute(f"PRAGMA application_id = {_APPLICATION}")
                    db.execute(f"PRAGMA user_version = {SCHEMA}")
                db.execute("COMMIT")
            except BaseException:
                _roll_back(db)
                raise

    def _is_empty(self, db: sqlite3.Connection) -> bool:
        """Return whether the file has no tables yet, or refuse a file that is not ours.

        The caller has begun a transaction, so that all statements see one state of the file: another process may be
        creating the store at this moment.
        """
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        application = int(db.execute("PRAGMA application_id").fetchone()[0])
        if application != _APPLICATION and (
            application or version or db.execute("SELECT 1 FROM sqlite_master").fetchone()
        ):
            message = "is the SQLite database of another application"
            raise StoreError(message, reason="unopenable", store=self._path, hint=_ELSEWHERE)
        return check_schema(version, self._path) == 0

    def _retried(self, attempt: Callable[[], None]) -> None:
        """Retry while the file is busy: a change of the journal mode can fail at once, whatever the timeout is."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                _pause(1)

    def _begin(self, deadline: float) -> None:
        # SQLite itself waits up to 100 ms although the lock is free; short uneven pauses leave it unused less often.
        attempts = 0
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                attempts += 1
                _pause(attempts)

    @contextmanager
    def _translated(self, *, opening: bool = False) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise database_error(error, self._path, opening=opening, patience=self._patience) from error
        except UnicodeEncodeError as error:
            raise invalid_text(self._path) from error


def make_file(path: str) -> None:
    """Create the file (mode 0600) and its folder (0700) if missing, and refuse a path that cannot be a store."""
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
        raise StoreError("is a folder, not a file", reason="unopenable", store=path, hint="name a file inside it")
    if not stat.S_ISREG(mode):
        raise StoreError("is not a regular file", reason="unopenable", store=path, hint=_ELSEWHERE)
    for place, what in ((path, "the file"), (folder, "its folder")):
        # SQLite would fail later, at the first write, or with a message that does not name the cause.
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
    """Flush a folder: a new file survives a power cut only if its folder is on disk as well."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_error(error: OSError, path: str) -> StoreError:
    """Return the `StoreError` for an error of the operating system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError("the disk is full", reason="full", store=path, hint=_FULL)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        message = "the file system is read-only" if error.errno == errno.EROFS else "no permission to create it"
        return StoreError(message, reason="read-only", store=path, hint=_READ_ONLY)
    where = f" ({error.filename})" if error.filename and error.filename != path else ""
    return StoreError(f"cannot be created: {error.strerror}{where}", reason="unopenable", store=path, hint=_ELSEWHERE)


def database_error(error: sqlite3.Error, path: str, *, opening: bool, patience: float) -> StoreError:
    """Return the `StoreError` for an error of SQLite, with a hint at what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return StoreError("the disk is full", reason="full", store=path, hint=_FULL)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreError("cannot be written", reason="read-only", store=path, hint=_READ_ONLY)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return busy_error(path, patience)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreError("is not a SQLite database, or is damaged", reason="corrupt", store=path, hint=_DAMAGED)
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreError(f"is damaged: {error}", reason="corrupt", store=path, hint=_DAMAGED)
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreError("cannot be opened", reason="unopenable", store=path, hint=_READ_ONLY)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    reason: StoreReason = "unopenable" if opening else "failed"
    return StoreError(f"{error} [{name}]", reason=reason, store=path, hint="the disk may be faulty; see the system log")


def busy_error(path: str, patience: float) -> StoreError:
    hint = "another process holds the lock; wait for it, or end it"
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


def _pause(attempts: int) -> None:
    """Sleep for half a millisecond to about ten, unevenly, so that two processes do not stay in step."""
    time.sleep((500 + time.perf_counter_ns() % 1000 * min(attempts, 10)) / 1_000_000)


def _is_full(path: str) -> bool:
    try:
        status = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return status.f_bavail * status.f_frsize < 1 << 16
