"""What a user switched: which skills are on, off, pinned or for people only, and which projects are trusted.

The user's file is `~/.config/metier/skills.json`, a project's `<project>/.metier/skills.json`, with paths relative
to it. The user's word outranks the project's, so that a repository cannot switch on what its user switched off.
Skills are known by path: switching one off uncovers another of the same name. Trust is the user's alone, by the real
path of a project, in `~/.config/metier/trust.json`.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from metier import limits
from metier.errors import ConfigError
from metier.model import MODES, Diagnostic, Mode, Skill
from metier.paths import read_regular

Level = Literal["user", "project"]
_FILE: Final = "skills.json"
_TRUST: Final = "trust.json"


class State:
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
        _replace(self.files[level], {"version": 1, "modes": dict(sorted(modes.items()))})


def files(user_folder: str, project: str) -> tuple[str, ...]:
    """Where all of it is kept: what to look at for changes by others."""
    return (
        os.path.join(user_folder, _FILE),
        os.path.join(project, ".metier", _FILE),
        os.path.join(user_folder, _TRUST),
    )


def trusted_projects(user_folder: str, diagnostics: list[Diagnostic] | None = None) -> list[str]:
    """The real paths of the projects that the user trusts. A file that cannot be read trusts nothing."""
    file = os.path.join(user_folder, _TRUST)
    try:
        content: Any = json.loads(read_regular(file, limits.REGISTRY_BYTES))
        return [str(path) for path in cast("list[Any]", content["projects"])]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if diagnostics is not None:
            message = f"which projects are trusted cannot be read, so none is: {error}"
            diagnostics.append(Diagnostic("state-invalid", "warning", message, file, hint="mend or delete the file"))
        return []


def trust(user_folder: str, project: str, trusted: bool = True) -> None:
    """Trust a project from now on, or no longer."""
    wanted = os.path.realpath(project)
    others = {path for path in trusted_projects(user_folder) if path != wanted}
    projects = sorted(others | {wanted} if trusted else others)
    _replace(os.path.join(user_folder, _TRUST), {"version": 1, "projects": projects})


def _replace(file: str, content: Mapping[str, Any]) -> None:
    import tempfile  # nobody who only reads should pay for it

    text = json.dumps(content, indent=2) + "\n"  # escaped, so that a path that is no UTF-8 comes back as it was
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".skills-", dir=os.path.dirname(file))
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(text)
        os.replace(temporary, file)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=file) from error
