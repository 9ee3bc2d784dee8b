"""Where a session gets the files of a skill from: the disk, or a record of what the disk once held.

A reader returns what it was asked for or raises a `ResourceError`; it never follows a path out of the skill's folder.
"""

import os
from typing import Protocol

from metier.model import SKILL_FILE, Skill
from metier.paths import Content, Listing, list_files, read_file


class Files(Protocol):
    """The contract: paths are relative and checked, reads are bounded, listings are sorted and bounded."""

    def skill_file(self, skill: Skill, limit: int) -> Content: ...

    def resource(self, skill: Skill, path: str, limit: int) -> Content: ...

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing: ...


class DiskFiles:
    """The files as they lie there now, opened beneath the skill's folder."""

    def skill_file(self, skill: Skill, limit: int) -> Content:
        # A linked SKILL.md passed the profile's rule on links when it was found; it is opened where it really lies.
        return read_file(os.path.dirname(skill.real_path), SKILL_FILE, limit)

    def resource(self, skill: Skill, path: str, limit: int) -> Content:
        return read_file(os.path.realpath(skill.dir), path, limit)

    def listing(self, skill: Skill, max_files: int, max_bytes: int) -> Listing:
        return list_files(skill.dir, max_files, max_bytes)
