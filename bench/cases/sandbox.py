"""What the sandbox adds to a script that does nothing, against the same script as a bare subprocess, in turns.

    python -m bench sandbox

The files of the skill are copied for every run, so a large skill is measured as well. A project needs one more step:
it is mounted through an overlay, which a process of its own prepares. The goal is that the median of a run without a
project is at most 30 ms more than the bare subprocess; the best of many is what the sandbox itself costs.
"""

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable

from metier.running.sandbox import Job, Runner, SandboxUnavailable
from metier.running.sandbox.runners import choose

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
    small, large = (_skill(os.path.join(folder, name), files) for name, files in (("small", 1), ("large", 150)))
    project = os.path.join(folder, "project")
    os.mkdir(project)
    script = os.path.join(small, "true.sh")
    return {
        "bare subprocess": lambda: subprocess.run(["/bin/sh", script], capture_output=True, env={}, check=True),
        "sandbox": lambda: _succeed(runner, Job(small, "true.sh")),
        "sandbox, 150 files": lambda: _succeed(runner, Job(large, "true.sh")),
        "sandbox, project": lambda: _succeed(runner, Job(small, "true.sh", project=project)),
        "sandbox, project to write to": lambda: _succeed(
            runner, Job(small, "true.sh", project=project, project_writable=True)
        ),
    }


def _skill(folder: str, files: int) -> str:
    os.mkdir(folder)
    for number in range(files):
        name = "true.sh" if number == 0 else f"reference-{number}.md"
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(_SCRIPT if number == 0 else "x" * 4000)
    return folder


def _succeed(runner: Runner, job: Job) -> None:
    outcome = runner.run(job)
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
                goal = GOAL_MS if kind == "p50" and "project" not in who else None
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
