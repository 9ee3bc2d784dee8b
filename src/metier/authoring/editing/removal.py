"""Removes a skill in a way that can be taken back.

The folder is moved to the user's configuration folder, with a note of where it was and of its entry in the lock file.
The invariant: a skill is in exactly one of the two places, and restoring it never replaces anything.
"""

import json
import os
import secrets
import shutil
from dataclasses import dataclass
from typing import Final

from metier.authoring.editing.skill_files import EditRefused, SkillFolder
from metier.errors import ResourceNotFound
from metier.files.json_text import read_json
from metier.files.replace import replace_file
from metier.files.shapes import is_table
from metier.record.writer import system_clock
from metier.sources.install import lock, placing
from metier.values.skill import REMOTE

KEPT: Final = 50
"""Removed skills that are kept; of more, the oldest are deleted for good."""


@dataclass(frozen=True, slots=True)
class RemovedSkill:
    """A skill that was removed, and where it was."""

    id: str
    name: str
    folder: str
    at_ms: int


class RemovedSkills:
    """The removed skills of one user. `folder` is the user's configuration folder."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, "removed")

    def remove(self, skill: SkillFolder) -> RemovedSkill:
        """Take a skill away. Raises `EditRefused` if it cannot be moved, or has other skills in it."""
        where = os.path.dirname(os.path.abspath(skill.file))  # a link to a skill is removed, and not what it leads to
        if skill.root is not None and skill.root.scope == REMOTE:
            raise EditRefused("It is offered by an MCP server, which alone can remove it. You can turn it off here.")
        if skill.inner:
            raise EditRefused("Other skills are in its folder. Move them first.")
        if skill.root is not None and os.path.realpath(where) == os.path.realpath(skill.root.path):
            raise EditRefused("It is itself a folder of skills. Remove it from the settings instead.")
        if not os.access(os.path.dirname(where), os.W_OK):
            raise EditRefused("The folder that it is in is read-only for the user that this server runs as.")
        root, name = os.path.dirname(where), os.path.basename(where)
        at_ms = system_clock()
        removed = RemovedSkill(f"{at_ms:013d}-{secrets.token_hex(4)}", name, where, at_ms)
        place = os.path.join(self._folder, removed.id)
        try:
            os.makedirs(place, mode=0o700)
            with placing.exclusive(root):
                locked = lock.read(root)
                entry = locked.pop(name, None)
                note = {"name": name, "folder": where, "locked": entry.as_dict() if entry else None}
                replace_file(os.path.join(place, "note.json"), json.dumps(note).encode(), 0o600)
                shutil.move(where, os.path.join(place, "skill"))
                if entry is not None:
                    lock.write(root, locked, f"{lock.location(root)}.new")
        except OSError as error:
            shutil.rmtree(place, ignore_errors=True)
            raise EditRefused(f"{name} cannot be removed: {error.strerror}") from error
        for old in self.all()[KEPT:]:
            shutil.rmtree(os.path.join(self._folder, old.id), ignore_errors=True)
        return removed

    def all(self) -> list[RemovedSkill]:
        """The removed skills, the latest first."""
        names = sorted(self._names(), reverse=True)
        return [one for name in names if (one := self._read(name)[0]) is not None]

    def restore(self, removed: str) -> RemovedSkill:
        """Put a skill back where it was. Raises `EditRefused` if something is there now."""
        found, locked = self._read(removed) if removed in self._names() else (None, None)
        if found is None:
            raise ResourceNotFound("this removed skill")
        place, root = os.path.join(self._folder, removed), os.path.dirname(found.folder)
        try:
            os.makedirs(root, exist_ok=True)
            with placing.exclusive(root):
                if os.path.lexists(found.folder):
                    raise EditRefused(f"{found.folder} exists again. Nothing was changed.")
                shutil.move(os.path.join(place, "skill"), found.folder)
                if locked is not None:
                    entries = {**lock.read(root), found.name: lock.parse_locked(found.name, locked)}
                    lock.write(root, entries, f"{lock.location(root)}.new")
        except (OSError, ValueError) as error:
            raise EditRefused(f"{found.name} cannot be put back: {error}") from error
        shutil.rmtree(place, ignore_errors=True)
        return found

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except OSError:
            return []

    def _read(self, name: str) -> tuple[RemovedSkill | None, object]:
        try:
            note: object = read_json(os.path.join(self._folder, name, "note.json"))
        except (OSError, ValueError):
            return None, None
        at = name.partition("-")[0]
        if not is_table(note) or not at.isdigit() or not os.path.lexists(os.path.join(self._folder, name, "skill")):
            return None, None
        folder = str(note.get("folder", ""))
        return RemovedSkill(name, str(note.get("name", "")), folder, int(at)), note.get("locked")
