"""Where a session gets the files of a skill from: the disk, another server, or a record.

A source returns the requested file or raises a `ResourceError`. It never follows a path out of the skill's folder.
"""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from metier.files.beneath import (
    Content,
    Listing,
    check_owner,
    list_beneath,
    open_beneath,
    open_folder,
    read_beneath,
    read_opened,
)
from metier.model import SKILL_FILE, Skill
from metier.results import Request


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
        leaves files out.
        """
        ...

    def folder(self, skill: Skill) -> str:
        """Return a folder on this machine's disk that has all of the skill's files, for a script to run in."""
        ...


class DiskFiles:
    """The files as they are on disk now, opened beneath the skill's folder."""

    def requests(self, skill: Skill, path: str) -> Sequence[Request]:
        return ()

    def skill_file(self, skill: Skill, limit: int) -> Content:
        # A linked SKILL.md passed the profile's rule on links when it was found. It is opened at its real path.
        with open_folder(os.path.dirname(skill.real_path)) as folder:
            return read_beneath(folder, SKILL_FILE, limit)

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        with _folder_of(skill) as folder:
            opened = open_beneath(folder, path, path)
            try:
                check_owner(folder, opened, path, skill.inner)
                return read_opened(opened, path, limit)
            finally:
                os.close(opened)

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing:
        with _folder_of(skill) as folder:
            return list_beneath(folder, max_files, max_bytes, frozenset(skill.inner))

    def folder(self, skill: Skill) -> str:
        return os.path.realpath(skill.dir)


def _folder_of(skill: Skill) -> AbstractContextManager[int]:
    """Open the folder of a skill: the one that the scan found or, if SKILL.md is a link, the one that has the link."""
    linked = os.path.islink(skill.path)
    folder = os.path.realpath(skill.dir) if linked else os.path.dirname(skill.real_path)
    return open_folder(folder, holds_link=linked)
