"""A store stays within its bound: whole sessions, the oldest first, never the open or recent ones, once a day."""

import logging
import multiprocessing
import os
import random
from multiprocessing.synchronize import Barrier

import pytest

import forking
from metier import limits
from metier.record import retention
from metier.record.retention import DAY_MS, Bound, Keeper, content_bytes, enforce
from metier.record.store import Draft, Store, open_store
from metier.record.store.memory import MemoryStore
from record.store.conftest import SHARED, Place

NOW = 1_900_000_000_000


def fill(store: Store, session: str, days_ago: float, *, size: int = 100, events: int = 3) -> None:
    """A session whose last event is so many days old, with an artifact of its own and a document."""
    at = NOW - int(days_ago * DAY_MS)
    content = random.Random(session).randbytes(size)
    digest = store.put_artifact(content)
    drafts = [Draft(f"{session}-{number}", at, "x", {"artifact": digest}) for number in range(events)]
    store.append(session, "session", session, drafts)
    store.save_state(session, "key", {"a": 1})


def left(store: Store) -> list[str]:
    return [summary.id for summary in store.sessions() if summary.id != "retention"]


def at_now() -> int:
    return NOW


def test_what_is_older_than_the_bound_goes_as_a_whole_and_is_recorded(store: Store) -> None:
    for session, days in {"old": 100, "open": 95, "young": 89, "installs": 400, "new": 0}.items():
        fill(store, session, days)
    store.append("old", "chat", "old/chat", [Draft("chat-1", NOW - 100 * DAY_MS, "x", {})])
    done = enforce(store, Bound(), keep=["open"], clock=at_now)
    assert done is not None
    assert done.sessions == 1
    assert sorted(left(store)) == ["installs", "new", "open", "young"]
    assert store.read("old") == []
    assert store.read(stream_id="old/chat") == []
    assert store.load_state("old", "key") is None
    assert store.load_state("young", "key") is not None
    (event,) = store.read("retention")
    assert (event["type"], event["reason"], event["sessions"], event["count"]) == ("sessions_pruned", "age", ["old"], 1)
    assert event["events"] == 4


def test_beyond_the_size_the_oldest_go_until_the_rest_fits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metier.record.store.memory.now_ms", lambda: NOW)
    for number in range(12):
        fill(store, f"s{number:02}", 40 - number, size=limits.MIB // 2)
    fill(store, "today", 0.5, size=limits.MIB)
    _forget_grace(store, monkeypatch)
    enforce(store, Bound(days=0, megabytes=3), clock=at_now)
    rest = left(store)
    assert content_bytes(store) <= 3 * limits.MIB
    assert rest == sorted(rest)
    assert rest[-1] == "today"
    assert 2 <= len(rest) - 1 <= 4, rest
    assert {event["reason"] for event in store.read("retention")} == {"size"}


def _forget_grace(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let artifacts go at once, although they were stored just now."""
    real = store.prune
    monkeypatch.setattr(store, "prune", lambda older, keep=(): real(older, keep, grace_ms=-1), raising=False)


def test_a_recent_session_stays_however_large_the_store_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, "old", 3, size=limits.MIB)
    fill(store, "large", 0.9, size=5 * limits.MIB)
    _forget_grace(store, monkeypatch)
    enforce(store, Bound(days=1, megabytes=1), clock=at_now)
    assert left(store) == ["large"]


def test_without_a_bound_nothing_goes(store: Store) -> None:
    fill(store, "old", 4_000, size=limits.MIB)
    assert enforce(store, Bound(days=0, megabytes=0), clock=at_now) is None
    assert left(store) == ["old"]


def test_it_is_done_once_a_day(store: Store) -> None:
    fill(store, "a", 100)
    assert enforce(store, Bound(), clock=at_now) is not None
    fill(store, "b", 100)
    assert enforce(store, Bound(), clock=at_now) is None
    assert enforce(store, Bound(), clock=lambda: NOW + DAY_MS - 1) is None
    assert left(store) == ["b"]
    assert enforce(store, Bound(), clock=lambda: NOW + DAY_MS) is not None
    assert left(store) == []


def test_a_process_that_was_killed_meanwhile_does_not_stop_it_for_ever(store: Store) -> None:
    fill(store, "a", 100)
    store.save_state("retention", "retention", {"begun_ms": NOW - 1000, "done_ms": 0})
    assert enforce(store, Bound(), clock=at_now) is None
    assert enforce(store, Bound(), clock=lambda: NOW + 3_600_000) is not None
    assert left(store) == []


def test_what_a_deadline_cuts_off_is_done_the_next_time(store: Store) -> None:
    fill(store, "a", 100)
    done = enforce(store, Bound(), clock=at_now, deadline=0.0)
    assert done is not None
    assert done.sessions == 0
    assert enforce(store, Bound(), clock=at_now) is not None
    assert left(store) == []


def _enforce(url: str, start: Barrier, answers: "multiprocessing.Queue[int]") -> None:
    with open_store(url) as store:
        start.wait()
        done = enforce(store, Bound(), clock=at_now)
        answers.put(-1 if done is None else done.sessions)


@pytest.mark.parametrize("kind", SHARED)
def test_of_several_processes_one_does_it(place: Place, kind: str) -> None:
    url = place(kind)
    with open_store(url) as store:
        for number in range(30):
            fill(store, f"s{number}", 100)
    spawn = multiprocessing.get_context("spawn")
    start, answers = spawn.Barrier(4), spawn.Queue()
    workers = [spawn.Process(target=_enforce, args=(url, start, answers)) for _ in range(4)]
    for worker in workers:
        worker.start()
    found = sorted(answers.get() for _ in workers)
    for worker in workers:
        worker.join()
    assert found == [-1, -1, -1, 30]
    with open_store(url) as store:
        assert [event["count"] for event in store.read("retention")] == [30]


def test_a_server_does_it_in_the_background(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(retention, "_START_SECONDS", 0.0)
    with MemoryStore() as store:
        fill(store, "old", (NOW - 1_000_000_000_000) / DAY_MS)
        fill(store, "held", (NOW - 1_000_000_000_000) / DAY_MS)
        with caplog.at_level(logging.INFO, "metier"):
            keeper = Keeper(store, Bound(), lambda: ("held",))
            following = store.follow(cursor=0, session_id="retention")
            assert next(following)["sessions"] == ["old"]
            keeper.stop()
        assert left(store) == ["held"]


@pytest.mark.system
def test_the_command_line_keeps_the_bound_and_shows_it(tmp_path: "os.PathLike[str]") -> None:
    url = f"sqlite://{tmp_path}/trail.db"
    with open_store(url) as store:
        fill(store, "old", (NOW - 1_000_000_000_000) / DAY_MS)

    def metier(*arguments: str, **environment: str) -> str:
        command = [*forking.METIER, *arguments]
        given = {**os.environ, "HOME": str(tmp_path), **environment}
        return forking.run(
            [*command, "--store", url], cwd=tmp_path, env=given, capture_output=True, text=True, check=False
        ).stdout

    assert "90 days and 2,048 MiB" in metier("session", "store", "stats")
    metier("session", "invoke", "hello", METIER_STORE_DAYS="0", METIER_STORE_MEGABYTES="0")
    assert "old" in metier("session", "store", "stats")
    metier("session", "invoke", "hello")
    assert "sessions_pruned" in metier("events", "--session", "retention")
    with open_store(url) as store:
        assert "old" not in left(store)
