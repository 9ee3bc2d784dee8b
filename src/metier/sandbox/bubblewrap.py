"""Runs scripts in a bubblewrap sandbox: namespaces, a seccomp filter, a user that is never root, and limits.

How a run works: bubblewrap builds the sandbox and starts a shell in it. The shell sets the limits, prints a line and
waits. The host then opens handles on the sandbox (its work folder, its /proc, its first process) and verifies what is
in force. Only then does the shell become the script. The work folder is an in-memory file system of limited size that
exists only in the sandbox's mount namespace. The host reads its files through the descriptor after every process has
ended, and it vanishes when the last descriptor closes. So there is nothing to clean up, even if the host is killed: the
kernel ends the first process with the host, all others with the first, and the mounts with them. The first process gets
neither the host's environment nor these arguments, because a script can read both in its /proc.

The invariant: every protection is verified before the first instruction of a script runs.
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
from typing import Final, NamedTuple

from metier.sandbox import SKILL_DIR, Job, OnOutput, Outcome, SandboxUnavailable, install_hint, seccomp
from metier.sandbox.base import ProcessRunner, outcome, supervise
from metier.sandbox.evidence import find_gaps, protections
from metier.sandbox.identity import Identity, an_identity, must_switch, readable_by_all
from metier.sandbox.interpreter import Program, find_program
from metier.sandbox.mounts import WRITABLE, view
from metier.sandbox.watch import entries_below, memory_below

START_SECONDS: Final = 20.0
"""How long building a sandbox may take on a machine under load. It usually takes a few milliseconds."""

OPEN_FILES: Final = 256
ENTRIES_FACTOR: Final = 20
_READY: Final = b"ready\n"
_NAMESPACES_HINT: Final = "allow this process to create namespaces; containers and some distributions forbid it"
_IDMAP: Final = os.path.join(os.path.dirname(__file__), "idmap.py")

# The units are the same in every sh: -f counts blocks of 512 bytes, -v counts blocks of 1024.
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
    """A sandbox that is ready: its outer process, its first process, and the handles that the host has on it."""

    process: subprocess.Popen[bytes]
    first: int
    """A pidfd, which never refers to another process that reuses the number."""
    work: int
    writable: tuple[int, ...]
    proc: int
    protections: tuple[str, ...]

    def end(self) -> None:
        """End every process in the sandbox, and wait until they have ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.first, signal.SIGKILL)
        # The first process of a PID namespace ends only after all the others have ended.
        poll = select.poll()
        poll.register(self.first, select.POLLIN)
        poll.poll()


class BubblewrapRunner(ProcessRunner):
    """The default runner. `bwrap` is the path of the program if it is not on PATH."""

    name = "bubblewrap"

    def __init__(self, bwrap: str | None = None) -> None:
        self._bwrap = bwrap or shutil.which("bwrap")

    def problem(self) -> str | None:
        if not sys.platform.startswith("linux"):
            return "it needs Linux"
        if seccomp.machine() is None:
            return f"there is no system call filter for {os.uname().machine}"
        if self._bwrap is None:
            return "bwrap is not installed"
        found = _try_out(self._bwrap, os.geteuid())
        return found.text if found is not None else None

    def remedy(self) -> str:
        found = _try_out(self._bwrap, os.geteuid()) if self._bwrap is not None else None
        return (found.remedy if found is not None else "") or install_hint()

    def execute(self, job: Job, on_output: OnOutput | None, stop: threading.Event | None) -> Outcome:
        if self._bwrap is None or seccomp.machine() is None:
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
            ended, output = supervise(
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
    """Build a sandbox and start the script in it. When the context ends, nothing of the sandbox is left."""
    machine = seccomp.machine()
    assert machine is not None
    with ExitStack() as stack:
        seen = view(job, program, identity)
        given = {placeholder: _in_memory(stack, data) for placeholder, data in seen.files.items()}
        rules = _in_memory(stack, seccomp.program(machine, network=job.network))
        info, info_writer = os.pipe()
        stack.callback(os.close, info)
        try:
            words = [str(given[word]) if word in given else word for word in seen.arguments]
            words += ["--seccomp", str(rules), "--info-fd", str(info_writer)]
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
                pass_fds=(*given.values(), rules, arguments, info_writer),
                process_group=0,
                bufsize=0,
            )
        except OSError as error:
            raise SandboxUnavailable(f"bubblewrap could not be started: {error.strerror}") from error
        finally:
            os.close(info_writer)
        stack.callback(_reap, process)
        _await_ready(process)
        sandbox = _open_handles(stack, process, info, job, program, identity)
        assert process.stdin
        with suppress(BrokenPipeError):
            process.stdin.write(b"go\n")
        yield sandbox


