"""Activate a skill and read one of its files, as a model's two calls do: a body of 10 KB, 20 files, a thousand times.

The floor is what nobody can save: open, read and close of the same two files. Above it lie finding the skill, opening
beneath its folder, parsing, listing the 20 files, wrapping, and the record of both calls; once with the record in
memory, once in SQLite, where each call returns only when its record is durable. How long that takes is the disk's to
say, so the durable record has a floor of its own: the same two reads, and two bare commits of a row in SQLite, each
flushed. Between two calls the processor does other work, as it does between the calls of a model; a thousand loads in
a row find everything in its caches and take a third less.
"""

import os
import sqlite3
import statistics
import time
from collections.abc import Callable
from typing import Unpack

from metier import Skills
from metier.record.store import open_store
from metier.session.options import SessionOptions
from metier.session.session import Session
from metier.testing import write_skill

from ..measure import Row
from ..options import Options, scan_arguments

TIMES = 1_000
_NAME = "quarterly-report"
_RESOURCE = "references/guide-00.md"

Act = Callable[[], object]


def run(options: Options) -> list[Row]:
    folder = options.workspace.folder("activate")
    file = _write(os.path.join(folder, "skills", _NAME))
    resource = os.path.join(os.path.dirname(file), _RESOURCE)
    memory = _session(options, folder)
    bare = sqlite3.connect(os.path.join(folder, "bare.db"), isolation_level=None)
    bare.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE frames (text)")
    with open_store("sqlite:///" + os.path.join(folder, "trail.db")) as store:
        durable = _session(options, folder, store=store)
        acts: dict[str, Act] = {
            "floor": lambda: (_read(file), _read(resource)),
            "metier, the load": lambda: _load(memory),
            "metier": lambda: _activate(memory),
            "floor, SQLite": lambda: (_read(file), _commit(bare), _read(resource), _commit(bare)),
            "metier, SQLite": lambda: _activate(durable),
        }
        times = TIMES if options.rounds > 2 else TIMES // 10
        taken = _interleaved(acts, times)
    bare.close()
    rows = [row for who, seconds in taken.items() for row in _rows(who, seconds, taken["floor"])]
    flushed, above = (statistics.median(taken[f"{who}, SQLite"]) for who in ("floor", "metier"))
    note = "the rest is two flushes, which take this disk longer or shorter than the goal, whoever asks for them"
    rows.append(Row("p50 above commits", "metier, SQLite", (above - flushed) * 1e3, "ms", note=note))
    rows.append(Row("p50 to commits", "metier, SQLite", above * 1e3, "ms", above / flushed, "commits"))
    return rows


def _rows(who: str, seconds: list[float], floor: list[float]) -> list[Row]:
    """p50 and p99; the goal of a millisecond judges the p50, the ratio stands beside it."""
    p50, p99 = statistics.median(seconds), statistics.quantiles(seconds, n=100)[98]
    of = f"of {len(seconds):,}"
    if who.startswith("floor"):
        return [Row(f"p50 {of}", who, p50 * 1e3, "ms"), Row(f"p99 {of}", who, p99 * 1e3, "ms")]
    at_p50, at_p99 = statistics.median(floor), statistics.quantiles(floor, n=100)[98]
    return [
        Row(f"p50 {of}", who, p50 * 1e3, "ms", at_most=0.5 if who.endswith("load") else 1),
        Row(f"p50 {of}", f"{who}, ratio", p50 * 1e3, "ms", p50 / at_p50, "floor"),
        Row(f"p99 {of}", who, p99 * 1e3, "ms", p99 / at_p99, "floor"),
    ]


def _interleaved(acts: dict[str, Act], times: int) -> dict[str, list[float]]:
    """Each in turn, so that a slow moment of the machine hits everyone alike; the first round only warms up."""
    taken: dict[str, list[float]] = {who: [] for who in acts}
    for number in range(times + 1):
        for who, act in acts.items():
            start = time.perf_counter()
            act()
            if number:
                taken[who].append(time.perf_counter() - start)
    return taken


def _activate(session: Session) -> None:
    _load(session)
    if not session.call("skill_read", {"name": _NAME, "path": _RESOURCE}).ok:
        raise AssertionError("the file was not read")


def _load(session: Session) -> None:
    loaded = session.call("skill_load", {"name": _NAME})
    if not loaded.ok or loaded.data["already_loaded"] or len(loaded.data["files"]) != 20:
        raise AssertionError("the load did not do the work that is measured")


def _commit(bare: sqlite3.Connection) -> None:
    bare.execute("BEGIN IMMEDIATE")
    bare.execute("INSERT INTO frames VALUES (?)", ("x" * 2_000,))
    bare.execute("COMMIT")


def _read(file: str) -> bytes:
    with open(file, "rb") as stream:
        return stream.read()


def _session(options: Options, folder: str, **given: Unpack[SessionOptions]) -> Session:
    arguments = scan_arguments(options.workspace, os.path.join(folder, "skills"), cache=False)
    # Loaded again unchanged, a skill is only a reminder; here each load is to be a whole one.
    arguments["settings"] = {**arguments["settings"], "load": {"reload": "again"}}
    return Skills.discover(**arguments).session(**given)


def _write(folder: str) -> str:
    line = "Check each figure against its source, and say where one is missing.\n"
    body = "# Steps\n\n" + line * (10_000 // len(line))
    files = {f"references/guide-{number:02}.md": line * 30 for number in range(10)}
    files |= {f"scripts/step-{number:02}.py": "print()\n" for number in range(5)}
    files |= {f"assets/template-{number:02}.md": line for number in range(5)}
    return write_skill(folder, description="Writes the quarterly report.", body=body, files=files)
