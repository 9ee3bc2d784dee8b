"""Scripts under macOS's `sandbox-exec`, with a profile that denies everything it does not name. Untested.

Written from the documentation of the profile language and never run on a Mac by a test; treat it as a draft until
`examine` has been run on the machine in question. It holds less than bubblewrap does, and reports less: there are no
process namespaces, so a script that leaves its process group is found by the profile's limits only, and the size of the
work folder is checked after the fact. The invariant is the same as everywhere: what is not in force is not reported.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Final

from metier.sandbox import Job, OnOutput, Outcome, SandboxUnavailable
from metier.sandbox.base import ProcessRunner, care_for, outcome
from metier.sandbox.interpreter import Program, find_program
from metier.sandbox.mounts import fixed_variables

_PROGRAM: Final = "/usr/bin/sandbox-exec"
_PROTECTIONS: Final = ("no-host-files", "clean-environment", "limit-time", "limit-output", "limit-file-size")

_PROFILE: Final = """(version 1)
(deny default)
(import "system.sb")
(allow process-fork)
(allow process-exec (subpath "/usr") (subpath "/bin") (subpath "/System") (subpath "/Library/Developer")
  (subpath (param "SKILL")) (subpath (param "RUNTIME")))
(allow file-read-metadata)
(allow file-read* (subpath "/usr") (subpath "/bin") (subpath "/System") (subpath "/Library/Developer")
  (subpath "/private/var/db/dyld") (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random")
  (literal "/dev/urandom") (subpath (param "SKILL")) (subpath (param "RUNTIME")) (subpath (param "WORK")))
(allow file-write* (subpath (param "WORK")) (literal "/dev/null"))
(deny process-info* (target others))
(deny signal (target others))
(allow signal (target same-sandbox))
(deny mach-lookup)
"""

_SHELL: Final = 'ulimit -c 0; ulimit -n 256; ulimit -t "$1"; ulimit -f "$2" || exit 125; shift 2; exec "$@"'


class SeatbeltRunner(ProcessRunner):
    """The sandbox of macOS. Untested: see above."""

    name = "seatbelt"

    def problem(self) -> str | None:
        if sys.platform != "darwin":
            return "it needs macOS"
        if not os.access(_PROGRAM, os.X_OK):
            return "sandbox-exec is not there"
        tried = subprocess.run(  # noqa: S603
            [_PROGRAM, "-p", "(version 1)(allow default)", "/usr/bin/true"], capture_output=True, check=False
        )
        return None if tried.returncode == 0 else "sandbox-exec does not work here (already in a sandbox?)"

    def execute(self, job: Job, on_output: OnOutput | None, stop: threading.Event | None) -> Outcome:
        if sys.platform != "darwin":
            raise SandboxUnavailable("sandbox-exec is part of macOS only")
        program = find_program(job.skill_dir, job.script)
        skill = os.path.realpath(job.skill_dir)
        base = os.path.realpath(tempfile.mkdtemp(prefix="metier-run-"))
        try:
            work, temporary = os.path.join(base, "work"), os.path.join(base, "tmp")
            os.mkdir(work)
            os.mkdir(temporary)
            project = os.path.realpath(job.project) if job.project is not None else ""
            started = time.monotonic()
            process = subprocess.Popen(  # noqa: S603
                self._line(job, program, skill, base, project),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=fixed_variables(job, skill, work, project, temporary),
                cwd=work,
                start_new_session=True,
                bufsize=0,
            )

            def end() -> None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)

            descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
            try:
                held = _PROTECTIONS if job.network else (*_PROTECTIONS, "no-network")
                ended, output = care_for(
                    process, job, end=end, checks=(), on_output=on_output, stop=stop, protections=held
                )
                return outcome(
                    process, job, ended, output, started=started, work=descriptor, protections=held, notes=program.notes
                )
            finally:
                os.close(descriptor)
        finally:
            shutil.rmtree(base, ignore_errors=True)

    def _line(self, job: Job, program: Program, skill: str, base: str, project: str) -> list[str]:
        profile = _PROFILE
        parameters = {"SKILL": skill, "WORK": base, "RUNTIME": program.mount[0] if program.mount else "/usr"}
        if project:
            parameters["PROJECT"] = project
            profile += '(allow file-read* (subpath (param "PROJECT")))\n'
            if job.project_writable:
                profile += (
                    '(allow file-write* (subpath (param "PROJECT")))\n(deny file-write* (subpath (param "SKILL")))\n'
                )
                for number, path in enumerate(job.project_protected):
                    parameters[f"KEPT{number}"] = os.path.join(project, path)
                    profile += f'(deny file-write* (subpath (param "KEPT{number}")))\n'
        if job.network:
            profile += '(allow network*)\n(allow system-socket)\n(allow file-read* (subpath "/private/etc/ssl"))\n'
        given = [word for name, value in parameters.items() for word in ("-D", f"{name}={value}")]
        limits = [str(int(job.limits.seconds) + 1), str(job.limits.file_bytes // 512)]
        inner = ["/bin/sh", "-c", _SHELL, "sh", *limits]
        return [
            _PROGRAM,
            *given,
            "-p",
            profile,
            *inner,
            program.path,
            *program.flags,
            f"{skill}/{job.script}",
            *job.argv,
        ]
