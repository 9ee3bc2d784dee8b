"""The locks of one user and the folders with installed packages, which are cached by the digest of their lock.

A folder is built beside its place and renamed into it, under a lock on a file, so no process ever sees half of one, and
two that want the same build it once. What an installer put there is compared with the lock. The folder that holds them
belongs to the user alone. One that somebody else owns or could have written to is not used. Scripts see it read-only.
"""

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from metier.files.digests import digits
from metier.files.tree import SkillTree
from metier.running.packages import PackagesUnavailable, Wanted, node, programs
from metier.running.packages.declared import declared, name_of
from metier.running.packages.inferred import inferred
from metier.running.packages.interpreters import Interpreter
from metier.running.packages.lock import Lock, Locks, key

SECONDS: Final = 600.0
"""How long installing may take, and how long another process is waited for that installs the same."""
MODULES: Final = {"python": "site-packages", "node": "node_modules"}
_PROGRAM: Final = 0o755
"""The mode of folders and programs. The folder around them is closed to everybody else."""
_SYSTEM: Final = (
    "/usr/local/lib/python{}/dist-packages",
    "/usr/lib/python3/dist-packages",
    "/usr/lib/python{}/site-packages",
    "/usr/lib64/python{}/site-packages",
)
"""Where systems have their own modules. Those that are not there do not count."""
_PYTHON: Final = re.compile(r"#!.*\b(python[0-9.]*|uv)\b")


def wanted_by(tree: SkillTree, script: str, head: str) -> Wanted | None:
    """What a script wants, by what is declared for it or by its imports; `None` if nothing."""
    suffix = os.path.splitext(script)[1].lower()
    if suffix in (".js", ".mjs", ".cjs"):
        return declared(tree, script)
    if suffix != ".py" and not _PYTHON.match(head.split("\n", 1)[0]):
        return None
    return declared(tree, script) or inferred(tree, script)


class PackageState:
    """Locks in the data folder of the user, and environments, which can be made again, in the cache folder."""

    def __init__(self, data_folder: str, cache_folder: str) -> None:
        self.locks = Locks(os.path.join(data_folder, "locks"))
        self.environments = Environments(os.path.join(cache_folder, "environments"))

    def lock(
        self,
        wanted: Wanted,
        interpreter: Interpreter | None,
        *,
        anew: bool = False,
        offline: bool = False,
    ) -> Lock | None:
        """The lock for what is wanted, made if there is none or `anew` is set. Raises `PackagesUnavailable`.

        `offline`: the index is not asked, so there may be none.
        """
        from metier.running.packages.resolve import resolve  # only where the index is asked

        python = f"{interpreter.path} {interpreter.version}" if interpreter is not None else ""
        name = key(wanted, python)
        found = None if anew else self.locks.find(name)
        if found is None and not offline:
            with programs.workplace(self.environments.folder) as workplace:
                found = resolve(wanted, interpreter, workplace)
            self.locks.keep(name, found)
        return found


