"""The optional programs, and the test modules that can depend on one. `make test` installs them where it may.

python tests/optional.py   the names of these modules, which `.ci/bare` runs with all of these programs hidden
"""

import contextlib
import functools
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from metier.errors import SandboxUnavailable
from metier.running.sandbox.runners import choose

_TESTS: Final = Path(__file__).resolve().parent
OPTIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    part: tuple(fields["programs"])
    for part, fields in json.loads((_TESTS.parent / "setup" / "parts.json").read_bytes()).items()
}
"""The parts that `setup/prepare.py` installs, each with the programs that belong to it."""

_ASKS: Final = re.compile(r"import parts|from parts")
_DEPENDS: Final = re.compile(rf"{_ASKS.pattern}|sandbox|skill_run|scripts/")
"""A module that needs a part asks `parts` for it, or has to do with scripts and what runs them."""

_PLUGINS: Final = re.compile(r"^pytest_plugins = \[(.*?)\]", re.MULTILINE | re.DOTALL)

_ELSEWHERE: Final = ("hosts_real", "image", "model", "recipes")
"""Folders whose tests have commands of their own."""


@functools.cache
def depends(module: str) -> bool:
    """Whether the tests of a module, a path in the repository, can depend on a part: by its text or its fixtures."""
    file = _TESTS.parent / module
    text = file.read_text(encoding="utf-8")
    shared = [folder / "conftest.py" for folder in file.parents if _TESTS in folder.parents]
    for plugins in _PLUGINS.findall(text):
        shared += [_TESTS / f"{name.replace('.', '/')}.py" for name in re.findall(r'"([\w.]+)"', plugins)]
    asked = any(_ASKS.search(one.read_text(encoding="utf-8")) for one in shared if one.is_file())
    return asked or bool(_DEPENDS.search(text))


def modules() -> list[str]:
    """The modules with tests that can depend on a part."""
    paths = (str(path.relative_to(_TESTS.parent)) for path in sorted(_TESTS.rglob("test_*.py")))
    return [path for path in paths if not _is_elsewhere(path) and depends(path)]


def _is_elsewhere(module: str) -> bool:
    return any(part in _ELSEWHERE for part in Path(module).parts[1:2])


def guard() -> None:
    """From now on, a test of any other module fails if it starts a program of a part: `.ci/bare` would not run it.

    What Metier finds out once for a process, whether a sandbox can be built, it finds out before.
    """
    with contextlib.suppress(SandboxUnavailable):
        choose()
    programs = frozenset(program for part in OPTIONAL.values() for program in part)

    def watch(event: str, given: tuple[Any, ...]) -> None:
        if event != "subprocess.Popen":
            return
        program = os.path.basename(os.fsdecode(given[0]))
        module = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
        if program in programs and module and not _is_elsewhere(module) and not depends(module):
            raise AssertionError(
                f"{module} starts {program}, but neither its text nor its fixtures show it: see {__file__}"
            )

    sys.addaudithook(watch)


if __name__ == "__main__":
    print("\n".join(modules()))
