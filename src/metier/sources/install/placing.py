"""Puts the folder of a skill into place in one step, so that a reader finds the old skill or the new one, never none.

A skill is written to a staging folder next to the folder of skills, which is locked as long as its process lives. Two
folders are exchanged by the kernel. Before that a journal in the user's own folder says what will be true afterwards,
and it is removed when the lock file and the event have followed. If a process is killed in between, the next install
finishes what the journal says, and removes staging folders that no process holds.
"""

import contextlib
import ctypes
import errno
import fcntl
import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator
from typing import Final

import msgspec

from metier.errors import ConfigError, InstallError
from metier.files.digests import digest_of
from metier.files.json_text import read_json
from metier.sources.install import lock
from metier.values.value import JsonObject, Value

PREFIX: Final = ".installing-"
"""How the names of staging folders begin. Discovery does not search next to the folder of skills."""
BEFORE: Final = ".before"
"""Where the replaced folder waits in the staging folder, if the file system cannot exchange two folders."""


# --- the staging folder ---


def exclusive(root: str) -> contextlib.AbstractContextManager[None]:
    """Let only one install at a time create or remove staging folders, rename skills, and write the lock file."""
    return _locked(os.path.dirname(root))


@contextlib.contextmanager
def staging_folder(root: str, finish: Callable[[str], None]) -> Generator[str, None, None]:
    """A temporary folder next to the folder of skills, on the same disk.

    `finish` finishes the install of a killed process. Then what such processes left behind is removed.
    """
    missing = [root]
    while not os.path.lexists(missing[-1]):
        missing.append(os.path.dirname(missing[-1]))
    with contextlib.ExitStack() as stack:
        try:
            os.makedirs(root, exist_ok=True)
            with exclusive(root):
                finish(root)
                _remove_abandoned(os.path.dirname(root))
                made = tempfile.mkdtemp(prefix=PREFIX, dir=os.path.dirname(root))
                stack.callback(_remove_empty, missing[:-1])
                stack.callback(shutil.rmtree, made, ignore_errors=True)
                stack.enter_context(_locked(made))
        except OSError as error:
            _remove_empty(missing[:-1])
            raise InstallError(f"{root} cannot be written: {error.strerror}", reason="unwritable") from error
        yield made


@contextlib.contextmanager
def _locked(folder: str, *, wait: bool = True) -> Generator[None, None, None]:
    """Hold the lock of a folder. It ends with the process, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(parent: str) -> None:
    """Remove the staging folders whose process has ended. The caller is the only one that may create one now."""
    for name in os.listdir(parent):
        folder = os.path.join(parent, name)
        if name.startswith(PREFIX):
            with contextlib.suppress(OSError), _locked(folder, wait=False):
                shutil.rmtree(folder, ignore_errors=True)


def _remove_empty(folders: list[str]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # a folder that is not empty stays
            os.rmdir(folder)


# --- renaming ---


def put(folder: str, target: str, *, replaces: bool) -> None:
    """Rename a staged folder to its place. A folder that is replaced is in the staging folder afterwards."""
    if not replaces:
        _rename(folder, target, _NO_REPLACE)
        return
    try:
        _rename(folder, target, _EXCHANGE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV):
            raise
        # This file system, such as NFS, cannot exchange two folders. For a moment there is no skill of that name.
        old = os.path.join(os.path.dirname(folder), BEFORE)
        os.rename(target, old)
        try:
            os.rename(folder, target)
        except OSError:
            os.rename(old, target)
            raise
        os.rename(old, folder)


def take_back(folder: str, target: str, *, replaces: bool) -> None:
    """Undo `put`."""
    if replaces:
        put(folder, target, replaces=True)
    else:
        os.rename(target, folder)


_NO_REPLACE: Final = 1
_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100


def _rename(source: str, target: str, flags: int) -> None:
    function = _renameat2()
    if function is not None:
        if function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags) == 0:
            return
        code = ctypes.get_errno()
        if flags == _EXCHANGE or code not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code), target)
    elif flags == _EXCHANGE:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), target)
    if os.path.lexists(target):
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    os.rename(source, target)


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


# --- the journal ---


class Placement(Value):
    """A skill that is being put into place: its new entry in the lock file, and the event to record."""

    root: str
    name: str
    staging: str
    locked: lock.Locked
    event_id: str
    timestamp_ms: int
    event: JsonObject

    @property
    def target(self) -> str:
        return os.path.join(self.root, self.name)

    def happened(self) -> bool:
        """Whether the files in place are the new ones."""
        return not any(True for _ in lock.differences(self.target, self.locked.files))


def journal_file(folder: str, root: str) -> str:
    """The journal of a folder of skills, in the user's own folder: a project cannot bring one."""
    return os.path.join(folder, "installing", f"{digest_of(os.fsencode(root)).removeprefix('sha256:')[:32]}.json")


def write_journal(folder: str, change: Placement) -> None:
    file = journal_file(folder, change.root)
    temporary = f"{file}.new"  # always the same, so that none is left behind for ever
    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        with open(temporary, "w", encoding="ascii") as stream:
            json.dump(change.as_dict(), stream)
        os.replace(temporary, file)
    except OSError as error:
        raise ConfigError(f"the journal of installs cannot be written: {error.strerror}", file=file) from error


def remove_journal(folder: str, root: str) -> None:
    file = journal_file(folder, root)
    for written in (file, f"{file}.new"):
        with contextlib.suppress(OSError):
            os.unlink(written)
    _remove_empty([os.path.dirname(file)])


def read_journal(folder: str, root: str) -> Placement | None:
    """The change that a killed process left unfinished, if there is one. The caller holds the lock of `exclusive`."""
    file = journal_file(folder, root)
    try:
        change = msgspec.convert(read_json(file), Placement)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"the journal of installs cannot be read: {error}", file=file, hint="delete it") from error
    if change.root != root:
        raise ConfigError("the journal of installs is that of another folder", file=file, hint="delete it")
    return change


def put_back(change: Placement) -> None:
    """Return a replaced folder that was moved aside but not replaced. Only a file system without exchange needs it."""
    old = os.path.join(change.staging, BEFORE)
    if os.path.lexists(old) and not os.path.lexists(change.target):
        os.rename(old, change.target)