class Environments:
    """The environments in a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find(self, lock: Lock) -> str | None:
        """The folder with the modules of a lock, if it is there. Raises `PackagesUnavailable` if it is not safe."""
        place = self._place(lock)
        modules = os.path.join(place, MODULES[lock.kind])
        if not os.path.lexists(place):
            return None
        for path in (self.folder, place, modules):
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
                raise PackagesUnavailable(
                    f"{path} is not a folder that only this user can write to; `metier env clear` deletes it"
                )
        with suppress(OSError):
            os.utime(place)  # when it was last used
        return modules

    def ensure(self, lock: Lock, interpreter: Interpreter | None, *, bytecode: bool = True) -> str:
        """The folder with the modules of a lock, which is installed if it is not there yet.

        Without `bytecode`, every start of a script compiles what it imports, because it cannot write there.
        """
        if found := self.find(lock):
            return found
        with programs.workplace(self.folder) as workplace, self._exclusive(digits(lock.content)):
            if found := self.find(lock):
                return found
            try:
                if lock.kind == "node":
                    node.install(lock, workplace)
                else:
                    _install(lock, interpreter, workplace, bytecode=bytecode)
                _open_to_all(workplace.folder)
                os.rename(workplace.folder, self._place(lock))
            except OSError as error:
                raise PackagesUnavailable(f"the packages cannot be installed: {error.strerror}") from error
        found = self.find(lock)
        assert found is not None
        return found

    def path(self, lock: Lock) -> str:
        """The folder of a lock, if it is there; else empty."""
        place = self._place(lock)
        return place if os.path.isdir(place) else ""

    def clear(self) -> tuple[int, int]:
        """Delete every environment; how many there were, and their size. Those that are in use now are deleted, too."""
        count, size = 0, 0
        for name in os.listdir(self.folder) if os.path.isdir(self.folder) else ():
            path = os.path.join(self.folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                count += not name.startswith(".")
                size += size_of(path)
                gone = tempfile.mkdtemp(prefix=programs.BUILDING, dir=self.folder)
                with suppress(OSError):
                    os.rename(path, os.path.join(gone, "old"))  # at once, also where deleting takes long
                shutil.rmtree(gone, ignore_errors=True)
            elif not name.endswith(".lock"):
                with suppress(OSError):
                    os.unlink(path)
        return count, size

    def _place(self, lock: Lock) -> str:
        return os.path.join(self.folder, digits(lock.content))

    @contextmanager
    def _exclusive(self, name: str) -> Generator[None]:
        """Only one process at a time installs one environment."""
        descriptor = os.open(os.path.join(self.folder, f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + SECONDS
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if error.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() > until:
                        raise PackagesUnavailable("another process is still installing the same packages") from error
                time.sleep(0.05)
            yield
        finally:
            os.close(descriptor)


def _install(lock: Lock, interpreter: Interpreter | None, workplace: programs.Workplace, *, bytecode: bool) -> None:
    """Install exactly the files of a lock."""
    if interpreter is None:
        raise PackagesUnavailable("no Python is installed here that scripts can run with")
    modules = os.path.join(workplace.folder, MODULES["python"])
    os.mkdir(modules)
    if not lock.packages:
        return
    file = os.path.join(workplace.folder, "requirements.txt")
    with open(file, "w", encoding="utf-8") as stream:
        stream.write(lock.as_requirements())
    variables = programs.environment("uv", workplace.home)
    command = [*programs.uv_pip("install", variables), "--quiet", "--no-progress", "--python", interpreter.path]
    command += ["--no-python-downloads", "--no-build", "--require-hashes", "--no-deps", "--target", modules, "-r", file]
    command += ["--compile-bytecode"] if bytecode else []
    programs.call(command, workplace=workplace, seconds=SECONDS, variables=variables)
    _compare(lock, modules)
    _mend_programs(os.path.join(modules, "bin"))
    _add_system(modules, interpreter)


def _compare(lock: Lock, modules: str) -> None:
    """Raise where a folder of modules has other distributions than a lock."""
    from importlib.metadata import distributions  # only where something is installed

    found = {
        f"{name_of(str(one.metadata['Name']))} {_plain(str(one.version))}" for one in distributions(path=[modules])
    }
    wrong = found ^ {f"{package.name} {_plain(package.version)}" for package in lock.packages}
    if wrong:
        listed = ", ".join(sorted(wrong)[:5])
        raise PackagesUnavailable(f"uv installed something else than was asked for: {listed}")


def _plain(version: str) -> str:
    """The numbers of a version: installers and packages may spell the rest differently, such as `1.0-alpha1`."""
    numbers = ".".join(number.lstrip("0") or "0" for number in re.findall(r"\d+", version))
    return re.sub(r"(?:\.0)+$", "", numbers)


def _add_system(modules: str, interpreter: Interpreter) -> None:
    """Let a script import what the system has, as in a run without packages, after everything else."""
    if os.path.realpath(interpreter.path).startswith("/usr/"):
        folders = (folder.format(interpreter.short) for folder in _SYSTEM)
        with open(os.path.join(modules, "zz-system.pth"), "w", encoding="utf-8") as stream:
            stream.write("".join(f"{folder}\n" for folder in folders))


def _mend_programs(folder: str) -> None:
    """Have the programs of packages run with the interpreter that is first on the path, wherever they are mounted."""
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        with open(path, "rb") as stream:
            data = stream.read()
        first, _, rest = data.partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            os.unlink(path)  # it may be another name of a file in the cache of the installer
            with open(path, "wb") as stream:
                stream.write(b"#!/usr/bin/env python3\n" + rest)
            os.chmod(path, _PROGRAM)


def _open_to_all(folder: str) -> None:
    """Let every user read the files: a script that root starts has another id. Nobody else can reach the folder."""
    os.chmod(folder, _PROGRAM)
    for place, folders, files in os.walk(folder):
        for name in folders:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                os.chmod(path, _PROGRAM)
        for name in files:
            path = os.path.join(place, name)
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_mode & 0o044 != 0o044:
                copy = f"{path}.metier"
                shutil.copy2(path, copy)  # the file may be another name of one in the cache of the installer
                os.chmod(copy, status.st_mode & 0o755 | 0o444)
                os.replace(copy, path)


def size_of(folder: str) -> int:
    """The bytes of all files in a folder."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total
