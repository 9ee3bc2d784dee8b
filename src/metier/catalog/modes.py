"""Modes: which skills the user or the project switched off, hid from the model or pinned.

The user's file is `~/.config/metier/skills.json`, a project's `<project>/.metier/skills.json`, with paths relative
to it. The user's word outranks the project's, so that a repository cannot switch on what its user switched off.
Skills are known by path: switching one off uncovers another of the same name.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from metier import limits
from metier.files.beneath import read_regular
from metier.files.json_file import replace_json
from metier.hosts.trust import TRUST_FILE, trusted_projects
from metier.model import MODES, Diagnostic, Mode, Skill

Level = Literal["user", "project"]
_FILE: Final = "skills.json"


class Modes:
    """The modes of skills on both levels. `set` writes at once."""

    def __init__(self, user_folder: str, project: str) -> None:
        self.project = project
        self.files: Mapping[Level, str] = {
            "user": os.path.join(user_folder, _FILE),
            "project": os.path.join(project, ".metier", _FILE),
        }
        self.diagnostics: list[Diagnostic] = []
        self.modes: dict[Level, dict[str, Mode]] = {level: self._read(level) for level in self.files}
        self.trusted = os.path.realpath(project) in trusted_projects(user_folder, self.diagnostics)

    def mode(self, skill: Skill) -> Mode:
        """What the user said of it, else the project, else the skill itself."""
        user, project = self.modes["user"], self.modes["project"]
        if not user and not project:
            return skill.mode
        return user.get(skill.path) or project.get(self._relative(skill.path)) or skill.mode

    def set(self, skill: Skill, mode: Mode, level: Level = "user") -> None:
        key = skill.path if level == "user" else self._relative(skill.path)
        modes = dict(self._read(level))
        modes[key] = mode
        self._write(level, modes)
        self.modes[level] = modes

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.project) if path.startswith(self.project.rstrip("/") + "/") else path

    def _read(self, level: Level) -> dict[str, Mode]:
        file = self.files[level]
        try:
            content: Any = json.loads(read_regular(file, limits.REGISTRY_BYTES))
            modes = cast("dict[str, Any]", content["modes"])
            return {str(path): mode for path, mode in modes.items() if mode in MODES}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            message = f"which skills are on or off cannot be read and does not count: {error}"
            self.diagnostics.append(
                Diagnostic("state-invalid", "warning", message, file, hint="mend or delete the file")
            )
            return {}

    def _write(self, level: Level, modes: dict[str, Mode]) -> None:
        replace_json(self.files[level], {"version": 1, "modes": dict(sorted(modes.items()))})


def files(user_folder: str, project: str) -> tuple[str, ...]:
    """Where all of it is kept: what to look at for changes by others."""
    return (
        os.path.join(user_folder, _FILE),
        os.path.join(project, ".metier", _FILE),
        os.path.join(user_folder, TRUST_FILE),
    )
