"""Puts the folder of a skill into place in one step, so that a reader finds the old skill or the new one, never none.

A skill is staged in a folder next to the folder of skills, where discovery does not search, and is then exchanged with
the old one by the kernel. Only one process at a time does that, so a stage that another one finds was left by a process
that was killed, and is removed.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from typing import Final

PREFIX: Final = ".installing-"
"""How the names of stages begin."""
_ASIDE: Final = ".before-"
"""Where a replaced skill waits in the stage, if the file system cannot exchange two folders."""


@contextlib.contextmanager
def exclusive(root: str) -> Generator[None, None, None]:
    """Let only one process at a time change a folder of skills and its lock file, however that process ends."""
    descriptor = os.open(os.path.dirname(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def stage(root: str) -> Generator[str, None, None]:
    """An empty folder next to the folder of skills, which is made if it is missing, while no other process installs."""
    missing = [root]
    while not os.path.lexists(missing[-1]):
        missing.append(os.path.dirname(missing[-1]))
    try:
        os.makedirs(root, exist_ok=True)
        with exclusive(root):
            _remove_stages(root)
            made = tempfile.mkdtemp(prefix=PREFIX, dir=os.path.dirname(root))
            try:
                yield made
            finally:
                shutil.rmtree(made, ignore_errors=True)
    finally:
        for folder in missing[:-1]:
            with contextlib.suppress(OSError):  # it stays if a skill is in it
                os.rmdir(folder)


def _remove_stages(root: str) -> None:
    """Remove the stages of processes that were killed, and put back what one of them had moved aside."""
    parent = os.path.dirname(root)
    for folder in (os.path.join(parent, name) for name in os.listdir(parent) if name.startswith(PREFIX)):
        if os.path.islink(folder) or not os.path.isdir(folder):
            continue
        for name in os.listdir(folder):
            target = os.path.join(root, name.removeprefix(_ASIDE))
            if name.startswith(_ASIDE) and not os.path.lexists(target):
                os.rename(os.path.join(folder, name), target)
        shutil.rmtree(folder, ignore_errors=True)


def put(folder: str, target: str, *, replaces: bool) -> None:
    """Rename a staged folder to its place. What it replaces is in the stage afterwards, at the path of the new one."""
    if not replaces:
        os.rename(folder, target)  # it fails if another program has put files there meanwhile
        return
    try:
        _exchange(folder, target)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV):
            raise
        # This file system, such as NFS, cannot exchange two folders. For a moment there is no skill of that name.
        aside = os.path.join(os.path.dirname(folder), _ASIDE + os.path.basename(folder))
        os.rename(target, aside)
        try:
            os.rename(folder, target)
        except OSError:
            os.rename(aside, target)
            raise
        os.rename(aside, folder)


def take_back(folder: str, target: str) -> None:
    """Undo `put`."""
    if os.path.lexists(folder):
        put(folder, target, replaces=True)
    else:
        os.rename(target, folder)


_AT_FDCWD: Final = -100
_EXCHANGE: Final = 2


def _exchange(one: str, other: str) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), other)
    if function(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), other)
