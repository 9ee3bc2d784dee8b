"""Running a skill's script: the values that go in and come out, and the protocol of whoever runs it.

A `Job` says what to run and what is granted; everything that it does not grant is withheld. An `Outcome` says what
happened and which protections were really in force. The invariant is that a sandbox fails closed: a run that cannot be
protected as promised raises `SandboxUnavailable` and starts nothing; `choose` never falls back to running unprotected.

There is no Landlock runner, because Landlock does not hold these promises: it leaves UDP, `stat` and `chmod` of any
path alone, cannot bound the size of a folder, and without a process namespace a script that forks twice outlives its
run when the host is killed. Where bubblewrap is missing, a run is refused and the error says how to install it.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, Protocol

from metier.errors import SandboxUnavailable, ScriptRefused
from metier.limits import KIB, MIB

Stream = Literal["stdout", "stderr"]

OnOutput = Callable[[Stream, bytes], None]
"""Called with each piece of output as it comes. While it works, the script waits; if it raises, the run ends."""

Ended = Literal["exit", "timeout", "killed", "output-limit", "memory-limit", "files-limit"]
"""How a run ended: by itself (also by a signal of its own), at a limit, or `killed` because the caller gave up."""

SKILL_DIR: Final = "/skill"
WORK_DIR: Final = "/work"
PROJECT_DIR: Final = "/project"
"""Where a sandboxed script finds its skill, its folder to write to, and the project if that was granted. The same
paths are in the variables SKILL_DIR, WORK_DIR and PROJECT_DIR, which hold with every runner."""

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What one run may use. Every figure holds for the whole tree of processes, except where it says otherwise."""

    seconds: float = 60.0
    memory_bytes: int = 1024 * MIB
    """Address space of each process, and memory really used by all of them together."""
    processes: int = 64
    """Processes and threads at a time, the interpreter's own included."""
    output_bytes: int = MIB
    """Standard output and standard error together; one byte more ends the run."""
    file_bytes: int = 64 * MIB
    """The largest single file."""
    work_bytes: int = 128 * MIB
    """The work folder; the folder for temporary files has the same size once more."""
    files: int = 1000
    """Files and folders in the work folder that are handed back; twenty times as many end the run."""


DEFAULT_LIMITS: Final = RunLimits()
NO_ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Job:
    """One script to run, with everything it is granted. What is not named here is out of its reach."""

    skill_dir: str
    script: str
    """Relative to the skill's folder, with `/` between its parts."""
    argv: Sequence[str] = ()
    """The arguments behind the script, passed one by one; no shell sees them."""
    stdin: bytes | None = None
    env: Mapping[str, str] = field(default_factory=lambda: NO_ENVIRONMENT, hash=False)
    """The variables the script gets besides the fixed ones; the caller has already applied its allow-list."""
    network: bool = False
    """Share the host's network, its loopback included. Without it there is not even a socket for it."""
    project: str | None = None
    project_writable: bool = False
    project_protected: Sequence[str] = ()
    """Paths in the project that stay read-only in a writable one, where they exist: settings, skills, hooks."""
    limits: RunLimits = DEFAULT_LIMITS
    on_started: Callable[[tuple[str, ...]], None] | None = field(default=None, hash=False, compare=False)
    """Called once, with the protections that were seen in force, before any output is passed on."""

    def started(self, protections: tuple[str, ...]) -> None:
        if self.on_started is not None:
            self.on_started(protections)

    def __post_init__(self) -> None:
        object.__setattr__(self, "argv", tuple(self.argv))
        object.__setattr__(self, "project_protected", tuple(self.project_protected))
        for text in (self.skill_dir, self.script, self.project or "", *self.argv, *self.env.values()):
            if "\0" in text:
                raise ValueError("no path, argument or variable of a job may contain a NUL byte")
        for name in self.env:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a variable")
        if self.project_writable and self.project is None:
            raise ValueError("project_writable without a project")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A regular file that the script left in the work folder."""

    path: str
    size: int
    sha256: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened, with everything that was kept of it; all limits have been applied."""

    exit_code: int
    """As a shell reports it: 128 and the number of the signal where one ended the script."""
    ended: Ended
    duration_ms: int
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_total: int = 0
    stderr_total: int = 0
    """Bytes that were read. More than was kept only where the run ended at the output limit."""
    files: tuple[WrittenFile, ...] = ()
    """Sorted by path. Links, devices and everything else that is no regular file are never among them."""
    left_out: tuple[str, ...] = ()
    """What lay in the work folder and is not in `files`, each with the reason; cut after a few."""
    protections: tuple[str, ...] = ()
    """What was checked to be in force for this very run; empty for a run without a sandbox."""
    notes: tuple[str, ...] = ()
    """What a reader of the result should know, such as dependencies of the script that are not installed."""


