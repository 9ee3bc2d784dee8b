"""How many scripts run at once, whichever surface asked for them: a runner around the machine's own.

One that comes too late is refused at once and not kept waiting: whoever waits holds a thread, and a model that is told
so can do something else meanwhile.
"""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from metier.errors import ScriptRefused
from metier.sandbox import Job, OnOutput, Outcome, Runner

RUNS: Final = max(2, os.cpu_count() or 1)
"""Scripts at a time unless the server is told otherwise."""


class BoundedRunner:
    """A runner that refuses a job, with reason `busy`, while as many as allowed are under way."""

    def __init__(self, runner: Runner, runs: int) -> None:
        self._runner, self._runs = runner, runs
        self._free = threading.BoundedSemaphore(runs)
        self.name = runner.name

    def problem(self) -> str | None:
        return self._runner.problem()

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        with self._place(job):
            return self._runner.run(job, on_output)

    async def arun(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        with self._place(job):
            return await self._runner.arun(job, on_output)

    @contextmanager
    def _place(self, job: Job) -> Generator[None, None, None]:
        if not self._free.acquire(blocking=False):
            many = "1 script is" if self._runs == 1 else f"{self._runs} scripts are"
            raise ScriptRefused(job.script, "busy", f"{many} running already, and no more may; try again later")
        try:
            yield
        finally:
            self._free.release()
