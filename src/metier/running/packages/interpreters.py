"""Finds an interpreter of this machine for the versions of Python that a skill declares.

The usual one is taken where it fits, and else the newest that does. Nothing is downloaded.
"""

import functools
import glob
import os
import re
import subprocess
from collections.abc import Iterator
from operator import ge, gt, le, lt
from typing import Final, NamedTuple

from metier.running.packages import PackagesUnavailable

_PLACES: Final = (
    "/usr/local/bin/python3.*",
    "/usr/bin/python3.*",
    "~/.local/share/uv/python/cpython-3*/bin/python3",
    "~/.pyenv/versions/3*/bin/python3",
    "/opt/python*/bin/python3",
    "/opt/homebrew/bin/python3.*",
)
_CLAUSE: Final = re.compile(r"(~=|===?|!=|<=?|>=?)\s*(\d+(?:\.\d+)*)(\.\*)?")
_ORDERS: Final = {"<": lt, "<=": le, ">": gt, ">=": ge}

Version = tuple[int, ...]


class Interpreter(NamedTuple):
    """A Python of this machine."""

    path: str
    version: Version

    @property
    def short(self) -> str:
        """The version as in the name of its folder of modules."""
        return f"{self.version[0]}.{self.version[1]}"


def fits(version: Version, declared: str) -> bool:
    """Whether a version satisfies a declaration such as `>=3.10,<3.13`. One that nobody can read is satisfied."""
    for clause in filter(None, (part.strip() for part in declared.split(","))):
        found = _CLAUSE.fullmatch(clause)
        if found is not None and not _satisfies(
            version, found[1], tuple(map(int, found[2].split("."))), bool(found[3])
        ):
            return False
    return True


def _satisfies(version: Version, operator: str, bound: Version, prefix: bool) -> bool:
    width = max(len(version), len(bound), 3)
    here, there = (tuple([*one, *[0] * width][:width]) for one in (version, bound))
    same = version[: len(bound)] == bound if prefix else here == there
    if operator == "~=":
        return here >= there and version[: len(bound) - 1] == bound[:-1]
    if operator in _ORDERS:
        return _ORDERS[operator](here, there)
    return same != (operator == "!=")


def choose(usual: str, declared: str) -> Interpreter:
    """The interpreter for a declaration. Raises `PackagesUnavailable` with those that are here if none fits."""
    first = probe(usual) if usual else None
    if first is not None and fits(first.version, declared):
        return first
    here = {one.version: one for one in found()}
    fitting = [version for version in here if fits(version, declared)]
    if fitting:
        return here[max(fitting)]
    versions: set[Version] = {*here} if first is None else {*here, first.version}
    known = sorted(versions)
    listed = ", ".join(".".join(map(str, version)) for version in known) or "none"
    raise PackagesUnavailable(f"it needs Python {declared}, and none is installed here (found: {listed})")


@functools.cache
def found() -> tuple[Interpreter, ...]:
    """The interpreters in the usual places."""
    return tuple(one for path in _candidates() if (one := probe(path)) is not None)


def _candidates() -> Iterator[str]:
    for place in _PLACES:
        for path in sorted(glob.glob(os.path.expanduser(place))):
            if re.fullmatch(r"python3(\.\d+)?", os.path.basename(path)):
                yield path


@functools.cache
def probe(path: str) -> Interpreter | None:
    """What a program says about itself; `None` if it is no Python 3."""
    code = "import sys; print(*sys.version_info[:3])"
    try:
        said = subprocess.run(  # noqa: S603
            [path, "-I", "-S", "-c", code], capture_output=True, text=True, check=True, timeout=20, env={}, cwd="/"
        )
        version = tuple(map(int, said.stdout.split()))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return Interpreter(path, version) if version[:1] == (3,) and len(version) == 3 else None
