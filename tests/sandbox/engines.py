"""A container engine for tests: Podman with a storage and a socket of its own, and an image made of files of this host.

No registry is asked. The image has the Python that runs the tests, its standard library, a shell and a few programs.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

import parts
from metier.sandbox.container import ContainerRunner
from metier.sandbox.container_engine import Engine, EngineError
from metier.sandbox.container_owner import LABEL

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
_SECONDS = 60


@contextlib.contextmanager
def a_podman() -> Generator[ContainerRunner]:
    """A runner at a Podman that serves only these tests. Skips the test where Podman cannot run containers."""
    podman = parts.found("podman") or parts.missing("podman")
    tried: list[str] = []
    for runtime in ("runc", "crun"):
        if shutil.which(runtime, path=f"{os.environ['PATH']}:/usr/sbin:/usr/bin") is None:
            continue
        with contextlib.ExitStack() as stack:
            base = Path(tempfile.mkdtemp(prefix="metier-podman-"))
            flags = ["--root", str(base / "root"), "--runroot", str(base / "run"), "--runtime", runtime]
            line = [podman, *flags, "--cgroup-manager", "cgroupfs"]
            stack.callback(_clean, line, base)
            problem = _import(line, base)
            if not problem:
                yield stack.enter_context(_served(line, base))
                return
            tried.append(f"{runtime}: {problem}")
    pytest.skip(f"Podman cannot run containers here, which needs rights: {'; '.join(tried) or 'no runtime'}")


def _import(line: list[str], base: Path) -> str:
    """Make the image. Returns why Podman itself, whatever the runner does, cannot run a container with limits here."""
    _write_image(str(base / "image.tar"))
    limits = [
        "--network=none",
        "--memory=64m",
        "--pids-limit=50",
        "--ulimit=nofile=256:256",
        "--ulimit=nproc=1000:1000",
    ]
    for command in (["import", str(base / "image.tar"), IMAGE], ["run", "--rm", *limits, IMAGE, "/usr/bin/true"]):
        done = subprocess.run([*line, *command], capture_output=True, text=True, timeout=_SECONDS, cwd=base)
        if done.returncode != 0:
            return done.stderr.strip() or f"podman {command[0]} exits with {done.returncode}"
    return ""


@contextlib.contextmanager
def _served(line: list[str], base: Path) -> Generator[ContainerRunner]:
    address = base / "engine.sock"
    with (base / "log").open("wb") as log:
        service = [*line, "system", "service", "--time=0", f"unix://{address}"]
        process = subprocess.Popen(service, stdout=log, stderr=log, cwd=base)  # conmon writes files where it starts
        try:
            _await(str(address))
            yield ContainerRunner(IMAGE, str(address))
        finally:
            process.terminate()
            process.wait(_SECONDS)


def _clean(line: list[str], base: Path) -> None:
    for command in (
        [*line, "rm", "--all", "--force", "--time=0"],
        [*line, "rmi", "--all", "--force"],
        ["umount", str(base / "root" / "overlay")],
    ):
        with contextlib.suppress(OSError):
            subprocess.run(command, capture_output=True, timeout=_SECONDS, cwd=base)
    shutil.rmtree(base, ignore_errors=True)


def _await(address: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        try:
            Engine(address).labelled("containers", "none")
        except EngineError:
            time.sleep(0.05)
        else:
            return


def leftovers(runner: ContainerRunner) -> list[str]:
    """What the runner has left at its engine."""
    engine = Engine(str(runner.socket))
    found = [(kind, one) for kind in ("containers", "volumes") for one in engine.labelled(kind, LABEL)]
    return [f"{kind}: {one.get('Names') or one.get('Name')}" for kind, one in found]


# --- the image ---


def _write_image(path: str) -> None:
    python, library = _python()
    programs = [found for name in _PROGRAMS if (found := shutil.which(name))]
    with tarfile.open(path, "w", dereference=True) as archive:
        for folder in ("tmp", "etc", "root", "var", "var/tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder.endswith("tmp") else 0o755
            archive.addfile(entry)
        modules = [str(path) for path in Path(library, "lib-dynload").glob("_ctypes.*")]
        for name in _libraries((python, *programs, *modules)):
            # Libraries that Python brings itself are found in the folder of the system, too.
            inside = name if name.startswith(("/lib", "/usr/lib")) else f"usr/lib/{os.path.basename(name)}"
            archive.add(name, arcname=inside, filter=_owned)
        for name in programs:
            archive.add(name, arcname=f"usr/bin/{os.path.basename(name)}", filter=_owned)
        archive.add("/bin/sh", arcname="bin/sh", filter=_owned)
        archive.add(python, arcname=f"{_PREFIX}/bin/python3", filter=_owned)
        archive.add(library, arcname=f"{_PREFIX}/lib/{os.path.basename(library)}", filter=_small)
        link = tarfile.TarInfo("usr/local/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, f"/{_PREFIX}/bin/python3"
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
            shown = subprocess.run([python, "-I", "-c", show], capture_output=True, text=True, timeout=_SECONDS)
            if shown.returncode == 0:
                path, library = shown.stdout.splitlines()
                return os.path.realpath(path), library
    raise AssertionError("no Python has its standard library")


def _libraries(programs: tuple[str, ...]) -> frozenset[str]:
    """The shared libraries that programs and modules need."""
    return frozenset(found for program in programs for found in _needed(program))


def _needed(program: str) -> Iterator[str]:
    shown = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=_SECONDS).stdout
    for word in shown.split():
        if word.startswith("/") and os.path.exists(word):
            yield word
