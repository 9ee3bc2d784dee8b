"""Container engines for tests: Podman and Docker, each with a storage and a socket of its own, and an image.

No registry is asked. The image is made of files of this host: the Python that runs the tests, its standard library, a
shell and a few programs. The processes of a test run share one engine of each kind: the first that needs it starts it,
and the last one ends it.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import parts
from metier.files import process
from metier.running.sandbox import SandboxUnavailable
from metier.running.sandbox.container import ContainerRunner, Engine
from patience import PATIENCE

ENGINES = ("podman", "docker")
IMAGE = "localhost/metier-test:latest"
_PROGRAMS = ("sh", "bash", "sleep", "cat", "true")
_PACKAGES = {
    "encodings",
    "json",
    "ctypes",
    "collections",
    "importlib",
    "re",
    "concurrent",
    "lib-dynload",
    "__pycache__",
}
"""What of the standard library is in the image, besides the modules that are a single file."""
_PREFIX = "opt/python"
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
"""The engines that this process has started."""


class NoEngine(Exception):
    """Why an engine cannot run containers here."""


class Running(NamedTuple):
    """An engine that was started: its folder, and its process."""

    base: str
    pid: int

    @property
    def runner(self) -> ContainerRunner:
        return ContainerRunner(IMAGE, f"{self.base}/engine.sock")


@contextlib.contextmanager
def an_engine(name: str) -> Generator[ContainerRunner]:
    """A runner at an engine of its own. Raises `NoEngine`."""
    running = _start(name)
    try:
        yield running.runner
    finally:
        _end(running)


@contextlib.contextmanager
def a_shared_engine(name: str, folder: Path) -> Generator[ContainerRunner]:
    """A runner at the engine of all processes of this test run, which have the folder in common.

    Each holds the lock `users` as long as it uses the engine, so that one that is killed counts no more.
    """
    note = folder / f"{name}.running"
    with (folder / f"{name}.lock").open("w") as changing, (folder / f"{name}.users").open("w") as users:
        fcntl.flock(changing, fcntl.LOCK_EX)
        try:
            fcntl.flock(users, fcntl.LOCK_SH)
            if not note.exists():
                started = _start(name)
                note.write_text(f"{started.base}\n{started.pid}")
            base, pid = note.read_text().split("\n")
        except NoEngine as error:
            parts.missing(name, str(error))
        finally:
            fcntl.flock(changing, fcntl.LOCK_UN)
        try:
            yield Running(base, int(pid)).runner
        finally:
            fcntl.flock(changing, fcntl.LOCK_EX)
            with contextlib.suppress(BlockingIOError):  # somebody else uses it
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                note.unlink()
                _end(Running(base, int(pid)))


def leftovers(runner: ContainerRunner, label: str = "") -> list[str]:
    """What a process, this one if none is named, has left at the engine of a runner."""
    engine = engine_at(str(runner.socket))
    return [name for name in engine.made() if (label or process.current()) in name]


def engine_at(socket: str) -> Engine:
    """The program that speaks with the engine at a socket, which is in the folder of a `Running`."""
    return Engine(Path(socket).parent.name.split("-")[0], socket)


# --- starting and ending ---


def _start(name: str) -> Running:
    program = parts.found(name)
    if program is None:
        raise NoEngine("it is not installed")
    tried: list[str] = []
    for line in _podman(program) if name == "podman" else _docker(program):
        running = _launch(name, line)
        try:
            _await(running)
            _import(running)
            return running
        except SandboxUnavailable as error:
            tried.append(f"{' '.join(line[1:3])}: {error}")
            _end(running)
    raise NoEngine("; ".join(tried) or "it has no runtime")


def _podman(program: str) -> Iterator[list[str]]:
    """The command for each runtime: on some machines, the usual one does not work with their control groups."""
    for runtime in ("runc", "crun"):
        if shutil.which(runtime, path=f"{os.environ['PATH']}:/usr/sbin:/usr/bin"):
            line = [program, "--runtime", runtime, "--root", "{base}/root", "--runroot", "{base}/r"]
            yield [*line, "--cgroup-manager", "cgroupfs", "system", "service", "--time=0", "unix://{base}/engine.sock"]


def _docker(program: str) -> Iterator[list[str]]:
    """A command that leaves the network of the machine, and another Docker, alone."""
    line = [program, "--bridge=none", "--iptables=false", "--ip6tables=false", "--config-file", "{base}/config.json"]
    line += ["--data-root", "{base}/root", "--exec-root", "{base}/run", "--pidfile", "{base}/pid"]
    yield [*line, "--group", str(os.getgid()), "--host", "unix://{base}/engine.sock"]


def _launch(name: str, line: list[str]) -> Running:
    base = Path(tempfile.mkdtemp(prefix=f"{name}-"))  # with a short path, because Podman takes no long one
    (base / "config.json").write_text("{}")
    env = {**os.environ, "TMPDIR": str(base)}
    with (base / "log").open("wb") as log:  # conmon writes files where it starts
        process = subprocess.Popen([word.format(base=base) for word in line], stdout=log, stderr=log, cwd=base, env=env)
    _CHILDREN[process.pid] = process
    return Running(str(base), process.pid)


def _await(running: Running) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            engine_at(f"{running.base}/engine.sock").call("version")
            return
        except SandboxUnavailable as error:
            if time.monotonic() > deadline or _has_ended(running.pid):
                log = Path(running.base, "log").read_text(errors="replace").strip().splitlines()
                raise SandboxUnavailable(log[-1] if log else str(error)) from error
            time.sleep(0.05)


def _import(running: Running) -> None:
    """Make the image, and see whether the engine itself, whatever the runner does, can run a container with limits."""
    engine = engine_at(f"{running.base}/engine.sock")
    path = Path(running.base, "image.tar")
    _write_image(str(path))
    engine.call("import", str(path), IMAGE)
    path.unlink()
    limits = ["--network", "none", "--memory", "64m", "--pids-limit", "50", "--ulimit", "nofile=256:256"]
    engine.call("run", "--rm", *limits, "--ulimit", "nproc=1000:1000", IMAGE, "true")


def _end(running: Running) -> None:
    engine = engine_at(f"{running.base}/engine.sock")
    with contextlib.suppress(SandboxUnavailable):
        for container in engine.call("ps", "--all", "--quiet").split():
            engine.remove(container)
    with contextlib.suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while os.path.exists(running.base) and time.monotonic() < deadline:
        if _has_ended(running.pid):  # but what Podman started to clean up may still mount something
            _remove(running.base)
        time.sleep(0.05)


def _remove(base: str) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for place in reversed([mount for mount in mounts if mount.startswith(f"{base}/")]):
        subprocess.run(["umount", place], capture_output=True)
    shutil.rmtree(base, ignore_errors=True)


def _has_ended(pid: int) -> bool:
    """Whether a process has ended, whoever started it."""
    if pid in _CHILDREN:
        return _CHILDREN[pid].poll() is not None
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# --- the image ---


def _write_image(path: str) -> None:
    python, library = _python()
    programs = [found for name in _PROGRAMS if (found := shutil.which(name))]
    places = {name: f"usr/bin/{os.path.basename(name)}" for name in programs}
    modules = [str(path) for path in Path(library, "lib-dynload").glob("_ctypes.*")]
    for name in _libraries((python, *programs, *modules)):
        # Libraries that Python brings itself are found in the folder of the system, too.
        places[name] = name[1:] if name.startswith(("/lib", "/usr/lib")) else f"usr/lib/{os.path.basename(name)}"
    places |= {"/bin/sh": "bin/sh", python: f"{_PREFIX}/bin/python3", library: f"{_PREFIX}/lib/{Path(library).name}"}
    link = tarfile.TarInfo("usr/local/bin/python3")
    link.type, link.linkname = tarfile.SYMTYPE, f"/{_PREFIX}/bin/python3"
    with tarfile.open(path, "w", dereference=True) as archive:
        # Docker makes folders that an archive does not name readable only by root.
        folders = {str(parent) for place in (*places.values(), link.name) for parent in PurePosixPath(place).parents}
        for folder in sorted(folders - {"."} | {"tmp", "etc", "root", "var", "var/tmp"}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder.endswith("tmp") else 0o755
            archive.addfile(entry)
        for name, place in places.items():
            archive.add(name, arcname=place, filter=_small if name == library else _owned)
        archive.addfile(link)


def _owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.mode |= 0o555 if entry.isdir() or entry.mode & 0o100 else 0o444
    return entry


def _small(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    below = Path(entry.name).parts[4:]
    if ".opt-" in entry.name or "test" in below or (entry.isdir() and below and below[0] not in _PACKAGES):
        return None
    return _owned(entry)


def _python() -> tuple[str, str]:
    """A Python of this machine and its standard library. That of the system is the smallest."""
    show = "import ctypes, sys, sysconfig; print(sys.executable, sysconfig.get_paths()['stdlib'], sep='\\n')"
    for python in ("/usr/bin/python3", os.path.join(sys.base_prefix, "bin", "python3")):
        with contextlib.suppress(OSError):
            shown = subprocess.run([python, "-I", "-c", show], capture_output=True, text=True)
            if shown.returncode == 0:
                path, library = shown.stdout.splitlines()
                return os.path.realpath(path), library
    raise AssertionError("no Python has its standard library")


def _libraries(programs: tuple[str, ...]) -> frozenset[str]:
    """The shared libraries that programs and modules need."""
    return frozenset(found for program in programs for found in _needed(program))


def _needed(program: str) -> Iterator[str]:
    shown = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    for word in shown.split():
        if word.startswith("/") and os.path.exists(word):
            yield word
