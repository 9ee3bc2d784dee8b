"""Runs scripts without a sandbox. `choose` returns this runner only if it is named explicitly.

The limits on time and output, the allow-list of variables, the copy of the approved skill and the fresh work folder
still apply. Nothing separates the script from the rest of the machine, so no protection is ever reported. A script that
detaches from its process group survives its run. There is no layer in memory either, so a script runs in the folder of
the user only if it may write there.
"""

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from typing import Final

from metier.running.sandbox import Job, OnOutput, Outcome, SandboxUnavailable
from metier.running.sandbox.base import outcome, prepare, supervise
from metier.running.sandbox.mounts import fixed_variables, lay_out, variables_for

_ELSEWHERE: Final = "without a sandbox it ran in an empty folder; the variable PROJECT_DIR has the path of the user's"


class UnsandboxedRunner:
    """Runs a script with all rights of the current user."""

    name = "none"

    def problem(self) -> str | None:
        return None

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        if job.hosts:
            raise SandboxUnavailable("without a sandbox, the network of a script cannot be limited to hosts")
        tree, program = prepare(job)
        with tempfile.TemporaryDirectory(prefix="metier-run-") as base:
            skill, work, temporary = (os.path.join(base, name) for name in ("skill", "work", "tmp"))
            for folder in (skill, work, temporary):
                os.mkdir(folder)
            tree.write(skill)
            elsewhere = job.cwd is not None and not job.project_writable
            for name, data in job.files.items():
                with open(os.path.join(work, name), "xb") as file:
                    file.write(data)
            project = os.path.realpath(job.project) if job.project is not None else ""
            started = time.monotonic()
            # Opened before the script runs, which can close its folder to us.
            descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
            try:
                called = lay_out(job, program, base)
                process = subprocess.Popen(  # noqa: S603
                    [called, *program.flags, os.path.join(skill, job.script), *job.argv],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=variables_for(job, fixed_variables(job, skill, work, project, temporary), base),
                    cwd=work if job.cwd is None or elsewhere else job.cwd,
                    start_new_session=True,
                    bufsize=0,
                )
                ended, output = supervise(
                    process,
                    job,
                    end=lambda: _end(process.pid),
                    checks=(),
                    on_output=on_output,
                    protections=(),
                )
                return outcome(
                    job,
                    ended,
                    output,
                    code=process.returncode,
                    started=started,
                    work=descriptor,
                    protections=(),
                    notes=[_ELSEWHERE] if elsewhere and process.returncode else (),
                )
            finally:
                os.close(descriptor)


def _end(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
