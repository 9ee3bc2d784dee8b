"""Empty stores for the tests: each has its own file, or its own schema in a server that the tests start."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import parts
from metier.record.store import Store, open_store
from record.store.server import PostgresServer, programs
from record.store.stranger import StrangerStore

SHARED = ("sqlite", "postgres")
"""The kinds that several processes can open."""

KINDS = ("memory", *SHARED, "stranger")
"""All kinds of stores: the built-in ones, and one that is written against the interface alone."""

Place = Callable[[str], str]
"""Returns the URL of a new, empty store of a kind."""

NewStore = Callable[[str], Store]
"""Opens a new, empty store of a kind."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server. Flushes are off: no test cuts the power, and a killed writer or server does not need them."""
    if not programs():
        parts.missing("postgres", "initdb is neither in PATH nor in /usr/lib/postgresql")
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
    """Create a schema in a server, and return its URL."""
    import psycopg

    name = f"trail_{uuid.uuid4().hex}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server.url}?options=-csearch_path%3D{name}"


@pytest.fixture(scope="session")
def new_store(place: Place) -> NewStore:
    def opened(kind: str) -> Store:
        return StrangerStore() if kind == "stranger" else open_store(place(kind), patience=20)

    return opened


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, new_store: NewStore) -> Iterator[Store]:
    """A new store of each kind."""
    with new_store(request.param) as opened:
        yield opened


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, place: Place) -> str:
    """The URL of a new store of each kind that several processes can open."""
    return place(request.param)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "trail.db"
