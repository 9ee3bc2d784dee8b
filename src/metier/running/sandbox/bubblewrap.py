"""Runs scripts in a bubblewrap sandbox: namespaces, a seccomp filter, a user that is never root, and limits.

How a run works: bubblewrap builds the sandbox and starts a shell in it. The shell sets the limits, prints a line and
waits. The host then opens handles on the sandbox (its writable folders, its /proc, its first process) and puts it into
a control group where it can. It verifies what is in force. Only then does the shell start the script, and wait for it.

No process in the sandbox can be taken over to get around the limits. The shell has them itself, and its memory is out
of reach: it is executed from a file that cannot be read, so the kernel lets no process without capabilities look into
it. For an ordinary user it is the first process, on which the kernel ends all others. For root, that is a process of
bubblewrap with another user id, because only a process of the same user can be made to end with the host.

Every folder that the script can write to is in memory, has a limited size, and exists only in the sandbox's mount
namespace. The host reads them through descriptors after every process has ended, and they vanish when the last
descriptor closes. So there is nothing to clean up, even if the host is killed: the kernel ends the first process with
the host, all others with the first, and the mounts with them.

The invariant: every protection is verified before the first instruction of a script runs.
"""

import functools
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

from metier.files.tree import SkillTree
from metier.limits import KIB
from metier.running.sandbox import SKILL_DIR, Ended, Job, OnOutput, Outcome, SandboxUnavailable, seccomp
from metier.running.sandbox.base import close_pipes, outcome, prepare, supervise
from metier.running.sandbox.cgroup import Group, a_group
from metier.running.sandbox.changes import ProjectChanges, bring_back
from metier.running.sandbox.collect import made_in
from metier.running.sandbox.evidence import BuiltSandbox
from metier.running.sandbox.interpreter import Program, own_program, own_python
from metier.running.sandbox.mounts import (
    ENTRIES_FACTOR,
    INIT,
    LAYER,
    Identity,
    an_identity,
    given_files,
    view,
    writable_places,
)

if TYPE_CHECKING:
    from metier.running.sandbox.proxy import HostProxy, Resolver

START_SECONDS: Final = 20.0
"""How long building a sandbox may take on a machine under load. It usually takes a few milliseconds."""

OPEN_FILES: Final = 256
NICENESS: Final = 5
"""Scripts yield to the host, which must notice in time when they use too much."""
_READY: Final = b"ready\n"
_NAMESPACES_HINT: Final = "allow this process to create namespaces; containers and some distributions forbid it"
_SETPRIV: Final = "/usr/bin/setpriv"
_UNSHARE: Final = "/usr/bin/unshare"

# The units are the same in every sh: -f counts blocks of 512 bytes, -v counts blocks of 1024. The shell's own messages,
# such as "Killed", are not part of the script's output.
_SHELL: Final = """
ulimit -c 0 && ulimit -n "$1" && ulimit -t "$2" && ulimit -f "$3" && ulimit -v "$4" || exit 125
ulimit -u "$5" 2>/dev/null || ulimit -p "$5" || exit 125
folder=$6
shift 6
echo ready
read -r go && [ "$go" = go ] || exit 125
cd "$folder" || exit 125
exec 3>&2 2>/dev/null
"$@" 2>&3 3>&-
exit $?
"""


class BubblewrapRunner:
    """The default runner. `bwrap` is the path of the program if it is not on PATH.

    `resolver` finds the addresses of the hosts that a job lists. By default, the system is asked.
    """

    name = "bubblewrap"

    def __init__(self, bwrap: str | None = None, resolver: "Resolver | None" = None) -> None:
        self._bwrap = bwrap or shutil.which("bwrap")
        self._resolver = resolver

    def problem(self) -> str | None:
        if not sys.platform.startswith("linux"):
            return "it needs Linux"
        if seccomp.machine() is None:
            return f"there is no system call filter for {os.uname().machine}"
        if self._bwrap is None:
            return "bwrap is not installed"
        found = _try_out(self._bwrap, os.geteuid())
        return found.message if found is not None else None

    def remedy(self) -> str:
        found = _try_out(self._bwrap, os.geteuid()) if self._bwrap is not None else None
        return (found.install if found is not None else "") or install_hint()

    def _proxy(self, job: Job, first: int) -> "AbstractContextManager[HostProxy | None]":
        if not job.hosts:
            return nullcontext()
        from metier.running.sandbox.proxy import a_proxy  # with asyncio, which takes time to import

        return a_proxy(job, first, self._resolver)

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        if self._bwrap is None or seccomp.machine() is None:
            raise SandboxUnavailable(f"bubblewrap cannot be used: {self.problem()}", install=install_hint())
        tree, program = prepare(job)
        command = [program.called, *program.flags, f"{SKILL_DIR}/{job.script}", *job.argv]
        started, since = time.monotonic(), time.time_ns()
        with (
            _built(self._bwrap, job, tree, program, command) as sandbox,
            self._proxy(job, sandbox.first) as proxy,
        ):
            protections = sandbox.protections()
            _go(sandbox)
            ended, output = supervise(
                sandbox.process,
                job,
                end=sandbox.end,
                checks=sandbox.checks(),
                on_output=on_output,
                protections=protections,
                proxy=proxy,
            )
            if ended == "exit" and sandbox.group is not None and sandbox.group.ran_out():
                ended = "memory-limit"
            return outcome(
                job,
                ended,
                output,
                code=sandbox.process.returncode,
                started=started,
                work=sandbox.writable[0],
                protections=protections,
                notes=[_NO_LAYER] if job.cwd is not None and sandbox.layer is None else (),
                changes=_changes(sandbox, ended, since),
                attempts_left_out=proxy.left_out if proxy is not None else 0,
            )


