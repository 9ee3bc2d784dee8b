"""Chooses a runner by its name: a built-in one, or one that an installed package has in the group `metier.runners`.
A server also limits how many scripts its runner runs at a time.

The invariant: a runner without a sandbox is returned only if its name was given, and the name `none` is never a
package's.
"""

import os
import threading
from collections.abc import Sequence
from typing import Final

from metier.errors import SandboxUnavailable, ScriptRefused
from metier.files import plugins
from metier.hosts.schema import CONTAINER_IMAGE, RunRules
from metier.running.sandbox import Job, OnOutput, Outcome, Runner

RUNS: Final = max(2, os.cpu_count() or 1)
"""How many scripts of a server run at a time by default."""
_BUILT_IN: Final = {
    "bubblewrap": "metier.running.sandbox.bubblewrap:BubblewrapRunner",
    "container": "metier.running.sandbox.container:ContainerRunner",
    "none": "metier.running.sandbox.unsandboxed:UnsandboxedRunner",
}


def choose(names: Sequence[str] | None = None, *, image: str = CONTAINER_IMAGE) -> Runner:
    """Return the first of the named runners that works here; without names, as the settings do by default.

    `none`, without a sandbox, must be named explicitly. `image` is for the runner `container`.
    """
    if names is not None and not names:
        raise SandboxUnavailable("the setting run.sandbox is empty, so no script runs")
    tried: list[str] = []
    remedy = ""
    for name in RunRules().sandbox if names is None else names:
        runner = _make(name, image)
        reason = runner.problem()
        if reason is None:
            return runner
        tried.append(f"{name}: {reason}")
        remedy = remedy or getattr(runner, "remedy", str)()  # what the user can do about it, if the runner can tell
    raise SandboxUnavailable("no sandbox works on this machine", install=remedy, tried=tried)


def _make(name: str, image: str) -> Runner:
    kind = plugins.find("metier.runners", name, _BUILT_IN)
    if kind is None:
        raise plugins.unknown("runner", name, [*_BUILT_IN, *plugins.installed("metier.runners")], key="run.sandbox")
    return kind(image) if name == "container" else kind()


class BoundedRunner:
    """Wraps a runner and refuses a job, with the reason `busy`, while `runs` jobs are running.

    It does not queue them. A queued script would hold a thread, and a model that gets a refusal can do something else
    in the meantime.
    """

    def __init__(self, runner: Runner, runs: int) -> None:
        self._runner, self._runs = runner, runs
        self._free = threading.BoundedSemaphore(runs)
        self.name = runner.name

    def problem(self) -> str | None:
        return self._runner.problem()

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        if not self._free.acquire(blocking=False):
            many = "1 script is" if self._runs == 1 else f"{self._runs} scripts are"
            raise ScriptRefused(job.script, "busy", f"{many} already running, which is the limit; try again later")
        try:
            return self._runner.run(job, on_output)
        finally:
            self._free.release()
