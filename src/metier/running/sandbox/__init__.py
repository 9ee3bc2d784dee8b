"""Running the scripts of a skill: the values that go in and come out, and the `Runner` protocol.

A `Job` names the script and everything that it is granted; nothing else is granted. An `Outcome` reports what happened
and which protections were in force. The invariant: a sandbox fails closed. A run that cannot be protected as promised
raises `SandboxUnavailable` and starts nothing, and `runners.choose` never falls back to one without a sandbox.

There is no Landlock runner because Landlock cannot keep these promises. It does not restrict UDP, or `stat` and `chmod`
of any path. It cannot limit the size of a folder. Without a process namespace, a script that forks twice survives its
run when the host is killed.
"""

import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from metier.errors import SandboxUnavailable as SandboxUnavailable
from metier.errors import ScriptRefused as ScriptRefused
from metier.files.tree import SkillTree
from metier.limits import MIB
from metier.running.packages import Environment
from metier.values.results import ChangedFile

Stream = Literal["stdout", "stderr"]

OnOutput = Callable[[Stream, bytes], None]
"""Called with each piece of output as it arrives. The script waits while it works. If it raises, the run ends."""

Ended = Literal["exit", "timeout", "killed", "output-limit", "memory-limit", "files-limit"]
"""How a run ended: `exit` by itself (also by a signal), at a limit, or `killed` because the caller cancelled it."""

SKILL_DIR: Final = "/skill"
WORK_DIR: Final = "/work"
PROJECT_DIR: Final = "/project"
PACKAGES_DIR: Final = "/opt/packages"
"""Where a sandboxed script finds its skill, its work folder and its packages, and a link to the folder of the user that
it is shown. That folder itself has the path that it has on the host. The variables SKILL_DIR, WORK_DIR and PROJECT_DIR
hold the paths, and every runner sets them. A runner may choose other places."""

_STOP: Final[ContextVar[threading.Event | None]] = ContextVar("stop", default=None)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What one run may use. Each limit applies to the whole process tree unless it says otherwise."""

    seconds: float = 60.0
    memory_bytes: int = 1024 * MIB
    """The address space of each process. Also the memory that all processes and their writable folders use together: a
    control group enforces it where one can be created, and elsewhere a run that uses more is ended."""
    processes: int = 64
    """Processes and threads at a time, including those of the interpreter."""
    output_bytes: int = MIB
    """Standard output and standard error together. One byte more ends the run."""
    file_bytes: int = 64 * MIB
    """The largest single file."""
    work_bytes: int = 128 * MIB
    """The size of the work folder. The folder for temporary files may have the same size again."""
    files: int = 1000
    """Files that are collected from the work folder. Twenty times as many files and folders end the run."""


DEFAULT_LIMITS: Final = RunLimits()


@dataclass(frozen=True, slots=True)
class Job:
    """One script to run, with everything it is granted. It can reach nothing else."""

    skill_dir: str
    script: str
    """The path relative to the skill's folder, with `/` as the separator."""
    argv: Sequence[str] = ()
    """The arguments of the script. They are passed one by one, without a shell."""
    stdin: bytes | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str], hash=False, repr=False)
    """Variables for the script besides the fixed ones, with its secrets. The caller has applied its allow-list."""
    network: bool = False
    """Share the host's network, including loopback. Without it, network sockets cannot be created."""
    hosts: Sequence[str] = ()
    """The only hosts that the script may connect to, through a proxy, as `metier.values.network` reads them. One that
    begins with `!` is refused, even if another covers it."""
    private_hosts: bool = False
    """Let the names in `hosts` have addresses that are not on the public internet."""
    project: str | None = None
    """A folder of the user that the script can read, at the path that it has on the host."""
    project_writable: bool = False
    """Let the script write to the project. A sandbox applies its changes after the run: new files of data formats, and
    the plain files that are named."""
    project_named: Sequence[str] = ()
    """Globs of files in a writable project that the script may also add, change or delete; see `metier.files.globs`."""
    cwd: str | None = None
    """The current folder of the script: the project, or a folder in it. Without one, it is the work folder. With one,
    the script can write to the project in any case, but only in memory: unless `project_writable` is set, its new files
    are collected like those of the work folder, and everything else that it changed is listed in `refused`."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes], hash=False, repr=False)
    """Files that are put into the current folder, by name. A copy of an existing name hides it. They are collected only
    if the script changes them."""
    limits: RunLimits = DEFAULT_LIMITS
    tree: SkillTree | None = field(default=None, repr=False, compare=False)
    """The files of the skill as they were approved. A script sees these and not the folder. Without a tree, a runner
    takes the folder as it is."""
    packages: Environment | None = None
    """Packages that the script may import, in a folder that it cannot write to, and the interpreter they are for."""
    on_started: Callable[[tuple[str, ...]], None] | None = field(default=None, hash=False, compare=False)
    """Called by `started`."""
    on_attempt: "Callable[[HostAttempt], None] | None" = field(default=None, hash=False, compare=False)
    """Called with each attempt to connect to a host, in the thread that calls `on_started`."""
    stop: threading.Event | None = field(default=None, hash=False, compare=False)
    """Ends the script when it is set. The outcome is then `killed`."""

    def started(self, protections: tuple[str, ...]) -> None:
        """Report that the script starts, and which protections are in force. Every runner calls this once per run."""
        if self.on_started is not None:
            self.on_started(protections)

    def __post_init__(self) -> None:
        object.__setattr__(self, "argv", tuple(self.argv))
        object.__setattr__(self, "project_named", tuple(self.project_named))
        object.__setattr__(self, "hosts", tuple(self.hosts))
        if self.hosts:
            from metier.values.network import HostList

            HostList.parse(self.hosts)
            if self.network:
                raise ValueError("hosts cannot limit a network that is shared as a whole")
        words = (self.skill_dir, self.script, self.project or "", self.cwd or "", *self.files, *self.argv)
        for text in (*words, *self.env.values()):
            if "\0" in text:
                raise ValueError("a path, argument or variable of a job contains a NUL byte")
        for name in self.env:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid variable name")
        if self.project_writable and self.project is None:
            raise ValueError("project_writable needs a project")
        if self.cwd is not None and not (self.project and is_within(self.cwd, self.project)):
            raise ValueError("cwd must be the project or a folder in it")
        for name in self.files:
            if not name or "/" in name or name in (".", ".."):
                raise ValueError(f"{name!r} is not the name of a file")


def is_within(path: str, folder: str) -> bool:
    """Whether an absolute path is a folder or lies in it, by its text."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