_NO_LAYER: Final = (
    "this system can show the current folder only read-only; a script can write to WORK_DIR, or to its current folder "
    'with run.folder = "none"'
)


def _changes(sandbox: BuiltSandbox, ended: Ended, since: int) -> ProjectChanges | None:
    """Apply what the script wrote to the project. The work of a script that was ended is only half done."""
    job = sandbox.job
    if sandbox.layer is None or job.project is None:
        return None
    if not job.project_writable:
        return made_in(sandbox.layer, job.project, job.limits, given_files(job))
    if ended != "exit":
        return ProjectChanges(refused=[".: the script did not end by itself, so none of its changes was applied"])
    project = os.open(job.project, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        most = job.limits.files * ENTRIES_FACTOR
        given = given_files(job) if job.cwd is not None else {}
        return bring_back(
            sandbox.layer,
            project,
            named=job.project_named,
            since_ns=since,
            most=most,
            kept=job.limits.files,
            given=given,
        )
    finally:
        os.close(project)


@contextmanager
def _built(
    bwrap: str,
    job: Job,
    tree: SkillTree | None,
    program: Program | None,
    command: Sequence[str],
) -> Generator[BuiltSandbox]:
    """Build a sandbox that waits to start a command. When the context ends, nothing of the sandbox is left."""
    machine = seccomp.machine()
    assert machine is not None
    with ExitStack() as stack:
        identity = stack.enter_context(an_identity())
        shown = view(job, tree, program, identity)
        given = {placeholder: _in_memory(stack, data) for placeholder, data in shown.files.items()}
        rules = _in_memory(stack, seccomp.program(machine, network=job.network, proxy=bool(job.hosts)))
        group = stack.enter_context(a_group(job.limits.memory_bytes, job.limits.processes))
        try:
            words = [str(given[word]) if word in given else word for word in shown.arguments]
            words += ["--seccomp", str(rules)]
            arguments = _in_memory(stack, b"".join(os.fsencode(word) + b"\0" for word in words))
            passed = [*given.values(), rules, arguments]
            line = [bwrap, "--args", str(arguments), "--", *_become(identity), *_limited(job, program), *command]
            if shown.stage:
                steps = (str(given[word]) if word in given else word for word in shown.stage)
                code = _in_memory(stack, own_program("stage.py").encode())
                line = [own_python(), "-I", "-S", f"/proc/self/fd/{code}", *steps, "--", *line]
                passed.append(code)
            process = subprocess.Popen(  # noqa: S603
                [*_tied(identity), *line],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                pass_fds=passed,
                process_group=0,
                bufsize=0,
            )
        except OSError as error:
            raise SandboxUnavailable(f"bubblewrap could not be started: {error.strerror}") from error
        stack.callback(_reap, process)
        _await_ready(process)
        yield _open_handles(stack, process, job, program, identity, group)


def _go(sandbox: BuiltSandbox) -> None:
    """Let the shell start what it is for."""
    assert sandbox.process.stdin
    with suppress(BrokenPipeError):
        sandbox.process.stdin.write(b"go\n")


def _in_memory(stack: ExitStack, data: bytes) -> int:
    """Return a descriptor from which a child can read the data. There is no file on disk."""
    descriptor = os.memfd_create("metier")
    stack.callback(os.close, descriptor)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _tied(identity: Identity) -> list[str]:
    """The command before bubblewrap that ends everything with the host.

    bubblewrap ends with the process that started it. If it ends between two steps of its own, it leaves a child that
    waits for ever. So it is the first process of a namespace, and the kernel ends all others with it. The namespace has
    a /proc of its own, because bubblewrap looks up its child there, and in a container nobody else has that number.
    """
    users = [] if identity.switch else ["--user", "--map-current-user"]
    namespace = ["--pid", "--mount-proc", "--fork", "--kill-child=KILL"]
    return [_SETPRIV, "--pdeathsig", "KILL", "--", _UNSHARE, *users, *namespace, "--"]


def _become(identity: Identity) -> list[str]:
    if not identity.switch:
        return []
    uid = str(identity.uid)
    drop = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]
    return [_SETPRIV, "--reuid", uid, "--regid", uid, "--clear-groups", *drop, "--"]


