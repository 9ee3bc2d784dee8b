"""One measurement of `bench.scale`, in a process of its own, so that each has its own memory and nothing is warm.

    python -m bench.scale_one catalog FOLDER TREE COUNT      the costs of a catalog of COUNT skills
    python -m bench.scale_one store FOLDER WRITERS SECONDS   appends of so many threads to one SQLite file

Prints one JSON object. Times are processor time, which other work on the machine disturbs least; only what waits for
the disk is measured by the clock.
"""

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from metier import Skills
from metier.record.store import Draft, open_store

INDEXED = 10_000
"""Search is measured up to this many skills: the index of more takes minutes to build."""

MOST = 50_000
"""The most skills of one folder by default. A larger tree is measured with a setting that allows it."""

EVENTS = 5
"""The events of one append, as many as a load has."""


def catalog(folder: str, tree: str, count: int) -> dict[str, float]:
    project, home = os.path.join(folder, "project"), os.path.join(folder, "home")

    def discover(cache: bool) -> Skills:
        settings = {"cache": cache, "discovery.max_skills": max(count, MOST)}
        return Skills.discover(cwd=project, home=home, roots=[tree], settings=settings, env={})

    before = _resident()
    found: dict[str, float] = {}
    rounds = 3 if count <= INDEXED else 1  # large catalogs average out their own noise
    start = time.process_time()
    skills = discover(False)
    found["cold_s"] = time.process_time() - start
    if len(skills) != count:
        raise AssertionError(f"{len(skills)} of {count} skills found")
    found["memory_mib"] = (_resident() - before) / (1 << 20)
    if rounds > 1:
        found["cold_s"] = min(found["cold_s"], _best(lambda: discover(False), rounds - 1))
    discover(True)
    found["warm_s"] = _best(lambda: discover(True), rounds)
    session = skills.session()
    names = [skill.name for skill in skills][:: max(1, len(skills) // 50)]
    session.call("skill_load", {"name": names[0]})  # which decides what the model may see
    found["load_ms"] = statistics.median(
        _spent(lambda name=name: session.call("skill_load", {"name": name})) * 1e3 for name in names[1:]
    )
    found["prompt_ms"] = _best(lambda: session.prompt(budget=8_000), rounds) * 1e3
    if count <= INDEXED:
        begun = _with_children()
        session.prompt("quarterly report", 8_000)
        skills.wait_for_index()
        found["index_s"] = _with_children() - begun
        queries = ("convert a table", "release notes", "check broken tests", "spreadsheet with charts", "log file")
        found["search_ms"] = min(_spent(lambda one=one: skills.search(one)) * 1e3 for one in queries * 4)
        message = "convert a report into a chart"
        found["message_ms"] = _best(lambda: session.prompt(message, 8_000), rounds) * 1e3
    return found


def store(folder: str, writers: int, seconds: float) -> dict[str, float]:
    """Appends of threads of one process, and in how many transactions they were."""
    url = f"sqlite:///{folder}/writers-{writers}.db"
    times: list[float] = []
    transactions = 0
    with open_store(url) as opened:
        file: Any = opened._file  # type: ignore[attr-defined]  # noqa: SLF001 - nothing else counts transactions
        commit = file.writing

        def counted() -> object:
            nonlocal transactions
            transactions += 1
            return commit()

        file.writing = counted
        begun, spent = time.perf_counter(), time.process_time()
        end = begun + seconds

        def write(writer: int) -> None:
            for number in range(1_000_000):
                started = time.perf_counter()
                if started > end:
                    return
                ids = [f"{writer}-{number}-{part}" for part in range(EVENTS)]
                drafts = [Draft(id_, number, "written", {"text": "x" * 400}) for id_ in ids]
                opened.append(f"s-{writer}", "session", f"s-{writer}", drafts)
                times.append(time.perf_counter() - started)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken, spent = time.perf_counter() - begun, time.process_time() - spent
    times.sort()
    return {
        "appends_per_s": len(times) / taken,
        "store_capacity": len(times) / spent,
        "p50_ms": times[len(times) // 2] * 1e3,
        "p99_ms": times[int(len(times) * 0.99)] * 1e3,
        "per_transaction": len(times) / max(transactions, 1),
    }


def _best(work: Callable[[], object], rounds: int) -> float:
    return min(_spent(work) for _ in range(rounds))


def _spent(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _with_children() -> float:
    """Processor seconds of this process and of those that it started and that ended."""
    return sum(os.times()[:4])


def _resident() -> int:
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: Sequence[str]) -> None:
    kind, folder, *rest = arguments
    found = catalog(folder, rest[0], int(rest[1])) if kind == "catalog" else store(folder, int(rest[0]), float(rest[1]))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
