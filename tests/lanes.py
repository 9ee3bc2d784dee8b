"""The lanes: what a test does decides which command runs it.

A test without a mark stays in its process: it starts no program, opens no connection and takes at most five seconds of
processor time. `make test` runs these. A mark or a folder puts a test into another lane, which has a command of its
own; CONTRIBUTING.md lists them. The guard here fails a test that does more than its lane allows.
"""

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pytest

IN_PROCESS: Final = "in_process"
FOLDERS: Final[Mapping[str, str]] = {
    "tests/attack/": "attack",
    "tests/hosts_real/": "hosts",
    "tests/image/": "image",
    "tests/model/": "model",
    "tests/recipes/": "recipes",
}
"""Folders whose tests are a lane."""
MARKS: Final = ("browser", "containers", "postgres", "system")
"""Lanes of single tests and files; the first that fits counts."""
SECONDS: Final = 5.0

_REFUSED: Final = frozenset(
    ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "socket.connect", "socket.bind")
)
_done: list[str] = []
"""What the running test has done that its lane does not allow."""
_guarded = False


def lane_of(item: pytest.Item) -> str:
    """The lane of a test."""
    for folder, lane in FOLDERS.items():
        if item.nodeid.startswith(folder):
            return lane
    spec: Any = getattr(item, "callspec", None)
    if spec is not None and "postgres" in spec.params.values():
        return "postgres"
    marked = next((mark for mark in MARKS if item.get_closest_marker(mark) is not None), None)
    if marked is None and (
        item.get_closest_marker("needs") is not None or "corpus" in getattr(item, "fixturenames", ())
    ):
        return "system"  # it needs a program of others, or reads thousands of public skills
    return marked or IN_PROCESS


def _watch(event: str, _: tuple[Any, ...]) -> None:
    if _guarded and event in _REFUSED:
        _done.append(event)
        raise AssertionError(f"a test of this lane must not call {event}; see tests/lanes.py")


sys.addaudithook(_watch)


@contextmanager
def guarded(item: pytest.Item) -> Generator[None]:
    """Fail an in-process test that leaves its process or takes too long."""
    global _guarded
    if item.get_closest_marker(IN_PROCESS) is None:
        yield
        return
    _done.clear()
    _guarded, before = True, os.times().user  # how long the kernel takes depends on what else the machine does
    try:
        yield
    finally:
        _guarded = False
    if _done:
        pytest.fail(f"it called {', '.join(dict.fromkeys(_done))}; mark it for another lane, see tests/lanes.py")
    if (took := os.times().user - before) > SECONDS:
        pytest.fail(f"it took {took:.1f} s of processor time; at most {SECONDS:g} s are allowed in this lane")
