"""Scripts in a bubblewrap sandbox: namespaces, a seccomp filter, an id that is never root, and limits that all hold.

How a run goes: bubblewrap builds the sandbox and starts a shell in it, which sets the limits, says that it is ready and
waits. The host then takes hold of the sandbox from outside (descriptors of its work folder and its /proc, a handle on
its first process), checks what is really in force, and only then lets the shell become the script. The work folder is
a file system in memory of limited size that exists in the sandbox's mount namespace alone; the descriptor is how its
content is read when every process has ended, and when the last descriptor closes, it is gone. So there is nothing to
clean up, also if the host is killed: the kernel ends the first process with the host, all others with the first, and
the mounts with them. Nothing of the host's environment or of these arguments is handed to the first process, since a
script can read both in its /proc.

The invariant: a script's first instruction runs after every protection was seen in force, or never.
"""

import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from metier.sandbox import SKILL_DIR, Job, OnOutput, Outcome, SandboxUnavailable, install_hint, seccomp
from metier.sandbox.base import ProcessRunner, care_for, outcome
from metier.sandbox.evidence import find_gaps, protections
from metier.sandbox.identity import Identity, an_identity, must_switch, readable_by_all
from metier.sandbox.interpreter import Program, find_program
from metier.sandbox.mounts import WRITABLE, view
from metier.sandbox.watch import entries_below, memory_below

START_SECONDS: Final = 20.0
"""How long building a sandbox may take on a machine under load; usually it is a few milliseconds."""

OPEN_FILES: Final = 256
ENTRIES_FACTOR: Final = 20
_READY: Final = b"ready\n"
_IDMAP: Final = os.path.join(os.path.dirname(__file__), "idmap.py")

# The units are the same in every shell that is called sh: -f counts 512 bytes, -v counts 1024.
_SHELL: Final = """
ulimit -c 0 && ulimit -n "$1" && ulimit -t "$2" && ulimit -f "$3" && ulimit -v "$4" || exit 125
ulimit -u "$5" 2>/dev/null || ulimit -p "$5" || exit 125
shift 5
echo ready
read -r go && [ "$go" = go ] || exit 125
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class _Sandbox:
    """A sandbox that is built and waits: its outer process, its first process, and what the host holds of it."""

    process: subprocess.Popen[bytes]
    first: int  # a descriptor of the process, so that no other process of the same number is ever meant
    work: int
    writable: tuple[int, ...]
    proc: int
    protections: tuple[str, ...]

    def end(self) -> None:
        """End every process in it, and wait until that is done."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.first, signal.SIGKILL)
        # The first process of a namespace counts as ended only when all the others are.
        poll = select.poll()
        poll.register(self.first, select.POLLIN)
        poll.poll()


class BubblewrapRunner(ProcessRunner):
    """The default on Linux. `bwrap` names the program where it is not on the path."""

    name = "bubblewrap"

    def __init__(self, bwrap: str | None = None) -> None:
        self._bwrap = bwrap or shutil.which("bwrap")

    def problem(self) -> str | None:
        if not sys.platform.startswith("linux"):
            return "it needs Linux"
        if seccomp.machine() is None:
            return f"there is no filter for the system calls of {os.uname().machine}"
        if self._bwrap is None:
            return "bwrap is not installed"
        return _problem(self._bwrap, os.geteuid())

    def execute(self, job: Job, on_output: OnOutput | None, stop: threading.Event | None) -> Outcome:
        if self._bwrap is None or (seccomp.machine() is None):
            raise SandboxUnavailable(f"bubblewrap cannot be used: {self.problem()}", install=install_hint())
        program = find_program(job.skill_dir, job.script)
        command = [program.inside, *program.flags, f"{SKILL_DIR}/{job.script}", *job.argv]
        started = time.monotonic()
        with an_identity() as identity, _built(self._bwrap, job, program, command, identity) as sandbox:
            limits = job.limits
            checks = [
                memory_below(sandbox.proc, limits.memory_bytes),
                entries_below(sandbox.writable, limits.files * ENTRIES_FACTOR),
            ]
            ended, output = care_for(
                sandbox.process,
                job,
                end=sandbox.end,
                checks=checks,
                on_output=on_output,
                stop=stop,
                protections=sandbox.protections,
            )
            return outcome(
                sandbox.process,
                job,
                ended,
                output,
                started=started,
                work=sandbox.work,
                protections=sandbox.protections,
                notes=program.notes,
            )


@contextmanager
def _built(
    bwrap: str, job: Job, program: Program | None, command: Sequence[str], identity: Identity
) -> Generator[_Sandbox]:
    """A sandbox whose script was just let go; when the context ends, nothing of it is left."""
    machine = seccomp.machine()
    assert machine is not None
    with ExitStack() as stack:
        seen = view(job, program, identity)
        given = {holder: _in_memory(stack, data) for holder, data in seen.files.items()}
        rules = _in_memory(stack, seccomp.program(machine, network=job.network))
        told, tell = os.pipe()
        stack.callback(os.close, told)
        try:
            words = [str(given[word]) if word in given else word for word in seen.arguments]
            words += ["--seccomp", str(rules), "--info-fd", str(tell)]
            arguments = _in_memory(stack, b"".join(os.fsencode(word) + b"\0" for word in words))
            line = [*_as_owner(job, program, identity), bwrap, "--args", str(arguments), "--"]
            line += [*_become(identity), *_limited(job, program), *command]
            process = subprocess.Popen(  # noqa: S603
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                pass_fds=(*given.values(), rules, arguments, tell),
                process_group=0,
                bufsize=0,
            )
        except OSError as error:
            raise SandboxUnavailable(f"bubblewrap could not be started: {error.strerror}") from error
        finally:
            os.close(tell)
        stack.callback(_reap, process)
        _await_ready(process)
        sandbox = _take_hold(stack, process, told, job, program, identity)
        assert process.stdin
        with suppress(BrokenPipeError):
            process.stdin.write(b"go\n")
        yield sandbox


