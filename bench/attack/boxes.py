"""Helpers for the tests of runners: a folder for scripts, the users that launch them, and what must stay unchanged."""

import contextlib
import hashlib
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

from metier.running.packages import Environment
from metier.running.packages.interpreters import choose
from metier.running.sandbox import Job, Outcome, RunLimits, Runner, seccomp
from metier.running.sandbox.interpreter import usual_python
from patience import PATIENCE

T = TypeVar("T")
NOBODY = 65534
IS_ROOT = os.geteuid() == 0
MARK = "METIER_TEST_MARK"

IDENTITIES = ["root", "nobody"] if IS_ROOT else ["self"]
"""The users that launch the sandbox. Root and other users behave differently, so both are tested."""


def as_user(identity: str, work: Callable[[], T]) -> T:
    """Call a function as a user. For `nobody`, it runs in a child process that returns its result or exception."""
    if identity != "nobody":
        return work()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork with threads is deprecated; the child only starts a sandbox
        child = os.fork()
    if child == 0:
        os.close(read)
        answer: tuple[bool, object] = (False, None)
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            answer = (True, work())
        except BaseException as error:
            answer = (False, (type(error), error.args, vars(error)))  # not every exception can be built from its args
        with contextlib.suppress(BaseException), os.fdopen(write, "wb") as file:
            pickle.dump(answer, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    good, value = pickle.loads(data)
    if good:
        return value
    kind, arguments, data = value
    error = kind.__new__(kind)
    error.args = arguments
    vars(error).update(data)
    raise error


class JobOptions(TypedDict, total=False):
    """The options of a `Job`."""

    stdin: bytes
    env: Mapping[str, str]
    network: bool
    project: str | None
    project_writable: bool
    project_named: Sequence[str]
    cwd: str | None
    files: Mapping[str, bytes]
    packages: Environment | None
    limits: RunLimits
    on_started: Callable[[tuple[str, ...]], None]
    stop: threading.Event


def mounts(folder: Path) -> list[str]:
    """Where something is mounted, in a folder or where containers of other tests, and of the machine, do not come."""
    places = sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    others = ("/tmp/", "/run/", "/var/lib/")
    return [place for place in places if place.startswith(str(folder)) or not place.startswith(others)]


@dataclass
class Box:
    """A folder that every user can access, with a skill, a project and files that a script must not reach."""

    base: Path
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        for name in ("skill/scripts", "other-skill", "home/.ssh", "project/.git"):
            (self.base / name).mkdir(parents=True)
        self.skill, self.project = self.base / "skill", self.base / "project"
        self.secret = self.base / "secret.txt"
        for path in ("secret.txt", "other-skill/SKILL.md", "home/.ssh/id", "project/notes.txt", "skill/SKILL.md"):
            (self.base / path).write_text(f"{path} {self.token}\n")
        (self.skill / "link").symlink_to(self.secret)
        (self.skill / "link-folder").symlink_to(self.base / "home")
        (self.skill / "data.txt").write_text("as shipped\n")
        for path in (self.base, *self.base.rglob("*")):
            if not path.is_symlink():  # every user may do everything, so that only a sandbox can prevent it
                path.chmod(0o777 if path.is_dir() else 0o666)

    def environment(self) -> Environment:
        """Packages that a script may import. Every user could change them, so that only a sandbox can prevent it."""
        folder = self.base / "packages"
        if not folder.exists():
            folder.mkdir()
            (folder / "tiny.py").write_text("ANSWER = 42\n")
            folder.chmod(0o777)
            (folder / "tiny.py").chmod(0o666)
        python = choose(usual_python(), "")
        return Environment("python", str(folder), python.path, python.short)

    def script(self, name: str, text: str, mode: int = 0o755) -> str:
        path = self.skill / "scripts" / name
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        path.chmod(mode)
        return f"scripts/{name}"

    def job(self, script: str, *argv: str, **options: Unpack[JobOptions]) -> Job:
        options["env"] = {MARK: self.token, **options.get("env", {})}
        return Job(str(self.skill), script, argv, **options)

    def run(
        self,
        runner: Runner,
        identity: str,
        text: str,
        *argv: str,
        name: str = "run.py",
        **options: Unpack[JobOptions],
    ) -> Outcome:
        job = self.job(self.script(name, text), *argv, **options)
        return as_user(identity, lambda: runner.run(job))

    def fingerprint(self) -> dict[str, str]:
        """The content, mode and owner of everything in the folder except the scripts."""
        found: dict[str, str] = {}
        for path in sorted(self.base.rglob("*")):
            if path.is_relative_to(self.skill / "scripts"):
                continue
            status = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
            found[str(path)] = f"{status.st_mode:o} {status.st_uid} {content}"
        return found

    def survivors(self) -> list[int]:
        """The processes of this box's scripts that are still running."""
        wanted = f"{MARK}={self.token}".encode()
        found: list[int] = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    if wanted in Path(f"/proc/{entry}/environ").read_bytes():
                        found.append(int(entry))
        return found


def settled(look: Callable[[], T], wanted: T, seconds: float = PATIENCE) -> T:
    """Call `look` until it returns the wanted value or the time is over, and return its last value."""
    deadline = time.monotonic() + seconds
    while (seen := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return seen


@dataclass
class Case:
    """A runner, the user that uses it, and a box for its scripts."""

    runner: Runner
    identity: str
    box: Box

    def run(self, text: str, *argv: str, name: str = "run.py", **options: Unpack[JobOptions]) -> Outcome:
        return self.box.run(self.runner, self.identity, text, *argv, name=name, **options)


@contextlib.contextmanager
def a_box(token: str = "") -> Generator[Box]:
    # Not the folder of pytest, which only its owner can access.
    base = tempfile.mkdtemp(prefix="metier-test-")
    os.chmod(base, 0o755)
    try:
        yield Box(Path(base).resolve(), token or uuid.uuid4().hex)
    finally:
        shutil.rmtree(base, ignore_errors=True)


@dataclass
class Listeners:
    """Services of the host that a script must not reach."""

    tcp: socket.socket
    tcp6: socket.socket | None
    udp: socket.socket
    unix: socket.socket
    abstract: socket.socket
    abstract_name: str

    def heard(self) -> list[str]:
        """The services that were reached since the last call."""
        found: list[str] = []
        for name in ("tcp", "tcp6", "unix", "abstract"):
            listener: socket.socket | None = getattr(self, name)
            with contextlib.suppress(OSError):
                if listener is not None:
                    listener.accept()[0].close()
                    found.append(name)
        with contextlib.suppress(OSError):
            self.udp.recv(100)
            found.append("udp")
        return found


@contextlib.contextmanager
def listeners(box: Box) -> Generator[Listeners]:
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        tcp6 = None
        with contextlib.suppress(OSError):
            tcp6 = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(box.base / "service.sock"))
        os.chmod(box.base / "service.sock", 0o777)
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0metier-{box.token}")
        for one in (unix, abstract):
            one.listen()
        for one in (tcp, tcp6, udp, unix, abstract):
            if one is not None:
                one.setblocking(False)
        yield Listeners(tcp, tcp6, udp, unix, abstract, f"metier-{box.token}")


@contextlib.contextmanager
def a_victim(token: str) -> Generator[subprocess.Popen[bytes]]:
    """A process of the launcher's user on the host, with a secret in its environment and its arguments."""
    code = "import sys, time; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code, token], env={"VICTIM": token})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


_NUMBERS = {
    "x86_64": {"clone": 56, "clone3": 435, "ioctl": 16, "socket": 41},
    "aarch64": {"clone": 220, "clone3": 435, "ioctl": 29, "socket": 198},
}
"""The system calls that attempts make besides those that the filter refuses."""


def knowledge(box: Box, heard: Listeners, victim: int) -> str:
    """Everything that an attacker could want to know about the host."""
    machine = seccomp.machine()
    assert machine is not None
    return json.dumps(
        {
            "token": box.token,
            "base": str(box.base),
            "secret": str(box.secret),
            "home": str(box.base / "home"),
            "project": str(box.project),
            "host": os.getpid(),
            "victim": victim,
            "tcp": heard.tcp.getsockname()[1],
            "tcp6": heard.tcp6.getsockname()[1] if heard.tcp6 else 0,
            "udp": heard.udp.getsockname()[1],
            "abstract": heard.abstract_name,
            "nr": {**seccomp.denied(machine), **_NUMBERS[machine]},
        }
    )
