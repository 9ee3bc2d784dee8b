"""Empty stores for the tests: each has its own file, or its own schema in a server that the tests start."""

import importlib
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import parts
from metier.record.store import Store, open_store
from packages_of_others import install
from patience import PATIENCE
from record.store.server import PostgresServer, programs

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
        if kind == "stranger":
            return "stranger://here"
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
def new_store(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewStore]:
    """The stranger's store is in a package that is installed for the tests."""
    site, source = tmp_path_factory.mktemp("site"), Path(__file__).with_name("stranger.py").read_text()
    install(site, "stranger_store", source, "metier.stores", "stranger = stranger_store:opened")
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    yield lambda kind: open_store(place(kind), patience=PATIENCE)
    sys.path.remove(str(site))


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
