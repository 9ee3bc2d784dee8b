"""Stores that go away and come back, for `pytest_plugins`: a file on a full disk, and a database server that stops."""

import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

import parts
from record.store.server import PostgresServer, programs
from store_trouble import PASSWORD, TroubledStore, fill


@pytest.fixture
def small(tmp_path: Path) -> Generator[Path]:
    """A file system with 4 MB."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)  # this process may still have the store open


@pytest.fixture(params=["sqlite", "postgres"])
def troubled(request: pytest.FixtureRequest) -> Generator[TroubledStore]:
    if request.param == "sqlite":
        small: Path = request.getfixturevalue("small")
        yield TroubledStore(
            url=f"sqlite:///{small}/events.db",
            reason="full",
            told="the disk is full",
            leave=lambda: fill(small),
            come_back=(small / "filler").unlink,
        )
        return
    if programs() is None:
        parts.missing("postgres")
    with PostgresServer(durable=True) as server:
        yield TroubledStore(
            url=server.url.replace("metier@", f"metier:{PASSWORD}@"),
            reason="lost",
            told="start the server",
            leave=server.stop,
            come_back=server.start,
        )
