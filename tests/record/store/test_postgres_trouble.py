"""A PostgreSQL store whose server goes away, comes back or is missing, and many hosts that share a store."""

import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg
import pytest

from metier.errors import ConfigError, MissingExtra
from metier.record.store import Draft, Frame, Store, StoreError, open_store
from metier.record.store.postgres import LOCK_STREAMS, PostgresStore
from metier.record.store.postgres_connection import Connection
from metier.record.store.sql import insert_artifacts
from metier.record.store.writes import StreamHead, row_of
from record.store.conftest import Place, schema_of
from record.store.server import PostgresServer
from watching import wait_for

pytestmark = pytest.mark.postgres

Result = TypeVar("Result")


def add(store: Store, number: int) -> list[Frame]:
    return store.append("s", "session", "st", [Draft(f"e{number}", number, "x", {"n": number})])


@pytest.fixture
def own(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, running again after a test that stops it."""
    yield postgres
    postgres.stop()
    postgres.start()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_goes_and_comes_back_is_reported_and_nothing_is_written_twice(
    own: PostgresServer, how: signal.Signals
) -> None:
    reports: list[str] = []
    with open_store(schema_of(own), on_trouble=reports.append, outage=30) as store:
        failed: list[Exception] = []
        written: list[int] = []
        enough = threading.Event()

        def write(worker: int) -> None:
            try:
                for number in itertools.count(worker * 1_000_000):
                    assert add(store, number)[0]["n"] == number
                    written.append(number)
                    if enough.is_set():
                        return
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=write, args=(worker,)) for worker in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            so_far = len(written)
            wait_for(lambda so_far=so_far: bool(failed) or len(written) >= so_far + 30)
            own.stop(how)
            time.sleep(0.3)
            own.start()
        enough.set()
        for thread in threads:
            thread.join()
        assert failed == []
        frames = store.read()
        assert [frame["seq"] for frame in frames] == list(range(len(written)))
        assert sorted(frame["n"] for frame in frames) == sorted(written)
        assert len({frame["id"] for frame in frames}) == len(written)
    assert any("connection lost" in line for line in reports)
    assert any("reconnected after" in line for line in reports)


def test_a_server_that_stays_away_is_given_up_within_the_bound(own: PostgresServer) -> None:
    reports: list[str] = []
    with open_store(schema_of(own), on_trouble=reports.append, patience=1.0) as store:
        add(store, 0)
        own.stop()
        begun = time.monotonic()
        with pytest.raises(StoreError) as caught:
            add(store, 1)
        assert time.monotonic() - begun < 60
        assert (caught.value.reason, caught.value.exit_code) == ("lost", 4)
        assert "no acknowledged event is lost" in caught.value.hint
        assert "gave up" in reports[-1]
        reports.clear()
        for _ in range(2):
            with pytest.raises(StoreError, match="refused"):
                add(store, 1)
        assert reports == [f"{store.location}: gave up after 1 attempts"] * 2, "nobody waits for it any more"
        own.start()
        assert add(store, 1)[0]["seq"] == 1, "the store itself goes on when the server is back"


def test_calls_that_wait_together_for_a_server_that_stays_away_are_refused_together(own: PostgresServer) -> None:
    reports: list[str] = []
    with open_store(schema_of(own), on_trouble=reports.append, outage=1.0) as store:
        add(store, 0)
        own.stop()
        failed: list[StoreError] = []

        def read() -> None:
            with pytest.raises(StoreError) as caught:
                store.last_seq("st")
            failed.append(caught.value)

        threads = [threading.Thread(target=read) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [error.reason for error in failed] == ["lost"] * 20
        assert sum("connection lost" in line for line in reports) == 1
        own.start()
        assert store.last_seq("st") == 0


def test_a_follower_survives_a_lost_server(own: PostgresServer) -> None:
    with open_store(schema_of(own)) as store:
        seen: list[int] = []
        add(store, 0)
        cursor = store.cursor()
        assert not store.wait(cursor, 0.1)
        own.stop()
        own.start()
        timer = threading.Timer(0.2, add, (store, 1))
        timer.start()
        for frame in store.follow(cursor, stop=lambda: bool(seen)):
            seen.append(frame["seq"])
            break
        timer.join()
        assert seen == [1]


@pytest.fixture
def forgetful(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store whose connection breaks once, after the commit: the write is done, and its answer is lost."""
    with PostgresStore(place("postgres")) as store:
        run, lost = store._server.run, list[bool]()

        def breaking(work: Callable[[Connection, bool], Result]) -> Result:
            def once(connection: Connection, repeated: bool) -> Result:
                result = work(connection, repeated)
                if not lost:
                    lost.append(True)
                    raise psycopg.OperationalError("the connection broke after the commit")
                return result

            return run(once)

        monkeypatch.setattr(store._server, "run", breaking)
        yield store
        assert lost


def test_an_append_whose_answer_was_lost_is_not_written_again(forgetful: Store) -> None:
    assert add(forgetful, 0)[0]["seq"] == 0
    assert [frame["seq"] for frame in forgetful.read()] == [0]


def test_an_append_at_the_expected_end_whose_answer_was_lost_is_no_conflict(forgetful: Store) -> None:
    drafts = [Draft("e0", 1, "x", {}), Draft("e1", 2, "x", {})]
    assert [frame["seq"] for frame in forgetful.append("s", "session", "st", drafts, expected_seq=-1)] == [0, 1]
    assert len(forgetful.read()) == 2


def test_a_saved_state_whose_answer_was_lost_is_no_conflict(forgetful: Store) -> None:
    assert forgetful.save_state("s", "k", {"a": 1}, expected_version=0) == 1


def test_what_cannot_be_opened_is_a_clear_error_without_the_password(postgres: PostgresServer) -> None:
    with pytest.raises(StoreError) as caught:
        open_store("postgresql://user:tops3cret@127.0.0.1:1/trail")
    assert (caught.value.reason, caught.value.exit_code) == ("unopenable", 4)
    assert "postgresql://user@127.0.0.1:1/trail" in str(caught.value)
    with pytest.raises(ConfigError) as wrong:
        open_store("postgresql://user:tops3cret@host:port/trail?nonsense=1")
    assert "tops3cret" not in f"{caught.value} {wrong.value}"
    with pytest.raises(StoreError, match='database "nowhere" does not exist'):
        open_store(postgres.url.replace("/postgres", "/nowhere"))


def test_a_missing_extra_says_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("metier.record.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"pip install 'metier\[postgres\]'"):
        open_store("postgresql://localhost/trail")


def test_the_other_stores_do_not_import_the_driver() -> None:
    code = (
        "import sys; from metier.record.store import open_store; open_store('memory:'); "
        "print([name for name in sys.modules if 'psycopg' in name])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("version", [1, 99])
def test_another_schema_is_refused_and_left_alone(place: Place, version: int) -> None:
    url = place("postgres")
    open_store(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE metier_schema SET version = %s", (version,))
    with pytest.raises(StoreError, match=f"its tables have version {version}, and this Metier uses version") as caught:
        open_store(url)
    assert (caught.value.reason, caught.value.exit_code) == ("version", 4)
    assert "\n" not in str(caught.value)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT version FROM metier_schema").fetchall() == [(version,)]


def test_a_user_who_may_not_create_tables_is_told(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
    with pytest.raises(StoreError, match="can create and write tables") as caught:
        open_store(postgres.url.replace("metier@", "reader@"))
    assert caught.value.reason == "unopenable"


def test_plans_follow_the_size_of_the_tables(place: Place) -> None:
    """A plan cached while the store was empty made every append read all events."""
    with PostgresStore(place("postgres")) as store:
        shown = store._server.run(lambda connection, _: connection.execute("SHOW plan_cache_mode").fetchone())
        assert shown == ("force_custom_plan",)


def test_a_server_that_does_not_flush_by_default_is_made_to(place: Place) -> None:
    url = f"{place('postgres')}%20-csynchronous_commit%3Doff"
    with psycopg.connect(url) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
    with PostgresStore(url, patience=7) as store:
        query = "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')"
        shown = store._server.run(lambda connection, _: connection.execute(query).fetchone())
        assert shown == ("on", "7s")


@pytest.mark.parametrize("given", [100, 2**31 - 2, 2**31, 2**40])
def test_a_page_never_jumps_over_a_transaction_that_is_still_open(place: Place, given: int) -> None:
    """The slow writer took its position first and commits last. A follower must wait for it, not pass it."""
    url = place("postgres")
    with PostgresStore(url) as store, psycopg.connect(url) as slow:
        slow.execute("SELECT setval('metier_positions', %s)", (given,))
        slow.commit()
        add(store, 0)
        cursor = store.page(0).cursor
        frame = {**store.read()[0], "id": "late", "stream_id": "slow"}
        store._lock_streams(slow, {"slow": StreamHead("slow", "s", "session")}, [])
        store._insert(slow, [row_of(frame)])
        add(store, 1)
        assert len(store.read()) == 2, "reading shows what is committed"
        page = store.page(cursor)
        assert (page.frames, page.cursor) == ((), cursor), "a follower waits for the slow one"
        assert not store.wait(cursor, 0.1)
        slow.commit()
        assert store.wait(cursor, 120)
        assert [frame["id"] for frame in store.page(cursor).frames] == ["late", "e1"]


def test_a_stream_that_another_holds_too_long_is_busy_within_the_bound(place: Place) -> None:
    url = place("postgres")
    with open_store(url, patience=0.5) as store, psycopg.connect(url) as other:
        add(store, 0)
        other.execute(LOCK_STREAMS, (["st"],))
        with pytest.raises(StoreError) as caught:
            add(store, 1)
        assert caught.value.reason == "busy"
        other.rollback()
        assert add(store, 1)[0]["seq"] == 1


def test_a_prune_does_not_take_an_artifact_from_under_a_writer(place: Place) -> None:
    """The slow writer found the artifact in the store, and commits the event that names it later."""
    url, content = place("postgres"), b"seen by the writer"
    with PostgresStore(url) as store, psycopg.connect(url) as slow:
        digest = store.put_artifact(content)
        store._lock_streams(slow, {"slow": StreamHead("slow", "s", "session")}, [])
        assert insert_artifacts(lambda query, values: slow.execute(query.encode(), values), {digest: content}) == 0
        prune = threading.Thread(target=store.prune, args=(0,), kwargs={"grace_ms": 0})
        prune.start()
        prune.join(0.3)
        frame = {"id": "e", "session_id": "s", "stream_kind": "session", "stream_id": "slow", "seq": 0}
        store._insert(slow, [row_of({**frame, "timestamp_ms": 5, "type": "x", "digest": digest})])
        slow.commit()
        prune.join()
        assert not prune.is_alive()
        assert store.get_artifact(store.read()[0]["digest"]) == content
