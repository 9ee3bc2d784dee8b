"""Reads the files that a script left in its work folder, through a descriptor, after the script has ended.

The content is untrusted: links that point anywhere, pipes that block, sparse files, folders nested a thousand deep.
The invariant: nothing outside the folder is opened, only regular files are read, and never more bytes than the
folder's limit, whatever sizes the files claim.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from metier.files.digests import digest_of
from metier.limits import MIB
from metier.sandbox import RunLimits, WrittenFile

DEPTH: Final = 16
REASONS: Final = 20
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER: Final = _FILE | os.O_DIRECTORY


def collect(folder: int, limits: RunLimits) -> tuple[tuple[WrittenFile, ...], tuple[str, ...]]:
    """Return the regular files below an open folder, sorted by path, and what was left out, with reasons."""
    files: list[WrittenFile] = []
    left_out: list[str] = []
    _unlock(folder)
    missing = 0
    room = limits.work_bytes
    for path, descriptor, reason in _walk(folder, "", 0):
        data = None
        if descriptor is not None:
            try:
                if len(files) >= limits.files:
                    reason = f"more than {limits.files} files"
                else:
                    data, reason = _content(descriptor, min(room, limits.file_bytes))
            finally:
                os.close(descriptor)
        if data is None:
            missing += 1
            if len(left_out) < REASONS:
                left_out.append(f"{path}: {reason}")
            if missing > limits.files:
                break  # the list of reasons is long enough
        else:
            room -= len(data)
            files.append(WrittenFile(path, len(data), digest_of(data), data))
    if missing > len(left_out):
        left_out.append("and more")
    return tuple(sorted(files, key=lambda file: file.path)), tuple(left_out)


def _walk(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, int | None, str]]:
    """Yield each entry that is not a folder: its path, and a descriptor of a regular file or the reason for none."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        yield prefix or ".", None, error.strerror or "cannot be listed"
        return
    for name in names:
        path = prefix + name
        try:
            mode = os.lstat(name, dir_fd=folder).st_mode
            if stat.S_ISREG(mode):
                yield path, _open(name, _FILE, folder), ""
            elif not stat.S_ISDIR(mode):
                yield path, None, "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
            elif depth >= DEPTH:
                yield path + "/", None, f"more than {DEPTH} folders deep"
            else:
                below = _open(name, _FOLDER, folder)
                try:
                    _unlock(below)
                    yield from _walk(below, path + "/", depth + 1)
                finally:
                    os.close(below)
        except OSError as error:
            yield path, None, error.strerror or "cannot be read"


def _open(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        # The script removed its own permissions. It has ended, so the entry cannot change under us.
        os.chmod(name, 0o700, dir_fd=folder)
        return os.open(name, flags, dir_fd=folder)


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