@dataclass(frozen=True, slots=True)
class HostAttempt:
    """An attempt of a script to connect to a host. `reason` is a stable word, empty if the connection was made.

    Refused: `not-listed`, `denied` by a rule, `private-address`, `other-host` in TLS than in the request, `not-tls`,
    and `bad-request`, which has no host. Allowed, but not made: `unresolved` and `unreachable`.
    """

    host: str
    port: int
    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A regular file that the script made, in the work folder or the current one."""

    path: str
    size: int
    digest: str
    """`sha256:` and the hexadecimal digits."""
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened in one run. All limits have been applied."""

    exit_code: int
    """As a shell reports it: 128 plus the signal number if a signal ended the script."""
    ended: Ended
    duration_ms: int
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_total: int = 0
    stderr_total: int = 0
    """Bytes that were read. They exceed what was kept only if the run ended at the output limit."""
    files: tuple[WrittenFile, ...] = ()
    """Sorted by path. Only regular files are included, never links or devices."""
    left_out: tuple[str, ...] = ()
    """Entries of these folders that are not in `files`, each with the reason. Long lists are cut."""
    protections: tuple[str, ...] = ()
    """The protections that were verified for this run. Empty for a run without a sandbox."""
    notes: tuple[str, ...] = ()
    """Remarks for the reader of the result, such as dependencies of the script that are not installed."""
    changes: tuple[ChangedFile, ...] = ()
    """The files of a writable project that were added, changed or deleted."""
    refused: tuple[str, ...] = ()
    """Changes to the project that were not applied, each with the reason. Long lists are cut."""
    attempts_left_out: int = 0
    """How many attempts to connect to a host were not passed to `on_attempt`, because there were too many."""


def stop_event() -> threading.Event | None:
    """The event that ends a script which the current thread or task starts, as part of work that somebody may end.

    A run takes it into its job. Without one, a script runs to its end.
    """
    return _STOP.get()


@contextmanager
def stopped_by(stop: threading.Event) -> Generator[None]:
    """End the scripts that are started in this context, also in a thread of `asyncio.to_thread`, when `stop` is set."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)


class Runner(Protocol):
    """Runs the scripts of a session. This protocol is all that an implementation needs; there is no base class.

    Threads: `problem` and `run` are called from any thread, several at a time. A caller in an event loop calls `run` in
    a thread, and sets `job.stop` when its task is cancelled.

    Starting: call `job.started(protections)` once per run, when the script is about to start and before any output is
    passed on. `protections` names only what was verified for this run; it is empty if nothing was.

    Output: pass each piece to `on_output` as it arrives, in order for each stream, and never more than
    `job.limits.output_bytes` for both streams together. Call `on_output` and `job.started` in the thread that called
    `run`.

    Hosts: where `job.hosts` lists any, the script can connect to these and to nothing else. A runner that cannot
    promise that raises `SandboxUnavailable`. Call `job.on_attempt` with each attempt, until there are too many.

    Returning: a script that fails, is stopped or reaches a limit is an `Outcome`, not an exception. Return it when the
    script and every process it started have ended, and leave nothing behind: no process, no mount, no folder.

    Raising: two errors say that nothing was started. `ScriptRefused`: this file cannot be run (a wrapper also uses it
    for a run that it refuses as `busy`). `SandboxUnavailable`: the run cannot be protected as promised. What
    `on_output` or `job.started` raises ends the script and reaches the caller. Raise nothing else.
    """

    @property
    def name(self) -> str:
        """The name in the record, and in the settings that choose a runner."""
        ...

    def problem(self) -> str | None:
        """Why this runner cannot be used on this machine, in one sentence, or `None` if it can.

        It is called often, also to decide whether a model is offered the tool for scripts. An implementation tries for
        real and caches the answer. It never raises.
        """
        ...

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        """Run a job in the calling thread, and return when it has ended, or has been ended because of `job.stop`."""
        ...
