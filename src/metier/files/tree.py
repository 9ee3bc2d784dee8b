"""The whole folder of a skill, taken once: what is digested, shown, approved and mounted is the same copy.

A tree holds the bytes of every file, so an edit on disk after it was taken changes nothing. Links that stay inside the
folder are kept as links, and links that leave it are left out. So are repositories and compiled Python: nobody can read
bytecode before approving it, and Python prefers it to the source beside it.
"""

import json
import os
import posixpath
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from metier import limits
from metier.errors import ResourceError
from metier.files.beneath import OPEN, read_opened
from metier.files.digests import digest_of
from metier.values.value import Value

LEFT_OUT: Final = frozenset((".git", "__pycache__"))
"""Folders that are not part of a tree."""
_BYTECODE: Final = (".pyc", ".pyo")
_LINK: Final = "link:"

Row = tuple[str, str, bool]
"""A file of a tree: its path, the digest of its bytes, and whether it is executable."""


def tree_digest(rows: Iterable[Row]) -> str:
    """The digest of a tree. JSON quotes every part, so two different trees never have the same text."""
    return digest_of(tree_text(rows))


def tree_text(rows: Iterable[Row]) -> bytes:
    """The list of files whose digest is the digest of the tree."""
    return json.dumps([list(row) for row in sorted(rows)], separators=(",", ":")).encode()


class TreeFile(Value):
    """A regular file, with its bytes, or a link to another path of the tree, with that path in `target`."""

    unshown = ("data",)

    path: str
    data: bytes
    executable: bool = False
    target: str = ""

    @property
    def link_text(self) -> str:
        """The target relative to the link, as the link has it on disk."""
        return posixpath.relpath(f"/{self.target}", f"/{posixpath.dirname(self.path)}")

    @property
    def row(self) -> Row:
        return (self.path, f"{_LINK}{self.target}" if self.target else digest_of(self.data), self.executable)


class SkillTree(Value, dict=True):
    """The files of a skill as they were at one moment, sorted by path."""

    files: tuple[TreeFile, ...]

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        return tuple(file.row for file in self.files)

    @cached_property
    def digest(self) -> str:
        return tree_digest(self.rows)

    @property
    def size(self) -> int:
        return sum(len(file.data) for file in self.files)

    def within(self, folders: Collection[str]) -> Iterator[TreeFile]:
        """The files in these folders of the skill's own, without links."""
        return (
            file
            for file in self.files
            if not file.target and "/" in file.path and file.path.split("/", 1)[0] in folders
        )

    def write(self, folder: str) -> None:
        """Write the tree into an empty folder, with files that nobody may write to."""
        for file in self.files:
            path = os.path.join(folder, file.path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if file.target:
                os.symlink(file.link_text, path)
                continue
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as stream:
                stream.write(file.data)
                os.fchmod(stream.fileno(), 0o555 if file.executable else 0o444)

    def file(self, path: str) -> TreeFile | None:
        """The file at a path, through the links of the tree, or `None` if there is none."""
        found = {file.path: file for file in self.files}
        real = follow({file.path: file.target for file in self.files if file.target}, path)
        return found.get(real)


def digest_in(rows: Iterable[Row], path: str) -> str:
    """The digest of the file at a path of a tree, through its links; empty if there is none."""
    known = {name: digest for name, digest, _ in rows}
    links = {name: what.removeprefix(_LINK) for name, what in known.items() if what.startswith(_LINK)}
    found = known.get(follow(links, path), "")
    return "" if found.startswith(_LINK) else found


def follow(links: Mapping[str, str], path: str) -> str:
    """The path to which a path leads, through links to files and to folders; empty if they form a loop."""
    for _ in range(limits.TREE_LINKS):
        link = next((part for part in _prefixes(path) if part in links), None)
        if link is None:
            return path
        path = links[link] + path[len(link) :]
    return ""


def _prefixes(path: str) -> Iterator[str]:
    """The path of each folder on the way to a file, and of the file."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)
    yield path


def take(folder: int, without: Collection[str] = ()) -> SkillTree:
    """Read everything beneath an open folder. Raises `ResourceError` if it is too large to be approved and mounted.

    `without` has folders that are not part of the tree, relative to the folder: those of other skills.
    """
    files: list[TreeFile] = []
    room = limits.TREE_BYTES
    try:
        for path, name, parent in _walk(folder, "", 0, frozenset(without)):
            if len(files) >= limits.TREE_FILES:
                raise _too_large(f"it has more than {limits.TREE_FILES:,} files")
            mode = os.lstat(name, dir_fd=parent).st_mode
            if stat.S_ISREG(mode):
                data = _read(name, parent, room)
                room -= len(data)
                files.append(TreeFile(path, data, bool(mode & stat.S_IXUSR)))
            elif target := _target(path, os.readlink(name, dir_fd=parent)):
                files.append(TreeFile(path, b"", target=target))
    except OSError as error:
        message = f"the skill's folder cannot be read as a whole: {error.strerror}"
        raise ResourceError(message, path=str(error.filename or "."), reason="unreadable") from error
    return SkillTree(tuple(sorted(files, key=lambda file: file.path)))


def _walk(folder: int, below: str, depth: int, without: frozenset[str]) -> Iterator[tuple[str, str, int]]:
    """Every regular file and link: its path, its name and its open folder. Sockets, devices and pipes are left out."""
    if depth > limits.WALK_DEPTH:
        raise _too_large(f"it has more than {limits.WALK_DEPTH} levels of folders")
    for name in sorted(os.listdir(folder)):
        mode = os.lstat(name, dir_fd=folder).st_mode
        if stat.S_ISDIR(mode) and (name in LEFT_OUT or below + name in without):
            continue
        if stat.S_ISDIR(mode):
            opened = os.open(name, OPEN | os.O_DIRECTORY, dir_fd=folder)
            try:
                yield from _walk(opened, f"{below}{name}/", depth + 1, without)
            finally:
                os.close(opened)
        elif (stat.S_ISREG(mode) or stat.S_ISLNK(mode)) and not name.endswith(_BYTECODE):
            yield below + name, name, folder


def _read(name: str, folder: int, room: int) -> bytes:
    opened = os.open(name, OPEN, dir_fd=folder)
    try:
        data = read_opened(opened, name, room + 1).data
    finally:
        os.close(opened)
    if len(data) > room:
        raise _too_large(f"its files have more than {limits.TREE_BYTES // limits.MIB} MiB")
    return data


def _target(path: str, target: str) -> str:
    """The path in the tree to which a link leads, or an empty text if it leaves the tree."""
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return "" if target.startswith("/") or joined.startswith("..") or joined == "." else joined


def _too_large(what: str) -> ResourceError:
    message = f"the skill's folder is too large to run scripts from it: {what}"
    return ResourceError(message, path=".", reason="too-large")