def _in_memory(stack: ExitStack, data: bytes) -> int:
    """Return a descriptor from which a child can read the data. There is no file on disk."""
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
    """The command before bubblewrap that lets a run with its own user id use folders that others cannot read."""
    if not identity.switch or program is None:
        return []
    folders = [] if readable_by_all(job.skill_dir) else [os.path.realpath(job.skill_dir)]
    if job.project is not None and (job.project_writable or not readable_by_all(job.project)):
        project = os.path.realpath(job.project)
        # One mount maps the whole tree, so a skill inside the project needs no second one.
        folders = [project, *(folder for folder in folders if not f"{folder}/".startswith(f"{project}/"))]
    if not folders:
        return []
    return [sys.executable, "-I", "-S", _IDMAP, str(identity.uid), *folders, "--"]


def _await_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout
    assert process.stderr
    line = b""
    waiting = select.poll()  # select() cannot handle descriptors above 1023, which a server has
    waiting.register(process.stdout, select.POLLIN)
    deadline = time.monotonic() + START_SECONDS
    while line != _READY:
        left = deadline - time.monotonic()
        if left <= 0 or not waiting.poll(left * 1000):
            raise SandboxUnavailable(f"the sandbox was not ready after {START_SECONDS:g} seconds")
        piece = os.read(process.stdout.fileno(), len(_READY) - len(line))
        if not piece:
            process.wait()
            why = os.read(process.stderr.fileno(), 4096).decode("utf-8", "replace").strip()
            raise SandboxUnavailable(
                f"the sandbox could not be built: {why or f'status {process.returncode}'}", install=_NAMESPACES_HINT
            )
        line += piece


def _open_handles(
    stack: ExitStack, process: subprocess.Popen[bytes], info: int, job: Job, program: Program | None, identity: Identity
) -> _Sandbox:
    """Open and verify what the host needs of the sandbox, while only our own shell runs in it."""
    try:
        os.set_blocking(info, False)  # bubblewrap wrote it before the shell was ready
        pid = int(json.loads(os.read(info, 4096))["child-pid"])
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
        raise SandboxUnavailable("the sandbox lacks protections", tried=gaps)
    return _Sandbox(
        process=process,
        first=first,
        work=writable[0],
        writable=writable,
        proc=proc,
        protections=protections(job, identity),
    )


def _reap(process: subprocess.Popen[bytes]) -> None:
    """End the outer process on every exit path. All other processes end with it, because it is their parent."""
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


class _Problem(NamedTuple):
    text: str
    remedy: str = ""


@functools.cache
def _try_out(bwrap: str, uid: int) -> _Problem | None:
    """Build a sandbox and run nothing in it. The answer is cached for this process and user."""
    if must_switch() and not os.access("/usr/bin/setpriv", os.X_OK):
        return _Problem(f"user {uid} also needs setpriv, which is part of util-linux")
    try:
        known = subprocess.run([bwrap, "--help"], capture_output=True, env={}, check=False, timeout=10)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return _Problem(f"{bwrap} cannot be run: {error}")
    if b"--size" not in known.stdout + known.stderr:
        return _Problem("bwrap is too old; version 0.7 or later is needed")
    try:
        with an_identity() as identity, _built(bwrap, Job("/", ""), None, ["/bin/true"], identity) as sandbox:
            status = sandbox.process.wait(START_SECONDS)
    except SandboxUnavailable as error:
        gaps = f": {'; '.join(error.tried)}" if error.tried else ""
        return _Problem(error.message + gaps, error.install)
    except subprocess.TimeoutExpired:
        return _Problem("a sandbox does not end")
    return None if status == 0 else _Problem(f"the sandbox exits with status {status}")
