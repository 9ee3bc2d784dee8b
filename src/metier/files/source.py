"""Where a session gets the files of a skill from: the disk, another server, or a record.

A source returns the requested file or raises a `ResourceError`. It never follows a path out of the skill's folder.
"""

import os
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from metier.errors import ResourceNotFound
from metier.files.beneath import (
    Content,
    Listing,
    check_owner,
    list_beneath,
    location,
    open_beneath,
    open_folder,
    open_real_folder,
    read_beneath,
    read_opened,
)
from metier.files.tree import SkillTree, take
from metier.values.results import Request
from metier.values.skill import SKILL_FILE, Skill
from metier.values.value import Value


class Files(Protocol):
    """The files of skills, for a session. Pass it to `Skills.session(files=...)`.

    This protocol is everything that an implementation needs:

    - A path is relative to the skill's folder, with `/` between its parts and without `.` and `..`. It was checked as
      text only: an implementation must not follow a link that leaves the skill's folder.
    - A path beneath one of `skill.inner` belongs to another skill and is not served, nor is SKILL.md as a `resource`.
    - A file that cannot be served raises `ResourceError` or a subclass: `ResourceNotFound` if there is no such file,
      `PathEscape` if it is outside of the folder. Nothing else is raised.
    - Methods are called from any thread, also from several at once, and may block.
    """

    def requests(self, skill: Skill, path: str) -> Sequence[Request]:
        """Return what policy must allow before this file is read. Files that are already here need nothing."""
        ...

    def skill_file(self, skill: Skill, limit: int) -> Content:
        """Read the skill's SKILL.md, with the same rules as `resource`."""
        ...

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        """Read a file of the skill. `data` has at most `limit` bytes; `size` is the size of the whole file."""
        ...

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing:
        """List the skill's files without SKILL.md, sorted by path.

        The result has at most `max_files` files with a total size of at most `max_bytes`. It is `truncated` if that
        leaves files out, and `left_out` says how many, if that is known. `metier.files.beneath.within_limits` has the
        rule for which ones.
        """
        ...

    def folder(self, skill: Skill) -> str:
        """Return a folder on this machine's disk that has all of the skill's files, for a script to run in."""
        ...


class ScriptFiles(Value, kw_only=True):
    """A script and all the files that it runs with, as they were at one moment."""

    unshown = ("tree",)

    content: bytes
    """The script itself."""
    listing: bytes
    """The list of all files, whose digest is the digest of the tree."""
    tree: SkillTree | None = None
    """Those files. A replay has none, and runs nothing."""
    folder: str = ""
    """Where they were taken."""


class DiskFiles:
    """The files as they are on disk now, opened beneath the skill's folder."""

    def requests(self, skill: Skill, path: str) -> Sequence[Request]:
        return ()

    def skill_file(self, skill: Skill, limit: int) -> Content:
        # A linked SKILL.md passed the profile's rule on links when it was found. It is opened at its real path.
        return _read(skill, SKILL_FILE, limit)

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        return _read(skill, path, limit, skill.inner)

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing:
        folder = _folder_of(skill)
        try:
            return list_beneath(folder, max_files, max_bytes, frozenset(skill.inner) if skill.inner else ())
        finally:
            os.close(folder)

    def folder(self, skill: Skill) -> str:
        return skill.folder


def take_folder(folder: str, inner: Collection[str] = ()) -> SkillTree:
    """Take the whole folder of a skill, without the folders of `inner` skills.

    Raises `PathEscape` if a component of its path has become a link.
    """
    with open_folder(folder) as found:
        opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=found)
        try:
            return take(opened, inner)
        finally:
            os.close(opened)


_ATTEMPTS: Final = 8
"""How often a file is looked for while an install replaces the folder around it."""


def _read(skill: Skill, path: str, limit: int, inner: Collection[str] | None = None) -> Content:
    """Read a file of a skill. If the folder was replaced after it was opened, the file of the new one is read.

    With `inner`, it must be a resource of the skill in the folder: neither SKILL.md nor a file of an inner skill.
    """
    looked: tuple[int, int] | None = None
    for _ in range(_ATTEMPTS):
        folder = open_real_folder(os.path.dirname(skill.real_path)) if inner is None else _folder_of(skill)
        try:
            return read_beneath(folder, path, limit) if inner is None else _resource(folder, path, limit, inner)
        except ResourceNotFound:
            status = os.fstat(folder)
            if looked == (status.st_dev, status.st_ino):
                raise
            looked = (status.st_dev, status.st_ino)
        finally:
            os.close(folder)
    raise ResourceNotFound(path)


def _resource(folder: int, path: str, limit: int, inner: Collection[str]) -> Content:
    opened = open_beneath(folder, path, path)
    try:
        check_owner(folder, opened, path, inner)
        real = location(folder, opened)
        return read_opened(opened, path, limit)._replace(real=real if real != path else "")
    finally:
        os.close(opened)


def _folder_of(skill: Skill) -> int:
    """Open the folder of a skill: the one that the scan found or, if SKILL.md is a link, the one that has the link."""
    linked = os.path.islink(skill.path)
    folder = os.path.realpath(skill.dir) if linked else os.path.dirname(skill.real_path)
    return open_real_folder(folder, holds_link=linked)
