"""Reads the files that a script left in its folders, through a descriptor, after the script has ended.

The work folder is read as it is. Of a folder of the user, the layer in memory is read that the script wrote to instead:
what is new there is collected, and what the script changed or deleted is only listed.

The content is untrusted: links that point anywhere, pipes that block, sparse files, folders nested a thousand deep.
The invariant: nothing outside the folder is opened, only regular files are read, and never more bytes than the
folder's limit, whatever sizes the files claim.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from metier.files.digests import digest_of
from metier.limits import MIB
from metier.running.sandbox import RunLimits, WrittenFile
from metier.running.sandbox.changes import READ, ProjectChanges, lstat, open_entry, opened

DEPTH: Final = 16
REASONS: Final = 20
_DELETED: Final = "deleted"


def collect(
    folder: int, limits: RunLimits, given: Mapping[str, str] | None = None
) -> tuple[tuple[WrittenFile, ...], tuple[str, ...]]:
    """Return the regular files below an open folder, sorted by path, and what was left out, with reasons.

    `given` has the digests of files that were there before, by path. They are not returned if they are unchanged.
    """
    found = CollectedFiles(limits, given)
    _unlock(folder)
    for path, descriptor, reason in _walk(folder, "", 0):
        if not found.take(path, descriptor, reason):
            break
    return found.files(), found.left_out()


def made_in(layer: int, folder: str, limits: RunLimits, given: Mapping[str, str]) -> ProjectChanges:
    """What is new in an open layer over a folder of the user, and what else the script tried to change there."""
    found, changes = CollectedFiles(limits, given), ProjectChanges()
    _unlock(layer)
    beside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path, descriptor, reason in _walk(layer, "", 0, deleted=True):
            before = None if path in given else _before(path, beside)
            if before is None:
                if reason == _DELETED:
                    continue  # it was made and deleted in the run
                if not found.take(path, descriptor, reason):
                    break
            elif reason == _DELETED or not _is_same(path, descriptor, before, beside):
                changes.refuse(path, "the run may only read this folder")
            if before is not None and descriptor is not None:
                os.close(descriptor)
    finally:
        os.close(beside)
    changes.made, changes.left_out = list(found.files()), list(found.left_out())
    return changes


class CollectedFiles:
    """The files that were read so far, within the limits, and what was left out. `given` is as for `collect`."""

    def __init__(self, limits: RunLimits, given: Mapping[str, str] | None = None) -> None:
        self._limits, self._given = limits, given or {}
        self._files: list[WrittenFile] = []
        self._left_out: list[str] = []
        self._missing = 0
        self._room = limits.work_bytes

    def take(self, path: str, descriptor: int | None, reason: str) -> bool:
        """Read one file and close it, or note the reason for none. False if the list of reasons is long enough."""
        data = None
        if descriptor is not None:
            try:
                if len(self._files) >= self._limits.files:
                    reason = f"more than {self._limits.files} files"
                else:
                    data, reason = _content(descriptor, min(self._room, self._limits.file_bytes))
            finally:
                os.close(descriptor)
        if data is None:
            self.leave_out(path, reason)
            return self._missing <= self._limits.files
        self.keep(path, data)
        return True

    def keep(self, path: str, data: bytes) -> None:
        digest = digest_of(data)
        if self._given.get(path) != digest:
            self._room -= len(data)
            self._files.append(WrittenFile(path, len(data), digest, data))

    def leave_out(self, path: str, reason: str) -> None:
        self._missing += 1
        if len(self._left_out) < REASONS:
            self._left_out.append(f"{path}: {reason}")

    def files(self) -> tuple[WrittenFile, ...]:
        return tuple(sorted(self._files, key=lambda file: file.path))

    def left_out(self) -> tuple[str, ...]:
        return (*self._left_out, *(["and more"] if self._missing > len(self._left_out) else ()))


def _before(path: str, folder: int) -> os.stat_result | None:
    with suppress(OSError):  # such as a file where the path has a folder
        return lstat(path, folder)
    return None


def _is_same(path: str, descriptor: int | None, before: os.stat_result, folder: int) -> bool:
    """Whether a file in the layer has the bytes of the file below it: the script only touched it."""
    if descriptor is None or not stat.S_ISREG(before.st_mode) or os.fstat(descriptor).st_size != before.st_size:
        return False
    with suppress(OSError):
        below = os.open(path, READ, dir_fd=folder)
        try:
            while piece := os.read(below, MIB):
                if os.read(descriptor, len(piece)) != piece:
                    return False
            return True
        finally:
            os.close(below)
    return False


def _walk(folder: int, prefix: str, depth: int, *, deleted: bool = False) -> Iterator[tuple[str, int | None, str]]:
    """Yield each entry that is not a folder: its path, and a descriptor of a regular file or the reason for none.

    In a layer, `deleted` says that a device with number 0 stands for something that the script deleted.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        yield prefix or ".", None, error.strerror or "cannot be listed"
        return
    for name in names:
        path = prefix + name
        try:
            status = os.lstat(name, dir_fd=folder)
            mode = status.st_mode
            if deleted and stat.S_ISCHR(mode) and status.st_rdev == 0:
                yield path, None, _DELETED
            elif stat.S_ISREG(mode):
                yield path, open_entry(name, READ, folder, unlock=True), ""
            elif not stat.S_ISDIR(mode):
                yield path, None, "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
            elif depth >= DEPTH:
                yield path + "/", None, f"more than {DEPTH} folders deep"
            else:
                with opened(name, folder, unlock=True) as below:
                    _unlock(below)
                    yield from _walk(below, path + "/", depth + 1, deleted=deleted)
        except OSError as error:
            yield path, None, error.strerror or "cannot be read"


def _unlock(folder: int) -> None:
    """Give the owner access to a folder from which the script removed it. The folder is about to vanish."""
    with suppress(OSError):
        os.fchmod(folder, 0o700)


def _content(descriptor: int, limit: int) -> tuple[bytes | None, str]:
    chunks: list[bytes] = []
    left = limit + 1
    while left > 0 and (chunk := os.read(descriptor, min(left, MIB))):
        chunks.append(chunk)
        left -= len(chunk)
    return (b"".join(chunks), "") if left > 0 else (None, "too large for what was left of the limit")
