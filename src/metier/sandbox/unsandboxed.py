"""Scripts without any sandbox, for who has decided so by name; `choose` never comes here on its own.

The limits on time and output still hold, the environment is still the allow-list, and the work folder is still fresh;
but nothing keeps a script from the rest of the machine, so no protection is ever reported. What a script does to get
away (a session of its own, a second fork) succeeds.
"""

import os
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress

from metier.sandbox import Job, OnOutput, Outcome
from metier.sandbox.base import ProcessRunner, care_for, outcome
from metier.sandbox.interpreter import find_program
from metier.sandbox.mounts import fixed_variables


class UnsandboxedRunner(ProcessRunner):
    """Runs a script as the user who calls it, with everything that user may do."""

    name = "none"

    def problem(self) -> str | None:
        return None if os.name == "posix" else "it needs a POSIX system"

    def execute(self, job: Job, on_output: OnOutput | None, stop: threading.Event | None) -> Outcome:
        program = find_program(job.skill_dir, job.script)
        skill = os.path.realpath(job.skill_dir)
        with tempfile.TemporaryDirectory(prefix="metier-run-") as base:
            work, temporary = os.path.join(base, "work"), os.path.join(base, "tmp")
            os.mkdir(work)
            os.mkdir(temporary)
            project = os.path.realpath(job.project) if job.project is not None else ""
            started = time.monotonic()
            process = subprocess.Popen(  # noqa: S603
                [program.path, *program.flags, os.path.join(skill, job.script), *job.argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=fixed_variables(job, skill, work, project, temporary),
                cwd=work,
                start_new_session=True,
                bufsize=0,
            )
            descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
            try:
                ended, output = care_for(
                    process,
                    job,
                    end=lambda: _end(process.pid),
                    checks=(),
                    on_output=on_output,
                    stop=stop,
                    protections=(),
                )
                return outcome(
                    process,
                    job,
                    ended,
                    output,
                    started=started,
                    work=descriptor,
                    protections=(),
                    notes=program.notes,
                )
            finally:
                os.close(descriptor)


def _end(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
