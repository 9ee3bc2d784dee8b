"""A runner as somebody else's package brings it: the sandbox of the machine, with a journal of the scripts it ran."""

import os

from metier.running.sandbox import Job, OnOutput, Outcome
from metier.running.sandbox.bubblewrap import BubblewrapRunner


class JournalRunner:
    """Follows the protocol `Runner`, and is made without arguments, as those of entry points are."""

    name = "journal"

    def __init__(self) -> None:
        self._sandbox = BubblewrapRunner()

    def problem(self) -> str | None:
        return self._sandbox.problem()

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        outcome = self._sandbox.run(job, on_output)
        if journal := os.environ.get("JOURNAL"):
            with open(journal, "a", encoding="utf-8") as file:
                file.write(f"{job.script} {outcome.exit_code}\n")
        return outcome
