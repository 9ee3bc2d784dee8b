"""What the sandbox adds to a script that does nothing, against the same script as a bare subprocess, in turns.

    python -m bench sandbox

The best of many is what the sandbox itself costs, and the goal of 30 ms more judges it; the medians beside it say what
the machine made of that today. Where the launcher is root, a skill
that only root may read takes one more step (its owner is mapped to the run's own id), which is measured as well.
"""

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable

from metier.sandbox import Job, Runner, SandboxUnavailable, choose

from ..measure import Row
from ..options import Options

RUNS = 60
GOAL_MS = 30

_SCRIPT = "#!/bin/sh\ntrue\n"


def run(options: Options) -> list[Row]:
    try:
        runner = choose()
    except SandboxUnavailable as error:
        return [Row("sandboxed true", "metier", None, note=str(error))]
    with tempfile.TemporaryDirectory(prefix="metier-bench-") as folder:
        os.chmod(folder, 0o755)
        acts = _acts(runner, folder)
        taken = _interleaved(acts, RUNS if options.rounds > 2 else 10)
    return _rows(runner.name, taken)


def _acts(runner: Runner, folder: str) -> dict[str, Callable[[], object]]:
    open_skill, private = (_skill(os.path.join(folder, name), mode) for name, mode in (("open", 0o755), ("own", 0o700)))
    script = os.path.join(open_skill, "true.sh")
    acts: dict[str, Callable[[], object]] = {
        "bare subprocess": lambda: subprocess.run(["/bin/sh", script], capture_output=True, env={}, check=True),
        "sandbox": lambda: _succeed(runner, open_skill),
    }
    if os.geteuid() == 0:
        acts["sandbox, root's own skill"] = lambda: _succeed(runner, private)
    return acts


def _skill(folder: str, mode: int) -> str:
    os.mkdir(folder)
    with open(os.path.join(folder, "true.sh"), "w", encoding="utf-8") as file:
        file.write(_SCRIPT)
    os.chmod(folder, mode)
    return folder


def _succeed(runner: Runner, folder: str) -> None:
    outcome = runner.run(Job(folder, "true.sh"))
    if outcome.exit_code != 0 or not outcome.protections:
        raise AssertionError(f"the sandboxed script did not run as it should: {outcome}")


def _interleaved(acts: dict[str, Callable[[], object]], times: int) -> dict[str, list[float]]:
    """Each in turn, so that a slow moment of the machine hits everyone alike; the first round only warms up."""
    taken: dict[str, list[float]] = {who: [] for who in acts}
    for number in range(times + 1):
        for who, act in acts.items():
            start = time.perf_counter()
            act()
            if number:
                taken[who].append(time.perf_counter() - start)
    return taken


def _rows(name: str, taken: dict[str, list[float]]) -> list[Row]:
    rows: list[Row] = []
    for kind, figure in (("best", min), ("p50", statistics.median)):
        bare = figure(taken["bare subprocess"])
        for who, seconds in taken.items():
            value, shown = figure(seconds), who.replace("sandbox", name)
            rows.append(
                Row(f"true, {kind} of {len(seconds)}", shown, value * 1e3, "ms", value / bare, "bare subprocess")
            )
            if who != "bare subprocess":
                goal = GOAL_MS if kind == "best" else None
                rows.append(Row(f"more than bare, {kind}", shown, (value - bare) * 1e3, "ms", at_most=goal))
    return rows


if __name__ == "__main__":
    chosen = Options()
    try:
        rows = run(chosen)
    finally:
        chosen.workspace.close()
    for row in rows:
        goal = "" if row.met is None else f"  goal {row.at_most} ms: {'met' if row.met else 'missed'}"
        print(f"{row.what:<22} {row.who:<30} {row.value or 0:8.2f} {row.unit}{goal}")
