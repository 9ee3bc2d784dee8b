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
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

from metier import limits
from metier.errors import ScriptRefused
from metier.files.tree import SkillTree
from metier.running.sandbox.changes import READ

Entry = tuple[tarfile.TarInfo, bytes]


def skill_archive(tree: SkillTree) -> IO[bytes]:
    """The approved files of a skill."""
    return _written(
        _link(file.path, file.link_text)
        if file.target
        else _entry(file.path, file.data, 0o555 if file.executable else 0o444)
        for file in tree.files
    )


def project_archive(folder: str | None, script: str, files: Mapping[str, bytes], below: str) -> IO[bytes]:
    """A project as it is now, without sockets, pipes and devices, and with these files in a folder below it.

    Raises `ScriptRefused` if it is too large.
    """
    given = {posixpath.join(below, name): data for name, data in files.items()}

    def entries() -> Iterator[Entry]:
        for entry, data in _project(folder, script) if folder is not None else ():
            if entry.name not in given:
                yield entry, data
        for path, data in given.items():
            yield _entry(path, data)

    try:
        return _written(entries())
    except OSError as error:
        message = f"the project cannot be copied: {error.strerror}"
        raise ScriptRefused(script, "project-unreadable", message) from error


def _project(project: str, script: str) -> Iterator[Entry]:
    room, count = limits.TREE_BYTES, 0
    project = os.path.realpath(project)
    for folder, folders, files, opened in os.fwalk(project, onerror=_fail):
        below = os.path.relpath(folder, project)
        for name in sorted((*folders, *files)):
            status = os.lstat(name, dir_fd=opened)
            room -= status.st_size if stat.S_ISREG(status.st_mode) else 0
            count += 1
            if room < 0 or count > limits.TREE_FILES:
                most = f"{limits.TREE_BYTES // limits.MIB} MiB or {limits.TREE_FILES:,} files and folders"
                message = f"the project has more than {most}, which is too much to be copied into a container"
                raise ScriptRefused(script, "project-too-large", message)
            path = posixpath.normpath(posixpath.join(below, name))
            if stat.S_ISDIR(status.st_mode):
                yield _folder(path)
            elif stat.S_ISLNK(status.st_mode):
                yield _link(path, os.readlink(name, dir_fd=opened))
            elif stat.S_ISREG(status.st_mode):
                with open(os.open(name, READ, dir_fd=opened), "rb") as file:
                    data = file.read(status.st_size)  # not what is written to it meanwhile
                entry, _ = _entry(path, data, 0o555 if status.st_mode & stat.S_IXUSR else 0o444)
                entry.mtime = int(status.st_mtime)
                yield entry, data
        folders[:] = sorted(folders) if below.count("/") < limits.WALK_DEPTH else ()


def _fail(error: OSError) -> None:
    raise error


def _entry(path: str, data: bytes = b"", mode: int = 0o444, kind: bytes = tarfile.REGTYPE, target: str = "") -> Entry:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(data), target
    return entry, data


def _link(path: str, target: str) -> Entry:
    return _entry(path, mode=0o777, kind=tarfile.SYMTYPE, target=target)


def _folder(path: str) -> Entry:
    return _entry(path, mode=0o555, kind=tarfile.DIRTYPE)


def _written(entries: Iterable[Entry]) -> IO[bytes]:
    """A temporary file with an archive of the entries and of the folders that they are in.

    Docker lets only root read a folder that an archive does not name.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
            named: set[str] = set()
            for entry, data in entries:
                words = entry.name.split("/")
                for folder in ("/".join(words[:end]) for end in range(1, len(words))):
                    if folder not in named:
                        named.add(folder)
                        archive.addfile(_folder(folder)[0])
                if entry.name not in named:
                    archive.addfile(entry, io.BytesIO(data))
                    named.add(entry.name)
    except BaseException:
        file.close()
        raise
    return file
