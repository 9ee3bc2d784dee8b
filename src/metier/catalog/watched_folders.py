"""Watches many folders for changes, each without the folders below it.

Watches use the operating system's notices (through `watchfiles`) and only say where something happened. Folders that
are not listed, such as a `node_modules` in a skill, cost nothing. On systems that watch whole trees at no extra cost,
the roots are watched instead.
"""

import os
import re
import sys
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

WHOLE_TREES: Final = not sys.platform.startswith("linux")
"""Whether a watch on a folder includes the folders below it, at no extra cost."""

PART: Final = 2_000
"""Folders in one set of watches. Creating a set of ten thousand would block the process for a third of a second."""

_NETWORK: Final = re.compile(
    r"9p|afs|ceph|cifs|davfs|drvfs|fuse(?:\..*)?|gfs2|glusterfs|lustre|ncpfs|nfs4?|prl_fs|smb3|smbfs|vboxsf|virtiofs"
)
"""Types of file systems on which other machines write without a notice on this one."""


class CannotWatch(Exception):
    """Folders cannot be watched on this machine. The message says why."""


class WatchedFolders:
    """The folders that are watched. A set of watches cannot grow, so small sets are recreated with the new folders."""

    def __init__(self) -> None:
        self._parts: list[tuple[set[str], RustNotify]] = []
        self._followed: dict[str, tuple[int, int]] = {}
        self._pending: set[str] = set()

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, wanted: Iterable[str]) -> frozenset[str]:
        """Watch these folders, too. A folder with two paths is watched by the first.

        Returns the folders that are watched from now on: the new ones, and those of the sets that were recreated for
        them, whose last notices may be lost. What happened in them before is only seen by a scan that begins now.
        """
        known = set(self._followed.values())
        new: list[str] = []
        for path in wanted:
            if path in self._followed or not (identity := _identity(path)) or identity in known:
                continue
            known.add(identity)
            self._followed[path] = identity
            new.append(path)
        if not new:
            return frozenset()
        small = [part for part in self._parts if len(part[0]) < PART // 2]
        self._parts = [part for part in self._parts if len(part[0]) >= PART // 2]
        together = [*(path for paths, _ in small for path in paths), *new]
        try:
            for start in range(0, len(together), PART):
                self._parts.append(_watch(together[start : start + PART]))
        finally:
            for part in small:  # closed only after the new sets exist, so that no change is missed
                self._drain(part[1])
                part[1].close()
        return frozenset(together)

    def forget(self, touched: AbstractSet[str]) -> None:
        """Stop watching the folders that were created, moved or removed, and all folders below them."""
        gone = touched & self._followed.keys()
        if not gone:
            return
        for path in _at_or_below(self._followed, gone):
            del self._followed[path]
            for paths, _ in self._parts:
                paths.discard(path)

    def drain(self) -> set[str]:
        """Return the paths with notices since the last call."""
        for _, notify in self._parts:
            self._drain(notify)
        touched, self._pending = self._pending, set()
        return touched

    def _drain(self, notify: "RustNotify") -> None:
        happened = notify.watch(50, 1, 1, None)
        if isinstance(happened, set):
            self._pending.update(path for _, path in happened)

    def close(self) -> None:
        for _, notify in self._parts:
            notify.close()
        self._parts.clear()
        self._followed.clear()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
        return (status.st_dev, status.st_ino) if os.access(path, os.R_OK | os.X_OK) else None
    except (OSError, ValueError):
        return None


def _at_or_below(paths: Iterable[str], folders: AbstractSet[str]) -> list[str]:
    """The paths that are one of the folders or in one. What is known of a parent holds for all that have it."""
    known = {"": False}

    def inside(path: str) -> bool:
        climbed: list[str] = []
        while path not in known and path not in folders:
            climbed.append(path)
            path = path.rpartition("/")[0]
        found = known.get(path, True)
        known.update(dict.fromkeys(climbed, found))
        return found

    return [path for path in paths if inside(path)]


def _watch(paths: list[str]) -> "tuple[set[str], RustNotify]":
    try:
        from watchfiles._rust_notify import RustNotify
    except ImportError:
        raise CannotWatch("watchfiles is not installed (pip install 'metier[watch]')") from None
    for _ in range(5):  # folders may disappear in the meantime
        paths = [path for path in paths if _identity(path)]
        try:
            return set(paths), RustNotify(paths, False, False, 300, WHOLE_TREES, False)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue
        except (OSError, RuntimeError) as error:
            reason = str(error)  # the library raises these with a text and no error number
            if "limit" in reason:
                reason = "the limit of watched folders is reached (sysctl fs.inotify.max_user_watches)"
            elif "Too many open files" in reason:
                reason = "the limit of watchers is reached (sysctl fs.inotify.max_user_instances)"
            raise CannotWatch(reason) from error
    raise CannotWatch("the folders change faster than they can be watched")


def network_mount(paths: Iterable[str]) -> str:
    """Say which of the paths is on a file system without notices of changes; empty if none is."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
            lines = stream.readlines()
    except OSError:
        return ""
    mounts: dict[str, str] = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) > 4 and kinds[0]:
            point = fields[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
            mounts[point] = kinds[0]
    for path in paths:
        point = os.path.realpath(path)
        while point not in mounts and point != "/":
            point = os.path.dirname(point)
        kind = mounts.get(point, "")
        if _NETWORK.fullmatch(kind):
            return f"{path} is on a file system ({kind}) without notices of changes"
    return ""
