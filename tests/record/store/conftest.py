"""Places to open stores at: a file of its own, or a schema of its own in a server that the tests start."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metier.record.store import Store, open_store
from record.store.server import PostgresServer, programs

KINDS = ("memory", "sqlite", "postgres")
SHARED = ("sqlite", "postgres")
"""The kinds that several processes can open."""

Place = Callable[[str], str]
"""From a kind of store to the URL of a new, empty one."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server. Flushes are off: no test cuts the power, and a killed writer or server loses nothing by it."""
    if not programs():
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL must be installed in CI")
        pytest.skip("PostgreSQL is not installed (initdb is neither in PATH nor in /usr/lib/postgresql)")
    with PostgresServer(durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    def url(kind: str) -> str:
        if kind == "memory":
            return "memory:"
        if kind == "sqlite":
            return f"sqlite://{tmp_path_factory.mktemp('store')}/trail.db"
        return schema_of(request.getfixturevalue("postgres"))

    return url


def schema_of(server: PostgresServer) -> str:
    """The URL of a new schema of a server."""
    import psycopg

    name = f"trail_{uuid.uuid4().hex}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server.url}?options=-csearch_path%3D{name}"


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, place: Place) -> Iterator[Store]:
    """A new store of each kind."""
    with open_store(place(request.param), patience=20) as opened:
        yield opened


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, place: Place) -> str:
    """The place of a new store that several processes can open, of each kind."""
    return place(request.param)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "trail.db"
