"""Archives of the folders that a container is given. They go to the engine, which may be on another machine.

Everything belongs to root in them and nobody may write to it. The invariant: a link is stored as a link and never
followed, and an archive that would be too large is refused before anything is sent.
"""

import io
import os
import posixpath
import stat
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from typing import IO, Final

from metier import limits
from metier.errors import ScriptRefused
from metier.files.tree import SkillTree
from metier.sandbox import NO_FILES

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def skill_archive(tree: SkillTree) -> IO[bytes]:
    """The approved files of a skill."""
    file, archive = _opened()
    with archive:
        made = {""}
        for one in tree.files:
            _make_folders(archive, posixpath.dirname(one.path), made)
            if one.target:
                _add_link(archive, one.path, one.link_text)
            else:
                entry = _entry(one.path, 0o555 if one.executable else 0o444)
                entry.size = len(one.data)
                archive.addfile(entry, io.BytesIO(one.data))
    return file


def project_archive(
    folder: str | None, script: str, files: Mapping[str, bytes] = NO_FILES, below: str = ""
) -> IO[bytes]:
    """A project as it is now, without sockets, pipes and devices, and with these files in a folder below it.

    Raises `ScriptRefused` if it is too large.
    """
    given = {posixpath.join(below, name): data for name, data in files.items()}
    with ExitStack() as stack:
        file, archive = _opened()
        stack.callback(file.close)
        try:
            with archive:
                if folder is not None:
                    _add_project(archive, folder, script, given)
                for path, data in given.items():
                    entry = _entry(path, 0o444)
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
        except OSError as error:
            message = f"the project cannot be copied: {error.strerror}"
            raise ScriptRefused(script, "project-unreadable", message) from error
        stack.pop_all()  # the caller closes the file
        return file


def _add_project(archive: tarfile.TarFile, folder: str, script: str, given: Collection[str]) -> None:
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _add_all(archive, top, script, given)
    finally:
        os.close(top)


def _add_all(archive: tarfile.TarFile, top: int, script: str, given: Collection[str]) -> None:
    room = limits.TREE_BYTES
    for entries, (path, name, parent) in enumerate(_walk(top, "", 0), 1):
        if path in given:
            continue
        status = os.lstat(name, dir_fd=parent)
        if stat.S_ISREG(status.st_mode):
            room -= status.st_size
        if room < 0 or entries > limits.TREE_FILES:
            raise _too_large(script)
        _add(archive, path, name, parent, status)


def _too_large(script: str) -> ScriptRefused:
    most = f"{limits.TREE_BYTES // limits.MIB} MiB or {limits.TREE_FILES:,} files and folders"
    message = f"the project has more than {most}, which is too much to be copied into a container"
    return ScriptRefused(script, "project-too-large", message)


def _walk(folder: int, below: str, depth: int) -> Iterator[tuple[str, str, int]]:
    """Every entry: its path, its name and its open folder. A folder comes before what is in it."""
    for name in sorted(os.listdir(folder)):
        yield below + name, name, folder
        if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode) and depth < limits.WALK_DEPTH:
            opened = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=folder)
            try:
                yield from _walk(opened, f"{below}{name}/", depth + 1)
            finally:
                os.close(opened)


def _add(archive: tarfile.TarFile, path: str, name: str, parent: int, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        archive.addfile(_entry(path, 0o555, tarfile.DIRTYPE))
    elif stat.S_ISLNK(status.st_mode):
        _add_link(archive, path, os.readlink(name, dir_fd=parent))
    elif stat.S_ISREG(status.st_mode):
        with open(os.open(name, _OPEN, dir_fd=parent), "rb") as file:
            entry = _entry(path, 0o555 if status.st_mode & stat.S_IXUSR else 0o444)
            entry.size = status.st_size
            entry.mtime = int(status.st_mtime)
            archive.addfile(entry, _Exactly(file, entry.size))


class _Exactly:
    """As many bytes as were counted, also of a file that is written to meanwhile."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = -1, /) -> bytes:
        wanted = min(size, self._left) if size >= 0 else self._left
        data = self._file.read(wanted)
        data += bytes(wanted - len(data))
        self._left -= len(data)
        return data


def _make_folders(archive: tarfile.TarFile, path: str, made: set[str]) -> None:
    if path not in made:
        _make_folders(archive, posixpath.dirname(path), made)
        made.add(path)
        archive.addfile(_entry(path, 0o555, tarfile.DIRTYPE))


def _add_link(archive: tarfile.TarFile, path: str, target: str) -> None:
    entry = _entry(path, 0o777, tarfile.SYMTYPE)
    entry.linkname = target
    archive.addfile(entry)


def _entry(path: str, mode: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode = kind, mode
    return entry


def _opened() -> tuple[IO[bytes], tarfile.TarFile]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    return file, tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape")
