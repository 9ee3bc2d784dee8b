"""Many processes that use one store, and processes that are killed while they write."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from metier.record.store import Store, StoreError, open_store
from patience import PATIENCE

pytestmark = pytest.mark.system

WRITER = [sys.executable, "-m", "record.store.writer"]
TESTS = Path(__file__).parents[2]
KILLS = 40
"""`make walk` kills more."""


def run(*arguments: object) -> list[str]:
    command = [*WRITER, *map(str, arguments)]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line]


def check_whole(store: Store) -> dict[tuple[str, int], str]:
    """Check that no stream has a gap and every event has its artifact. Return the event ids by stream and seq."""
    places: dict[tuple[str, int], str] = {}
    streams: dict[str, list[int]] = defaultdict(list)
    for frame in store.read():
        places[frame["stream_id"], frame["seq"]] = frame["id"]
        streams[frame["stream_id"]].append(frame["seq"])
        if "digest" in frame:
            assert store.get_artifact(frame["digest"]) == frame["id"].encode() * 400
    for stream, seqs in streams.items():
        assert seqs == list(range(len(seqs))), stream
        assert store.last_seq(stream) == len(seqs) - 1
    assert len(set(places.values())) == len(places), "an event was written twice"
    return places


def test_writers_killed_at_random_moments_lose_nothing_they_acknowledged(url: str) -> None:
    reports = [json.loads(line) for line in run("kill", url, KILLS, 7)]
    assert len(reports) == KILLS
    assert sum(report["opened"] for report in reports) >= 0.7 * KILLS, "most of them were killed while they wrote"
    with open_store(url) as store:
        places = check_whole(store)
        acknowledged = [entry for report in reports for entry in report["acknowledged"]]
        assert len(acknowledged) > KILLS
        for stream, seq, id_ in acknowledged:
            assert places[stream, seq] == id_
        # Events without an acknowledgement were being written: at most one complete append of each writer.
        surplus = set(places.values()) - {id_ for _, _, id_ in acknowledged}
        appends = {id_.rsplit("-", 1)[0] for id_ in surplus}
        assert len({name.rsplit("-", 1)[0] for name in appends}) == len(appends)
        for name in appends:
            count = 1 + int(name.rsplit("-", 1)[1]) % 3
            assert {f"{name}-{part}" for part in range(count)} <= surplus
        # No artifact is stored without its event, because one transaction writes both.
        assert len(store.artifacts()) == len(places)


def test_writers_killed_while_they_create_a_file_leave_one_that_opens(tmp_path: Path) -> None:
    reports = [json.loads(line) for line in run("create", tmp_path / "new" / "trail", KILLS // 2, 3)]
    assert {bool(lines) for lines in reports} == {True, False}, "some died before the store was open, some after"
    for number, lines in enumerate(reports):
        with open_store(str(tmp_path / "new" / f"trail-{number}")) as store:
            places = check_whole(store)
            for line in lines:
                for stream, seq, id_ in json.loads(line[4:]) if line.startswith("ack ") else []:
                    assert places[stream, seq] == id_


@pytest.mark.parametrize("streams", [1, 8])
def test_8_processes_append_at_once_and_everything_is_there_without_a_gap(url: str, streams: int) -> None:
    assert len(run("crowd", url, 8, 100, 5, streams)) == 8
    with open_store(url) as store:
        places = check_whole(store)
        assert len(places) == 8 * 100
        assert {stream for stream, _ in places} == {f"stream-{number}" for number in range(streams)}


def test_of_processes_that_expect_the_same_end_of_a_stream_one_appends(url: str) -> None:
    reports = [json.loads(line) for line in run("race", url, 6, 40)]
    won = sorted(seq for report in reports for seq in report)
    assert len(reports) == 6
    assert won == list(range(40)), "each seq was written by exactly one of them"
    with open_store(url) as store:
        assert len(check_whole(store)) == 40


def test_a_follower_in_another_process_misses_nothing_of_8_writers(url: str) -> None:
    with open_store(url) as store:
        writers = subprocess.Popen([*WRITER, "crowd", url, "8", "100", "1", "8"], cwd=TESTS)
        seen: list[tuple[str, int]] = []
        deadline = time.monotonic() + PATIENCE

        def stop() -> bool:
            return len(seen) >= 800 or time.monotonic() > deadline

        for frame in store.follow(0, stop=stop):
            seen.append((frame["stream_id"], frame["seq"]))
            if stop():
                break
        assert writers.wait() == 0
        assert len(seen) == len(set(seen)) == 800
        for number in range(8):
            assert [seq for stream, seq in seen if stream == f"stream-{number}"] == list(range(100))
        assert store.page(0).cursor <= store.cursor()


def test_a_notice_reaches_another_process(url: str) -> None:
    code = (
        "import sys\nfrom metier.record.store import open_store\nopen_store(sys.argv[1]).notify('catalog', 'changed')"
    )
    with open_store(url) as store:
        ear = store.listen("catalog")
        child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, url])
        assert ear.get(PATIENCE) == ["changed"]
        child.wait()


def test_8_processes_that_start_together_make_the_tables_once(url: str) -> None:
    run("open", url, 8)
    with open_store(url) as store:
        assert len(check_whole(store)) == 8


def test_a_store_from_before_a_fork_is_refused_in_the_child(url: str) -> None:
    with open_store(url) as store:
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                store.read()
            except StoreError as error:
                os.write(theirs, str(error).encode())
            os._exit(0)
        os.close(theirs)
        error = os.read(ours, 1000).decode()
        os.close(ours)
        os.waitpid(child, 0)
        assert "was opened before a fork" in error
        assert store.read() == []
