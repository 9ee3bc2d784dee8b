"""The user id of a sandboxed script on the host. It is never root, even if the launcher is.

The script of an ordinary user keeps that user's id, inside a user namespace. For root, the kernel limits no processes
and checks no owner, so each run of a launcher that is root gets its own user id, from a range that no system assigns.
The process limit then counts only this run. The invariant: no two runs of this process share an id.
"""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from metier.limits import WALK_DEPTH
from metier.values.value import Value

FIRST: Final = 0x70000000
COUNT: Final = 0x0FFE0000
"""Ids 1879048192 to 2147352575, which systemd, containers and directory services do not use."""

SLOTS: Final = 64
EXAMINED_ENTRIES: Final = 2000
INSIDE: Final = 1000

_taken: set[int] = set()
_lock = threading.Lock()


class Identity(Value):
    """A user id for one run. `switch` means that the launcher is root and the script must change to this id."""

    uid: int
    switch: bool


def must_switch() -> bool:
    """Whether this process is root and can change to another id. In a namespace with one id it cannot."""
    return os.geteuid() == 0 and _mapped() > SLOTS


@contextmanager
def an_identity() -> Generator[Identity]:
    """Reserve an id for one run."""
    if not must_switch():
        yield Identity(INSIDE, switch=False)
        return
    with _lock:
        slot = next(number for number in range(len(_taken) + 1) if number not in _taken)
        _taken.add(slot)
    try:
        yield Identity(_uid(os.getpid() * SLOTS + slot), switch=True)
    finally:
        with _lock:
            _taken.discard(slot)


def _uid(number: int) -> int:
    mapped = _mapped()
    if mapped > FIRST + COUNT:
        return FIRST + number % COUNT
    return mapped - 1 - number % (mapped // 2)  # in a container: the upper half of its range, far from its real users


def _mapped() -> int:
    """How many user ids, starting at 0, this process can switch to."""
    try:
        with open("/proc/self/uid_map", encoding="utf-8") as file:
            first, _, count = (int(word) for word in file.readline().split())
    except (OSError, ValueError):
        return 0
    return count if first == 0 else 0


def readable_by_all(folder: str) -> bool:
    """Whether every user can read everything in a folder. A folder too large to examine counts as unreadable."""
    seen = 0
    pending = [(folder, 0)]
    try:
        if os.stat(folder).st_mode & 0o005 != 0o005:
            return False
        while pending:
            path, depth = pending.pop()
            with os.scandir(path) as entries:
                for entry in entries:
                    seen += 1
                    if seen > EXAMINED_ENTRIES or depth > WALK_DEPTH:
                        return False
                    if entry.is_symlink():
                        continue
                    needed = 0o005 if entry.is_dir(follow_symlinks=False) else 0o004
                    if entry.stat(follow_symlinks=False).st_mode & needed != needed:
                        return False
                    if needed == 0o005:
                        pending.append((entry.path, depth + 1))
    except OSError:
        return False
    return True