class Runner(Protocol):
    """Runs one job at a time, any number of them from different threads at once.

    The contract, which one suite of tests holds every implementation to:

    - `run` returns when the script and everything it started has ended, and not before; nothing of it is left, neither
      processes nor mounts nor folders, whether it ended well, badly, at a limit or because the host was killed.
    - A script that fails is an `Outcome`, not an exception. What cannot be run raises `ScriptRefused`; what cannot be
      protected raises `SandboxUnavailable`; in both cases nothing was started.
    - `on_output` gets the pieces in order for each stream, together never more than `output_bytes`; whatever it raises
      ends the run and reaches the caller.
    - `arun` is `run` for asyncio: it calls `on_output` in the event loop's thread, and cancelling it ends the script
      before the cancellation is passed on.
    """

    @property
    def name(self) -> str:
        """What `choose` and a policy call it."""
        ...

    def problem(self) -> str | None:
        """Why it cannot be used on this machine, in one sentence; nothing if it can. Really tries, once."""
        ...

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome: ...

    async def arun(self, job: Job, on_output: OnOutput | None = None) -> Outcome: ...


SANDBOXES: Final = ("bubblewrap", "seatbelt")
"""What `choose` considers unless it is told otherwise, best first. Running without a sandbox is not among them."""


def choose(names: Sequence[str] | None = None) -> Runner:
    """The first runner of the names that works here. `none`, no sandbox at all, is only ever chosen by that name."""
    tried: list[str] = []
    for name in SANDBOXES if names is None else names:
        runner = _make(name)
        reason = runner.problem()
        if reason is None:
            return runner
        tried.append(f"{name}: {reason}")
    raise SandboxUnavailable("no sandbox works on this machine", install=_remedy(tried), tried=tried)


def _make(name: str) -> Runner:
    # Imported here, so that one platform never loads the other's runner and `import metier` loads none.
    if name == "bubblewrap":
        from metier.sandbox.bubblewrap import BubblewrapRunner

        return BubblewrapRunner()
    if name == "seatbelt":
        from metier.sandbox.seatbelt import SeatbeltRunner

        return SeatbeltRunner()
    if name == "none":
        from metier.sandbox.unsandboxed import UnsandboxedRunner

        return UnsandboxedRunner()
    raise ValueError(f"no runner is called {name!r}; there are {', '.join(SANDBOXES)} and none")


def _remedy(tried: Sequence[str]) -> str:
    """What would help: to install something, or to permit what is installed."""
    if any("could not be built" in why for why in tried):
        return "allow this process to create namespaces; containers and some distributions forbid it"
    return install_hint()


def install_hint() -> str:
    """The line that installs a sandbox on this kind of machine."""
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

__all__ = [
    "DEFAULT_LIMITS",
    "PROJECT_DIR",
    "SANDBOXES",
    "SKILL_DIR",
    "WORK_DIR",
    "Ended",
    "Job",
    "OnOutput",
    "Outcome",
    "RunLimits",
    "Runner",
    "SandboxUnavailable",
    "ScriptRefused",
    "Stream",
    "WrittenFile",
    "choose",
    "install_hint",
]
