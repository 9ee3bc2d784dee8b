"""Where a session gets the files of a skill from: the disk, or a record of what the disk once held.

A reader returns what it was asked for or raises a `ResourceError`; it never follows a path out of the skill's folder.
"""

import os
from contextlib import AbstractContextManager
from typing import Protocol

from metier.files.beneath import Content, Listing, list_beneath, open_folder, read_beneath
from metier.model import SKILL_FILE, Skill


class Files(Protocol):
    """The contract: paths are relative and checked, reads are bounded, listings are sorted and bounded."""

    def skill_file(self, skill: Skill, limit: int) -> Content: ...

    def resource(self, skill: Skill, path: str, limit: int) -> Content: ...

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing: ...


class DiskFiles:
    """The files as they lie there now, opened beneath the skill's folder."""

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


def _folder_of(skill: Skill) -> AbstractContextManager[int]:
    """The folder that discovery saw; or, where SKILL.md is itself a link, the one in which that link really lies."""
    linked = os.path.islink(skill.path)
    folder = os.path.realpath(skill.dir) if linked else os.path.dirname(skill.real_path)
    return open_folder(folder, holds_link=linked)