def _limited(job: Job, program: Program | None) -> list[str]:
    limits = job.limits
    addresses = limits.memory_bytes + (program.address_reserve if program else 0)
    numbers = (OPEN_FILES, int(limits.seconds) + 1, limits.file_bytes // 512, addresses // 1024, limits.processes)
    # The shell goes to the current folder, because bubblewrap may not enter what only its owner can.
    current = os.path.realpath(job.cwd) if job.cwd is not None and program is not None else "."
    return [INIT, "-c", _SHELL, "sh", *(str(number) for number in numbers), current]


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
    stack: ExitStack,
    process: subprocess.Popen[bytes],
    job: Job,
    program: Program | None,
    identity: Identity,
    group: Group | None,
) -> BuiltSandbox:
    """Open and verify what the host needs of the sandbox, while only our own shell runs in it."""

    def folder(path: str) -> int:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, descriptor)
        return descriptor

    try:
        outer = _only_child(process.pid)
        pid = _only_child(outer)
        ending = os.pidfd_open(pid)
        stack.callback(os.close, ending)
        root = f"/proc/{pid}/root"
        writable = [folder(root + place) for place in writable_places(job)]
        proc = folder(f"{root}/proc")
        layer = None
        if program is not None and (job.project_writable or job.cwd is not None):
            with nullcontext() if job.project_writable else suppress(FileNotFoundError):
                layer = folder(f"/proc/{outer}/root{LAYER}")
        if layer is not None:
            writable.append(layer)
        shell = _only_child(pid) if identity.switch else pid
        # An ordinary user cannot raise a priority again, so a host that was started with a low one keeps it.
        os.setpriority(os.PRIO_PROCESS, shell, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
        if group is not None:
            group.add(shell)
        sandbox = BuiltSandbox(
            process=process,
            first=pid,
            ending=ending,
            shell=shell,
            proc=proc,
            writable=tuple(writable),
            layer=layer,
            job=job,
            program=program,
            identity=identity,
            group=group,
        )
        gaps = sandbox.gaps()
        if identity.switch and not gaps:  # otherwise it may be a folder of the host
            os.fchown(writable[0], identity.uid, identity.uid)
    except (OSError, ValueError) as error:
        raise SandboxUnavailable(f"the sandbox cannot be reached from outside: {error}") from error
    if gaps:
        raise SandboxUnavailable("the sandbox lacks protections", tried=gaps)
    return sandbox


def _only_child(pid: int) -> int:
    """The host's pid of the one process that a process has started."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        (child,) = file.read().split()
    return int(child)


def _reap(process: subprocess.Popen[bytes]) -> None:
    """End the outer process on every exit path. All other processes end with it, because it is their parent."""
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()
    close_pipes(process)


@functools.cache
def _try_out(bwrap: str, uid: int) -> SandboxUnavailable | None:
    """Build a sandbox and run nothing in it. The answer is cached for this process and user."""
    for program in (_SETPRIV, _UNSHARE):
        if not os.access(program, os.X_OK):
            return SandboxUnavailable(f"{program} is missing; it is part of util-linux")
    try:
        known = subprocess.run([bwrap, "--help"], capture_output=True, env={}, check=False, timeout=10)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return SandboxUnavailable(f"{bwrap} cannot be run: {error}")
    if b"--size" not in known.stdout + known.stderr:
        return SandboxUnavailable("bwrap is too old; version 0.7 or later is needed")
    try:
        with _built(bwrap, Job("/", ""), None, None, ["/bin/true"]) as sandbox:
            _go(sandbox)
            status = sandbox.process.wait(START_SECONDS)
    except SandboxUnavailable as error:
        gaps = f": {'; '.join(error.tried)}" if error.tried else ""
        return SandboxUnavailable(error.message + gaps, install=error.install)
    except subprocess.TimeoutExpired:
        return SandboxUnavailable("a sandbox does not end")
    return None if status == 0 else SandboxUnavailable(f"the sandbox exits with status {status}")


def install_hint() -> str:
    """Return the command that installs bubblewrap on this system, or an empty string if there is none."""
    if not sys.platform.startswith("linux"):
        return ""
    try:
        with open("/etc/os-release", encoding="utf-8", errors="replace") as file:
            release = file.read(16 * KIB)
    except OSError:
        release = ""
    family = " ".join(re.findall(r'^ID(?:_LIKE)?="?([^"\n]*)', release, re.MULTILINE))
    for word, line in _INSTALL.items():
        if word in family:
            return line
    return "install bubblewrap with the package manager of the system"


_INSTALL: Final = {
    "debian": "apt-get install bubblewrap",
    "ubuntu": "apt-get install bubblewrap",
    "fedora": "dnf install bubblewrap",
    "rhel": "dnf install bubblewrap",
    "suse": "zypper install bubblewrap",
    "arch": "pacman -S bubblewrap",
    "alpine": "apk add bubblewrap util-linux-misc",
}
