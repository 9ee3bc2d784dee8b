"""A runner for tests that starts no process. It returns prepared outcomes and remembers the jobs.

It is public, for tests of programs that use this library. The invariant: it follows the contract of `Runner` (order and
limit of output, exceptions of the consumer) without a process or a clock.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from metier.running.sandbox import Job, OnOutput, Outcome, ScriptRefused

Answer = Outcome | Exception | Callable[[Job], Outcome]


class FakeRunner:
    """Returns the answer for the script's path, or `default` for every other script.

    An answer is an `Outcome`, an exception to raise, or a function that takes the job. Output beyond the job's limit is
    cut, and the outcome ends with `output-limit`. `jobs` lists the jobs so far, in order.
    """

    name = "fake"

    def __init__(
        self, answers: Mapping[str, Answer] | None = None, default: Answer | None = None, problem: str | None = None
    ) -> None:
        self.jobs: list[Job] = []
        self._answers, self._default, self._problem = dict(answers or {}), default, problem

    def problem(self) -> str | None:
        return self._problem

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        self.jobs.append(job)
        answer = self._answers.get(job.script, self._default)
        if answer is None:
            raise ScriptRefused(job.script, "unreadable", f"File not found: {job.script}")
        if isinstance(answer, Exception):
            raise answer
        outcome = _within(answer if isinstance(answer, Outcome) else answer(job), job.limits.output_bytes)
        job.started(outcome.protections)
        if on_output is not None:
            if outcome.stdout:
                on_output("stdout", outcome.stdout)
            if outcome.stderr:
                on_output("stderr", outcome.stderr)
        return outcome


def _within(outcome: Outcome, limit: int) -> Outcome:
    totals = {"stdout_total": len(outcome.stdout), "stderr_total": len(outcome.stderr)}
    if sum(totals.values()) <= limit:
        return replace(outcome, **totals)
    stdout = outcome.stdout[:limit]
    stderr = outcome.stderr[: limit - len(stdout)]
    return replace(outcome, stdout=stdout, stderr=stderr, ended="output-limit", exit_code=137, **totals)
