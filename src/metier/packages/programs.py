"""The installers of this machine, and how they are called: uv, else pip, and npm for Node.

They are the user's own programs with the user's own settings: which index, which proxy, which certificates. uv does not
read the settings of pip, so where it has none for an index, it is given those of pip. Every call has a time limit.
"""

import configparser
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from metier.packages import PackagesUnavailable

MISSING: Final = "neither uv nor pip is installed here; install uv, for example with `python3 -m pip install uv`"
_INDEXES: Final = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX")
_FROM_PIP: Final = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
}


class PackageInstaller(NamedTuple):
    """A program that resolves and installs packages for Python."""

    name: Literal["uv", "pip"]
    command: tuple[str, ...]


def installer() -> PackageInstaller:
    """uv if it is here, else pip. Raises `PackagesUnavailable` where there is neither."""
    if uv := _uv():
        return PackageInstaller("uv", (uv,))
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


def environment(name: str) -> dict[str, str]:
    """The variables for an installer: the user's own, and the index that is set for pip."""
    variables = dict(os.environ)
    for unwanted in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"):
        variables.pop(unwanted, None)
    if name == "uv" and not any(key in variables for key in _INDEXES) and not _has_own_settings():
        for key, value in pip_settings().items():
            if key in _FROM_PIP and value:
                separator = "," if key == "find-links" else " "
                variables.setdefault(_FROM_PIP[key], separator.join(value.split()))
        # The indexes of pip have equal rank: the best version of all of them counts.
        variables.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return variables


def pip_settings() -> Mapping[str, str]:
    """The settings of pip that say where packages come from, as pip reads them: files first, then variables."""
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    files = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", f"{home}/.pip/pip.conf", f"{config}/pip/pip.conf"]
    own = os.environ.get("PIP_CONFIG_FILE")
    files = [] if own == os.devnull else [*files, *([own] if own else [])]
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read(files, "utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        parser = configparser.RawConfigParser()
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    variables = {key[4:].lower().replace("_", "-"): value for key, value in os.environ.items() if key[:4] == "PIP_"}
    return found | variables


def _has_own_settings() -> bool:
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    files = (os.environ.get("UV_CONFIG_FILE", ""), os.path.join(config, "uv", "uv.toml"), "/etc/uv/uv.toml")
    return any(file and os.path.isfile(file) for file in files)


def call(command: Sequence[str], *, folder: str, seconds: float, variables: Mapping[str, str]) -> str:
    """Run an installer and return what it printed. Raises `PackagesUnavailable` with its last words if it fails."""
    name = os.path.basename(command[0])
    try:
        done = subprocess.run(  # noqa: S603
            list(command),
            cwd=folder,
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
