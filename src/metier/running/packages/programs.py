"""The installers of this machine, and how they are called: uv, else pip, and npm for Node.

Each call has a time limit and a workplace: a folder below the user's cache that nobody else can enter or replace, with
a home for the installer. Installers look for settings and projects in the folders above them, so a shared folder such
as /tmp is no place for them. `user_settings` has what they are told of the user's own settings.
"""

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

from metier.running.packages import PackagesUnavailable
from metier.running.packages.user_settings import is_ours, uv_file

MISSING: Final = "neither uv nor pip is installed here; install uv, for example with `python3 -m pip install uv`"
BUILDING: Final = ".building-"


class Workplace(NamedTuple):
    """Where an installer runs."""

    home: str
    folder: str
    """Its current folder, which becomes the environment."""


@contextmanager
def workplace(parent: str) -> Generator[Workplace]:
    """A new one in a folder of the user. Raises `PackagesUnavailable` if others could replace it."""
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
        os.chmod(parent, 0o700)
        for above in Path(os.path.realpath(parent)).parents:
            if not is_ours(above.stat()):
                why = f"{above}, which belongs to another user or can be written by others"
                raise PackagesUnavailable(f"{parent} is below {why}; XDG_CACHE_HOME can name another folder")
        folder = tempfile.mkdtemp(prefix=BUILDING, dir=parent)
    except OSError as error:
        raise PackagesUnavailable(f"{parent} cannot be used for packages: {error.strerror}") from error
    try:
        made = Workplace(os.path.join(folder, "home"), os.path.join(folder, "files"))
        os.mkdir(made.home, 0o700)
        os.mkdir(made.folder, 0o700)
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class PackageInstaller(NamedTuple):
    """A program that resolves and installs packages for Python."""

    name: Literal["uv", "pip"]
    command: tuple[str, ...]


def installer() -> PackageInstaller:
    """uv if it is here, else pip. Raises `PackagesUnavailable` where there is neither."""
    if uv := _uv():
        file = uv_file()
        return PackageInstaller("uv", (uv, *(("--config-file", file) if file else ("--no-config",))))
    if importlib.util.find_spec("pip") is not None:
        return PackageInstaller("pip", (sys.executable, "-I", "-m", "pip"))
    if pip := shutil.which("pip3") or shutil.which("pip"):
        return PackageInstaller("pip", (pip,))
    raise PackagesUnavailable(MISSING)


def _uv() -> str | None:
    if found := shutil.which("uv"):
        return found
    beside = os.path.join(os.path.dirname(sys.executable), "uv")  # the Python package puts it here
    return beside if os.access(beside, os.X_OK) else None


def call(command: Sequence[str], *, workplace: Workplace, seconds: float, variables: Mapping[str, str]) -> str:
    """Run an installer and return what it printed. Raises `PackagesUnavailable` with its last words if it fails."""
    name = os.path.basename(command[0])
    try:
        done = subprocess.run(  # noqa: S603
            list(command),
            cwd=workplace.folder,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            umask=0o022,
        )
    except subprocess.TimeoutExpired:
        raise PackagesUnavailable(f"{name} did not end within {seconds:.0f} seconds") from None
    except OSError as error:
        raise PackagesUnavailable(f"{name} could not be started: {error.strerror}") from error
    if done.returncode:
        raise PackagesUnavailable(_last_words(done.stderr.decode("utf-8", "replace")))
    return done.stdout.decode("utf-8", "replace")


def _last_words(text: str) -> str:
    """The error of an installer, on one line."""
    lines = [line.strip(" │╰─▶×╭├\t") for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("Resolved ", "Using ", "warning:", "WARNING:"))]
    return " ".join(" ".join(kept).split())[-1500:] or "the installer failed and said nothing"


@functools.cache
def npm() -> str:
    """The path of npm. Raises `PackagesUnavailable` where there is none."""
    if found := shutil.which("npm"):
        return found
    raise PackagesUnavailable("npm is not installed here; it comes with Node.js")
