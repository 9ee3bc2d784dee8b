"""The programs of others that some tests need, and what becomes of a test where one is missing.

A test that needs one is skipped, always with the same reason, and fails in CI, where all of them must be there.
`METIER_TEST_HIDE` names parts, separated by spaces, that are treated as missing though they are installed, by the tests
and by every process that they start; in CI, too, the tests that need them are then skipped. `all` hides every optional
part.
"""

import atexit
import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

import pytest

OPTIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    part: tuple(fields["programs"])
    for part, fields in json.loads((Path(__file__).parents[1] / "setup" / "parts.json").read_bytes()).items()
}
"""The parts that `setup/prepare.py` installs, each with the programs that belong to it."""

PARTS: Final[Mapping[str, tuple[str, ...]]] = {**OPTIONAL, "bash": ("bash",)}
"""The parts that a test can need. The first program that is found is enough."""

_ASKED: Final = frozenset(os.environ.get("METIER_TEST_HIDE", "").split())
HIDDEN: Final = _ASKED - {"all"} | (frozenset(OPTIONAL) if "all" in _ASKED else frozenset())
_PATH: Final = "METIER_TEST_HIDE_PATH"


def hide() -> None:
    """Take the programs of the hidden parts out of PATH, by a folder with links to all others.

    The processes of a test run share the folder of the first one, which removes it at its end.
    """
    unknown = HIDDEN - set(PARTS)
    if unknown:
        sys.exit(
            f"METIER_TEST_HIDE: there are no parts {', '.join(sorted(unknown))}; known are {', '.join(PARTS)}, all"
        )
    if not HIDDEN or _PATH in os.environ:
        return
    hidden = {program for part in HIDDEN for program in PARTS[part]}
    folder, owner = tempfile.mkdtemp(prefix="metier-path-"), os.getpid()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in os.listdir(place) if os.path.isdir(place) else ():
            link = os.path.join(folder, program)
            if program not in hidden and not os.path.lexists(link):
                os.symlink(os.path.join(place, program), link)
    os.chmod(folder, 0o755)  # tests act as other users, too
    os.environ["PATH"] = os.environ[_PATH] = folder

    def clean() -> None:
        if os.getpid() == owner:  # and not a fork of it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(clean)


def found(part: str) -> str | None:
    """The path of the program, or of the first of its programs; `None` where the part is missing or hidden."""
    if part in HIDDEN:
        return None
    return next((path for program in PARTS[part] if (path := shutil.which(program)) is not None), None)


def missing(part: str, why: str = "it is not installed") -> NoReturn:
    """Skip the test, or fail it in CI."""
    if part in HIDDEN:
        pytest.skip(f"needs {part}: it is hidden")
    if os.environ.get("CI"):
        pytest.fail(f"in CI the test must have {part}: {why}")
    pytest.skip(f"needs {part}: {why}")


def require(*parts: str) -> None:
    """Skip the running test where a part is missing, or fail it in CI."""
    for part in parts:
        if found(part) is None:
            missing(part)


def needs(*parts: str) -> pytest.MarkDecorator:
    """Mark a test, or all tests of a module, that need parts."""
    assert set(parts) <= set(PARTS), parts
    return pytest.mark.needs(*parts)


def require_sandbox() -> None:
    """Skip the running test where no sandbox works, or fail it in CI."""
    if problem := no_sandbox():
        missing("bwrap", problem)


@functools.cache
def no_sandbox() -> str:
    """Why no script can run in a sandbox here; empty if it can."""
    from metier.errors import SandboxUnavailable
    from metier.running.sandbox.runners import choose

    try:
        choose()
    except SandboxUnavailable as error:
        return str(error)
    return ""


def here(part: str) -> Path:
    """The program of a part that the test needs."""
    require(part)
    path = found(part)
    assert path is not None
    return Path(path)
