"""A runner that limits how many scripts run at a time, for all surfaces of a server together.

A script beyond the limit is refused at once instead of queued. A queued script would hold a thread, and a model that
gets a refusal can do something else in the meantime.
"""

import os
import threading
from typing import Final

from metier.errors import ScriptRefused
from metier.running.sandbox import Job, OnOutput, Outcome, Runner

RUNS: Final = max(2, os.cpu_count() or 1)
"""How many scripts run at a time by default."""


class BoundedRunner:
    """Wraps a runner and refuses a job, with the reason `busy`, while `runs` jobs are running."""

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
