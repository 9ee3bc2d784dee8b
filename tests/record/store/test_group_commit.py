"""Group commit: writers that wait share one transaction, and a write that is refused or fails concerns nobody else."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from metier.errors import StoreError, StreamConflict
from metier.record.store import Draft, Frame, Store, open_store
from metier.record.store.group import GroupCommit
from patience import PATIENCE

Work = Callable[[], object]


def until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.001)


class Thread(threading.Thread):
    """Does some work, and keeps what came of it."""

    def __init__(self, work: Work) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.result: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:
            self.result = error

    def end(self) -> Any:
        self.join()
        assert not self.is_alive()
        return self.result


def append(store: Store, stream: str, *ids: str, kind: str = "written", expected: int | None = None) -> list[Frame]:
    drafts = [Draft(id_, 1, kind, {"text": id_}) for id_ in ids]
    return store.append(stream, "session", stream, drafts, [id_.encode() for id_ in ids], expected_seq=expected)


@contextlib.contextmanager
def locked_out(url: str) -> Generator[None, None, None]:
    """Keep all writers of a store waiting."""
    if url.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite://"), isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("ROLLBACK")
        return
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE metier_streams IN EXCLUSIVE MODE")
        yield


def together(store: Any, url: str, works: Sequence[Work]) -> list[Any]:
    """Do all of this in one transaction: what leads is kept waiting until all others wait for their turn."""
    group = store._group
    with locked_out(url):
        leading = [
            Thread(lambda name=f"leading-{number}": append(store, "leads", name)) for number in range(group._free)
        ]
        until(lambda: group._free == 0)
        waiting = [Thread(work) for work in works]
        until(lambda: len(group._queue) == len(works))
    for thread in leading:
        assert not isinstance(thread.end(), BaseException)
    return [thread.end() for thread in waiting]


@pytest.fixture
def group(url: str) -> Generator[Store, None, None]:
    """A store that has six streams with an event each."""
    with open_store(url, patience=PATIENCE) as store:
        append(store, "leads", "first")
        for number in range(6):
            append(store, f"stream-{number}", f"first-{number}")
        yield store


def test_writers_that_wait_share_one_transaction_and_each_gets_its_own_answer(group: Store, url: str) -> None:
    results = together(
        group,
        url,
        [
            lambda: append(group, "stream-0", "a-0", "a-1", kind="shared", expected=0),
            lambda: append(group, "stream-1", "b-0", kind="shared", expected=7),
            lambda: append(group, "stream-2", "first-3", kind="shared"),
            lambda: append(group, "stream-3", "c-0", kind="shared"),
            lambda: append(group, "stream-4", "first-4", "d-0", kind="shared"),
            lambda: append(group, "stream-5", "e-0", kind="shared", expected=0),
        ],
    )
    written, stale, stolen, other, repeated, last = results
    assert [frame["seq"] for frame in written] == [1, 2]
    assert isinstance(stale, StreamConflict)
    assert stale.found == 0
    assert isinstance(stolen, StoreError)
    assert (stolen.reason, "stream-3" in str(stolen)) == ("conflict", True)
    assert [frame["seq"] for frame in (*other, *last)] == [1, 1]
    assert [(frame["id"], frame["type"]) for frame in repeated] == [("first-4", "written"), ("d-0", "shared")]
    with open_store(url) as later:
        found = {name: [frame["id"] for frame in later.read(name)] for name in ("stream-0", "stream-1", "stream-2")}
        assert found == {"stream-0": ["first-0", "a-0", "a-1"], "stream-1": ["first-1"], "stream-2": ["first-2"]}
        assert later.get_artifact(later.artifacts()[0])
        assert [frame["id"] for frame in later.page().frames if frame["type"] == "shared" and frame["seq"] == 2] == [
            "a-1"
        ]


def test_what_the_database_refuses_fails_alone(group: Store, url: str) -> None:
    if url.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite://"))) as db:
            refuse = "WHEN NEW.type = 'refused' BEGIN SELECT RAISE(ABORT, 'not this one'); END"
            db.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON events {refuse}")
    else:
        import psycopg

        with psycopg.connect(url) as connection:
            connection.execute("""
                CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF NEW.type = 'refused' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$""")
            connection.execute(
                "CREATE TRIGGER refuse BEFORE INSERT ON metier_events FOR EACH ROW EXECUTE FUNCTION refuse()"
            )
    good = [lambda name=f"stream-{number}": append(group, name, f"{name}-good") for number in (0, 1, 3, 4)]
    bad: list[Work] = [lambda: append(group, "stream-2", "bad", kind="refused")]
    *written, refused = together(group, url, [*good, *bad])
    assert isinstance(refused, StoreError)
    assert "not this one" in str(refused)
    assert [frames[0]["seq"] for frames in written] == [1] * 4
    assert append(group, "stream-2", "after")[0]["seq"] == 1


@pytest.mark.postgres
def test_nobody_waits_for_a_stream_that_somebody_else_has_locked(place: Callable[[str], str], postgres: object) -> None:
    import psycopg

    url = place("postgres")
    names = [f"stream-{number}" for number in range(5)]
    with open_store(url, patience=PATIENCE) as store:
        for name in names:
            append(store, name, f"{name}-first")
        with psycopg.connect(url) as other:
            other.execute("SELECT 1 FROM metier_streams WHERE stream_id = ANY(%s) FOR UPDATE", (names[:3],))
            stuck = [Thread(lambda name=name: append(store, name, f"{name}-second")) for name in names[:3]]
            for name in names[3:]:
                assert Thread(lambda name=name: append(store, name, f"{name}-second")).end()[0]["seq"] == 1
            assert all(thread.is_alive() for thread in stuck)
        assert [thread.end()[0]["seq"] for thread in stuck] == [1] * 3


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 64, 65, 145])
def test_events_of_any_number_are_written_in_order(
    place: Callable[[str], str], postgres: object, kind: str, count: int
) -> None:
    ids = [f"event-{number}" for number in range(count)]
    with open_store(place(kind)) as store:
        assert [frame["id"] for frame in append(store, "a", *ids)] == ids
        assert [(frame["id"], frame["seq"]) for frame in store.read("a")] == list(zip(ids, range(count), strict=True))
        assert [frame["id"] for frame in store.page().frames] == ids


def test_documents_and_events_share_a_transaction_of_a_file(place: Callable[[str], str]) -> None:
    url = place("sqlite")
    with open_store(url, patience=PATIENCE) as store:
        store.save_state("s", "snapshot", {"number": 1})
        append(store, "leads", "first")
        saved, conflict, written = together(
            store,
            url,
            [
                lambda: store.save_state("s", "snapshot", {"number": 2}, 1),
                lambda: store.save_state("t", "snapshot", {}, 5),
                lambda: append(store, "stream", "new"),
            ],
        )
        assert (saved, written[0]["seq"]) == (2, 0)
        assert isinstance(conflict, StoreError)
        assert conflict.reason == "conflict"
        assert store.load_state("t", "snapshot") is None


class _Interrupted(BaseException):
    """Stands for an interrupt from the keyboard."""


def test_writers_are_not_lost_with_the_one_that_leads_them() -> None:
    entered, free = threading.Event(), threading.Event()

    def commit(writes: Sequence[str]) -> list[str]:
        if writes == ["first"]:
            entered.set()
            assert free.wait(PATIENCE)
        elif len(writes) > 1:
            raise _Interrupted
        return [write.upper() for write in writes]

    group = GroupCommit[str, str](
        commit, lambda write: f"{write} alone", lambda: StoreError("busy", reason="busy"), leaders=1, patience=PATIENCE
    )
    first = Thread(lambda: group.write("first"))
    assert entered.wait(PATIENCE)
    others = [Thread(lambda name=name: group.write(name)) for name in ("second", "third", "fourth")]
    until(lambda: len(group._queue) == len(others))
    free.set()
    assert first.end() == "FIRST"
    results = [thread.end() for thread in others]
    assert sorted(isinstance(result, _Interrupted) for result in results) == [False, False, True]
    assert sum(str(result).endswith(" alone") for result in results) == 2
    assert group.write("last") == "LAST"


def test_who_gets_no_turn_in_time_is_told_and_leaves_the_queue() -> None:
    free = threading.Event()
    done: list[str] = []

    def commit(writes: Sequence[str]) -> list[str]:
        assert free.wait(PATIENCE)
        done.extend(writes)
        return list(writes)

    busy = StoreError("busy", reason="busy")
    group = GroupCommit[str, str](commit, lambda write: write, lambda: busy, leaders=1, patience=0.05)
    first = Thread(lambda: group.write("first"))
    until(lambda: group._free == 0)
    with pytest.raises(StoreError, match="busy"):
        group.write("late")
    free.set()
    assert first.end() == "first"
    assert group.write("next") == "next"
    assert done == ["first", "next"]
