"""A SQLite store with a faulty disk, file or permission: each gives one clear error and loses nothing."""

import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from limited import open_folder
from metier.files.digests import digest_of
from metier.record.store import Draft, Store, StoreError, open_store
from metier.record.store.sqlite import SqliteStore
from patience import PATIENCE

__all__ = ["open_folder"]


def add(store: Store, number: int, size: int = 10) -> None:
    store.append("s", "session", "st", [Draft(f"e{number}", number, "x", {"text": "y" * size})])


def refused(path: Path | str, reason: str) -> StoreError:
    with pytest.raises(StoreError) as caught:
        open_store(str(path))
    assert caught.value.reason == reason
    assert str(path) in str(caught.value)
    assert caught.value.hint, "an error says what to do"
    assert "\n" not in str(caught.value)
    return caught.value


def test_the_file_and_its_folders_are_for_the_user_only(file: Path) -> None:
    with open_store(f"sqlite://{file.parent}/deeper/{file.name}") as store:
        add(store, 0)
        path = Path(store.location)
        assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
        for ending in ("", "-wal", "-shm"):
            assert stat.S_IMODE(Path(f"{path}{ending}").stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "one file, once it is closed"


def test_commits_are_flushed_and_survive_a_power_cut(file: Path) -> None:
    with SqliteStore(str(file)) as store:
        writer = store._file._writer
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_copy_of_the_files_at_any_moment_is_a_whole_store(file: Path, tmp_path: Path) -> None:
    with open_store(str(file)) as store:
        for number in range(50):
            add(store, number, 500)
        # The files as a crash would leave them: the log is not merged, and nothing is closed.
        crashed = tmp_path / "crashed"
        shutil.copytree(file.parent, crashed)
    with open_store(str(crashed / file.name)) as again:
        assert again.last_seq("st") == 49
        add(again, 50)


def test_a_torn_log_loses_only_what_was_never_acknowledged(file: Path, tmp_path: Path) -> None:
    with open_store(str(file)) as store:
        add(store, 0)
        size = Path(f"{file}-wal").stat().st_size
        add(store, 1, 20_000)
        shutil.copytree(file.parent, tmp_path / "crashed")
    log = tmp_path / "crashed" / f"{file.name}-wal"
    whole = log.read_bytes()
    for length in (size, size + 100, (size + len(whole)) // 2, len(whole) - 1):
        folder = tmp_path / f"torn-{length}"
        shutil.copytree(tmp_path / "crashed", folder)
        (folder / f"{file.name}-shm").unlink()
        (folder / f"{file.name}-wal").write_bytes(whole[:length])
        with open_store(str(folder / file.name)) as again:
            assert again.last_seq("st") == 0
            add(again, 1)
            assert again.last_seq("st") == 1


def test_what_is_there_in_place_of_the_file_or_its_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    for path, says in (("", "is a folder"), ("file/trail.db", "cannot be created"), ("pipe", "not a regular file")):
        assert says in str(refused(tmp_path / path, "unopenable"))


def test_a_file_that_is_no_database_is_refused_and_left_alone(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"important notes\n" * 500)
    assert "not a SQLite database" in str(refused(file, "corrupt"))
    assert file.read_bytes() == b"important notes\n" * 500


def test_a_database_of_another_program_is_refused_and_left_alone(file: Path) -> None:
    file.parent.mkdir()
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")
    before = file.read_bytes()
    assert "of another application" in str(refused(file, "unopenable"))
    assert file.read_bytes() == before


@pytest.mark.parametrize("version", [1, 99])
def test_another_schema_is_refused_and_left_alone(file: Path, version: int) -> None:
    open_store(str(file)).close()
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    before = file.read_bytes()
    error = refused(file, "version")
    assert f"its tables have version {version}, and this Metier uses version" in str(error)
    assert "--store" in error.hint
    assert error.exit_code == 4
    assert file.read_bytes() == before


@pytest.mark.parametrize("prepared", [False, True])
def test_a_store_that_another_creates_between_any_two_statements_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    """The other one begins with us, or has already chosen the journal mode and goes on with the tables."""
    connect = sqlite3.connect
    due: list[tuple[int, Path]] = []
    """The number of statements until the other one comes, and its file."""
    created: list[Path] = []

    class Interrupted(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if due:
                number, file = due.pop()
                if number:
                    due.append((number - 1, file))
                else:
                    try:
                        SqliteStore(str(file), patience=0).close()
                        created.append(file)
                    except StoreError as error:
                        if error.reason != "busy":  # while we write, nobody else does
                            raise
            return super().execute(sql, *values)

    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: connect(*given, **named, factory=Interrupted))
    for number in range(100):
        file = tmp_path / f"{number}.db"
        if prepared:
            with contextlib.closing(connect(file)) as db:
                db.execute("PRAGMA journal_mode = WAL")
        due.append((number, file))
        with SqliteStore(str(file), patience=PATIENCE) as store:
            add(store, 0)
            if due:
                break
            assert store.last_seq("st") == 0
    assert due, "all statements were interrupted"
    assert len(created) > 10


def test_a_damaged_page_is_an_error_that_names_the_file(file: Path) -> None:
    with open_store(str(file)) as store:
        for number in range(200):
            add(store, number, 1000)
    content = bytearray(file.read_bytes())
    content[4096 * 3 :] = b"\xa5" * (len(content) - 4096 * 3)
    file.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged") as caught, open_store(str(file)) as store:
        store.read()
    assert caught.value.reason == "corrupt"
    assert str(file) in str(caught.value)


def test_a_changed_artifact_is_found_when_it_is_read(file: Path) -> None:
    with open_store(str(file)) as store:
        digest = store.put_artifact(b"what was loaded")
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
            db.execute("UPDATE artifacts SET content = ?", (b"what was l0aded",))
        with pytest.raises(StoreError, match="was changed") as caught:
            store.get_artifact(digest)
        assert caught.value.reason == "changed-artifact"


def test_a_file_that_another_holds_too_long_is_busy_within_the_bound(file: Path) -> None:
    with open_store(str(file), patience=0.3) as store, contextlib.closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"busy for more than 0\.3 s") as caught:
            add(store, 0)
        assert caught.value.reason == "busy"
        timer = threading.Timer(0.1, add, (store, 1))
        timer.start()
        other.rollback()
        timer.join()
        add(store, 0)
        assert store.last_seq("st") == 1


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of one megabyte, if we are allowed to mount one."""
    folder = Path(tempfile.mkdtemp(prefix="metier-small-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "metier-test", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("a small disk can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def fill_until_refused(store: Store) -> tuple[int, StoreError]:
    for number in range(10_000):
        try:
            content = f"{number} ".encode() * 2000
            store.append("s", "session", "st", [Draft(f"e{number}", 1, "x", {"d": digest_of(content)})], [content])
        except StoreError as error:
            return number, error
    raise AssertionError("the disk is never full")


@pytest.mark.system
def test_a_full_disk_is_a_clear_error_and_everything_acknowledged_stays(small_disk: Path) -> None:
    with open_store(str(small_disk / "trail.db")) as store:
        count, error = fill_until_refused(store)
        assert count > 5
        assert (error.reason, error.message) == ("full", "the disk is full")
        assert "trail.db" in str(error)
        assert store.last_seq("st") == count - 1, "reading goes on"
    with open_store(str(small_disk / "trail.db")) as store:
        assert [frame["seq"] for frame in store.read()] == list(range(count))
        for frame in store.read():
            store.get_artifact(frame["d"])
    with contextlib.closing(sqlite3.connect(small_disk / "trail.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    (small_disk / "ballast").write_bytes(b"")
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    with open_store(str(small_disk / "trail.db")) as store:
        store.append("s", "session", "st", [Draft(f"e{count}", 1, "x", {})])
        assert store.last_seq("st") == count, "with space it goes on where it was"


@pytest.mark.system
def test_a_disk_that_is_full_from_the_start(small_disk: Path) -> None:
    with contextlib.suppress(OSError), open(small_disk / "ballast", "wb", buffering=0) as ballast:
        while ballast.write(b"x" * 4096):
            pass
    refused(small_disk / "trail.db", "full")


UNPRIVILEGED = """
import os, sys
from metier.record.store import Draft, StoreError, open_store
import metier.record.store.sqlite
if os.geteuid() == 0:
    # Not earlier, because the interpreter may be in a folder that only root can read.
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    with open_store(sys.argv[1]) as store:
        store.append("s", "session", "st", [Draft("new", 1, "x", {})])
except StoreError as error:
    print(error.reason, "|", error)
"""


def as_nobody(path: Path) -> str:
    """The error that a user without permissions gets."""
    command = [sys.executable, "-c", UNPRIVILEGED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.system
def test_a_folder_without_the_right_to_write(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    error = as_nobody(open_folder / "trail.db")
    assert error.startswith("read-only |")
    assert str(open_folder / "trail.db") in error


@pytest.mark.system
def test_a_file_without_the_right_to_write_stays_as_it_is(open_folder: Path) -> None:
    file = open_folder / "trail.db"
    with open_store(str(file)) as store:
        add(store, 0)
    file.chmod(0o444)
    before = file.read_bytes()
    error = as_nobody(file)
    assert error.startswith("read-only |")
    assert "the file cannot be written" in error
    assert file.read_bytes() == before
    file.chmod(0o644)
    with open_store(str(file)) as store:
        assert store.last_seq("st") == 0


def test_pruning_gives_the_space_back(file: Path) -> None:
    with open_store(str(file)) as store:
        for number in range(50):
            content = f"{number} ".encode() * 5000
            store.append("s", "session", "st", [Draft(f"e{number}", 1, "x", {"d": digest_of(content)})], [content])
        before = store.stats().bytes
        assert store.prune(10, grace_ms=0).artifacts == 50
        assert store.stats().bytes < before / 10