def _in_memory(stack: ExitStack, data: bytes) -> int:
    """A descriptor that a child can read the data from; there is no file."""
    descriptor = os.memfd_create("metier")
    stack.callback(os.close, descriptor)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _become(identity: Identity) -> list[str]:
    if not identity.switch:
        return []
    uid = str(identity.uid)
    drop = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]
    return ["/usr/bin/setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", *drop, "--"]


def _limited(job: Job, program: Program | None) -> list[str]:
    limits = job.limits
    addresses = limits.memory_bytes + (program.address_reserve if program else 0)
    numbers = (OPEN_FILES, int(limits.seconds) + 1, limits.file_bytes // 512, addresses // 1024, limits.processes)
    return ["/bin/sh", "-c", _SHELL, "sh", *(str(number) for number in numbers)]


def _as_owner(job: Job, program: Program | None, identity: Identity) -> list[str]:
    """The step before bubblewrap that lets a run with an id of its own use folders that are not open to everybody."""
    if not identity.switch or program is None:
        return []
    folders = [] if readable_by_all(job.skill_dir) else [os.path.realpath(job.skill_dir)]
    if job.project is not None and (job.project_writable or not readable_by_all(job.project)):
        project = os.path.realpath(job.project)
        # One mount shows the whole tree under its owner; the skill in it needs no second.
        folders = [project, *(folder for folder in folders if not f"{folder}/".startswith(f"{project}/"))]
    if not folders:
        return []
    return [sys.executable, "-I", "-S", _IDMAP, str(identity.uid), *folders, "--"]


def _await_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout
    assert process.stderr
    said = b""
    waiting = select.poll()  # select() knows no descriptor above 1023, and a server has more
    waiting.register(process.stdout, select.POLLIN)
    deadline = time.monotonic() + START_SECONDS
    while said != _READY:
        left = deadline - time.monotonic()
        if left <= 0 or not waiting.poll(left * 1000):
            raise SandboxUnavailable(f"the sandbox was not ready after {START_SECONDS:g} seconds")
        piece = os.read(process.stdout.fileno(), len(_READY) - len(said))
        if not piece:
            process.wait()
            why = os.read(process.stderr.fileno(), 4096).decode("utf-8", "replace").strip()
            raise SandboxUnavailable(f"the sandbox could not be built: {why or f'status {process.returncode}'}")
        said += piece


def _take_hold(
    stack: ExitStack, process: subprocess.Popen[bytes], told: int, job: Job, program: Program | None, identity: Identity
) -> _Sandbox:
    """What the host needs of the sandbox, opened while only our own shell runs in it; checked before it is let go."""
    try:
        os.set_blocking(told, False)  # it was written before the shell could say that it is ready
        pid = int(json.loads(os.read(told, 4096))["child-pid"])
        first = os.pidfd_open(pid)
        stack.callback(os.close, first)
        root = f"/proc/{pid}/root"
        folders: list[int] = []
        for place in (*WRITABLE, "/proc"):
            folder = os.open(root + place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, folder)
            folders.append(folder)
        if identity.switch:
            os.fchown(folders[0], identity.uid, identity.uid)
        writable, proc = tuple(folders[:-1]), folders[-1]
        gaps = find_gaps(proc, pid, writable, job, program)
    except (OSError, ValueError, KeyError) as error:
        raise SandboxUnavailable(f"the sandbox cannot be reached from outside: {error}") from error
    if gaps:
        raise SandboxUnavailable("the sandbox does not hold what it must", tried=gaps)
    return _Sandbox(process, first, writable[0], writable, proc, protections(job, identity))


def _reap(process: subprocess.Popen[bytes]) -> None:
    """For every way out: the outer process ends, and with it (it is their parent) all the others."""
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


@functools.cache
def _problem(bwrap: str, uid: int) -> str | None:
    """Builds a sandbox and runs nothing in it; the answer is the same for the life of the process and the user."""
    if must_switch() and not os.access("/usr/bin/setpriv", os.X_OK):
        return f"for user {uid} it also needs setpriv, which is part of util-linux"
    try:
        known = subprocess.run([bwrap, "--help"], capture_output=True, env={}, check=False, timeout=10)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return f"{bwrap} cannot be run: {error}"
    if b"--size" not in known.stdout + known.stderr:
        return "bwrap is too old; 0.7 or later is needed"
    try:
        with an_identity() as identity, _built(bwrap, Job("/", ""), None, ["/bin/true"], identity) as sandbox:
            status = sandbox.process.wait(START_SECONDS)
    except SandboxUnavailable as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return "a sandbox does not end"
    return None if status == 0 else f"the sandbox ends with status {status}"
