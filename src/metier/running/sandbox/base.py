"""What the runners of real processes share: what a job needs to start, supervising its process, and the outcome.

The invariant: whatever happens between start and return (a limit, an exception in the consumer, an interrupt, a
stop), the process is ended and reaped before control goes back to the caller.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from subprocess import Popen
from typing import TYPE_CHECKING, Final

from metier.errors import ResourceError, ScriptRefused
from metier.files.tree import SkillTree, take
from metier.limits import KIB, MIB
from metier.running.sandbox import Ended, Job, OnOutput, Outcome
from metier.running.sandbox.changes import ProjectChanges
from metier.running.sandbox.collect import collect
from metier.running.sandbox.interpreter import Program, find_program
from metier.running.sandbox.mounts import given_files
from metier.running.sandbox.pump import PumpedOutput, pump
from metier.running.sandbox.watch import Check, Watch

if TYPE_CHECKING:
    from metier.running.sandbox.proxy import HostProxy

ARGUMENT_BYTES: Final = 128 * KIB - 1
ARGUMENTS_BYTES: Final = MIB
"""The size of one argument, which Linux limits, and of all of them with the variables, which depends on the system."""


def prepare(job: Job) -> tuple[SkillTree, Program]:
    """The files of the job's skill and the program for its script. Raises `ScriptRefused`."""
    tree = approved_tree(job)
    return tree, find_program(tree, job.script, job.packages)


def approved_tree(job: Job) -> SkillTree:
    """The files of the job's skill. Raises `ScriptRefused`, also where the arguments of the job are too long."""
    sizes = [len(os.fsencode(word)) for word in (*job.argv, *job.env.values())]
    if max(sizes, default=0) > ARGUMENT_BYTES or sum(sizes) > ARGUMENTS_BYTES:
        message = f"its arguments have {sum(sizes):,} bytes, which is too long; pass long text as standard input"
        raise ScriptRefused(job.script, "arguments-too-long", message)
    tree = job.tree
    if tree is None:
        try:
            folder = os.open(job.skill_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ScriptRefused(job.script, "unreadable", error.strerror or "cannot be read") from error
        try:
            tree = take(folder)
        except ResourceError as error:
            raise ScriptRefused(job.script, error.reason, str(error)) from error
        finally:
            os.close(folder)
    return tree


def supervise(
    process: Popen[bytes],
    job: Job,
    *,
    end: Callable[[], None],
    checks: Sequence[Check],
    on_output: OnOutput | None,
    protections: tuple[str, ...],
    proxy: "HostProxy | None" = None,
) -> tuple[Ended, PumpedOutput]:
    """Feed, read and watch a started process until it and its streams have ended. `end` ends the whole process tree."""
    output = PumpedOutput(job.limits.output_bytes)

    def report() -> None:
        if proxy is not None and job.on_attempt is not None:
            for attempt in proxy.attempts():
                job.on_attempt(attempt)

    try:
        job.started(protections)
        with Watch(job.limits.seconds, end, checks, job.stop) as watch:
            pump(
                process,
                job.stdin or b"",
                output,
                on_output,
                flood=lambda: watch.finish("output-limit"),
                over=lambda: process.poll() is not None,
                each=report,
            )
            # A script may close its streams and keep running. The time limit still applies.
            process.wait()
    finally:
        end()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        if proxy is not None:
            proxy.close()
    report()
    return watch.ended or "exit", output


def outcome(
    process: Popen[bytes],
    job: Job,
    ended: Ended,
    output: PumpedOutput,
    *,
    started: float,
    work: int,
    protections: Sequence[str],
    changes: ProjectChanges | None = None,
    notes: Sequence[str] = (),
    attempts_left_out: int = 0,
) -> Outcome:
    """Build the outcome of a process that has ended, with the files that it made."""
    duration = int((time.monotonic() - started) * 1000)
    files, left_out = collect(work, job.limits, given_files(job) if job.cwd is None else None)
    if changes is not None and (changes.made or changes.left_out):
        taken = {file.path for file in changes.made}
        renamed = (replace(file, path=f"WORK_DIR/{file.path}") if file.path in taken else file for file in files)
        files, left_out = (*changes.made, *renamed), (*changes.left_out, *left_out)
    code = process.returncode
    return Outcome(
        exit_code=code if code >= 0 else 128 - code,
        ended=ended,
        duration_ms=duration,
        stdout=bytes(output.kept["stdout"]),
        stderr=bytes(output.kept["stderr"]),
        stdout_total=output.totals["stdout"],
        stderr_total=output.totals["stderr"],
        files=files,
        left_out=left_out,
        protections=tuple(protections),
        notes=tuple(notes),
        changes=tuple(changes.applied) if changes is not None else (),
        refused=tuple(changes.refused) if changes is not None else (),
        attempts_left_out=attempts_left_out,
    )
