"""Where a session gets the files of a skill from: the disk, another server, or a record.

A source returns what it was asked for or raises a `ResourceError`; it never follows a path out of the skill's folder.
"""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from metier.files.beneath import Content, Listing, list_beneath, open_folder, read_beneath
from metier.model import SKILL_FILE, Request, Skill


class Files(Protocol):
    """The files of skills, for a session.

    Paths are relative and have been checked. A read returns at most `limit` bytes and the size of the whole file; a
    listing is sorted and bounded. A file that cannot be served raises `ResourceError` or one of its subclasses. Methods
    are called from any thread.
    """

    def requests(self, skill: Skill, path: str) -> Sequence[Request]:
        """What policy must allow before this file is read; nothing for files that are here already."""
        ...

    def skill_file(self, skill: Skill, limit: int) -> Content:
        """The skill's SKILL.md."""
        ...

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        """Another file of the skill."""
        ...

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing:
        """The skill's files without SKILL.md."""
        ...

    def folder(self, skill: Skill) -> str:
        """A folder on this machine's disk with all of the skill's files, for a script to run in."""
        ...


class DiskFiles:
    """The files as they are on disk now, opened beneath the skill's folder."""

    def requests(self, skill: Skill, path: str) -> Sequence[Request]:
        return ()

    def skill_file(self, skill: Skill, limit: int) -> Content:
        # A linked SKILL.md passed the profile's rule on links when it was found; it is opened where it really lies.
        with open_folder(os.path.dirname(skill.real_path)) as folder:
            return read_beneath(folder, SKILL_FILE, limit)

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        with _folder_of(skill) as folder:
            return read_beneath(folder, path, limit)

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing:
        with _folder_of(skill) as folder:
            return list_beneath(folder, max_files, max_bytes)

    def folder(self, skill: Skill) -> str:
        return os.path.realpath(skill.dir)


def _folder_of(skill: Skill) -> AbstractContextManager[int]:
    """The folder that discovery saw; or, where SKILL.md is itself a link, the one in which that link really lies."""
    linked = os.path.islink(skill.path)
    folder = os.path.realpath(skill.dir) if linked else os.path.dirname(skill.real_path)
    return open_folder(folder, holds_link=linked)
