"""Stores the modes of skills: which are pinned, hidden from the model or off, for the user and for the project.

The user's file is `~/.config/metier/skills.json`. A project's file is `<project>/.metier/skills.json` and has relative
paths. The user's file wins, and the project's file can only hide more: it comes with a clone, which turns nothing on.
Skills are stored by path, so turning one off uncovers another one of the same name.
"""

import os
from collections.abc import Mapping
from typing import Final, Literal

from metier.errors import ConfigError
from metier.files.json_text import read_json
from metier.files.replace import replace_json
from metier.files.shapes import as_table, is_table
from metier.hosts.trust import TRUST_FILE, trusted_projects
from metier.values.skill import MODES, Diagnostic, Mode, Skill

Level = Literal["user", "project"]
_FILE: Final = "skills.json"


class Modes:
    """The modes of skills on both levels, and whether the project is trusted. `set` writes at once."""

    def __init__(self, user_folder: str, project: str) -> None:
        self.project = project
        self.files: Mapping[Level, str] = {
            "user": os.path.join(user_folder, _FILE),
            "project": os.path.join(project, ".metier", _FILE),
        }
        self.diagnostics: list[Diagnostic] = []
        self.by_level: dict[Level, dict[str, Mode]] = {level: self._read(level) for level in self.files}
        self.trusted = os.path.realpath(project) in trusted_projects(user_folder, self.diagnostics)

    def mode(self, skill: Skill) -> Mode:
        """Return the mode that the user set, else the project's, else the skill's own."""
        user, project = self.by_level["user"], self.by_level["project"]
        if not user and not project:
            return skill.mode
        if skill.path in user:
            return user[skill.path]
        mode = project.get(self._relative(skill.path), skill.mode)
        narrower = MODES.index(mode) > MODES.index(skill.mode)  # they stand from the widest to the narrowest
        return mode if narrower else skill.mode

    def set(self, skill: Skill, mode: Mode, level: Level = "user") -> None:
        """Store the mode of a skill. Raises `ConfigError` if the file cannot be written, or is a project's and may
        not pin."""
        if level == "project" and mode == "pinned":
            hint = "without --project, it is pinned for you in every project"
            raise ConfigError("a project cannot pin a skill, only hide it or switch it off", key="mode", hint=hint)
        key = skill.path if level == "user" else self._relative(skill.path)
        modes: dict[str, Mode] = {**self._read(level), key: mode}
        replace_json(self.files[level], {"version": 1, "modes": dict(sorted(modes.items()))})
        self.by_level[level] = modes

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.project) if path.startswith(self.project.rstrip("/") + "/") else path

    def _read(self, level: Level) -> dict[str, Mode]:
        file = self.files[level]
        try:
            modes = as_table(read_json(file)).get("modes")
            if not is_table(modes):
                raise ValueError("the file has no table `modes`")
            return {path: mode for path, mode in modes.items() if mode in MODES}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError) as error:
            message = f"the modes of skills cannot be read and are ignored: {error}"
            hint = "fix or delete the file"
            self.diagnostics.append(Diagnostic("state-invalid", "warning", message, path=file, hint=hint))
            return {}


def files(user_folder: str, project: str) -> tuple[str, ...]:
    """Return the files that decide about modes and trust, to watch for changes."""
    return (
        os.path.join(user_folder, _FILE),
        os.path.join(project, ".metier", _FILE),
        os.path.join(user_folder, TRUST_FILE),
    )
