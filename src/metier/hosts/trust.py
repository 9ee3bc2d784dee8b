"""Trust: which projects the user has said they trust, by real path, in `~/.config/metier/trust.json`.

The file is the user's alone. Where it cannot be read, nothing is trusted.
"""

import os
from collections.abc import Iterable
from typing import Any, Final, cast

from metier.files.json_text import read_json
from metier.files.replace import replace_json
from metier.hosts.roots import Place, project_of
from metier.values.skill import Diagnostic, Root
from metier.values.value import replace

TRUST_FILE: Final = "trust.json"


def trusted_projects(user_folder: str, diagnostics: list[Diagnostic] | None = None) -> list[str]:
    """The real paths of the projects that the user trusts. A file that cannot be read trusts nothing."""
    file = os.path.join(user_folder, TRUST_FILE)
    try:
        content: Any = read_json(file)
        return [str(path) for path in cast("list[Any]", content["projects"])]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        if diagnostics is not None:
            message = f"which projects are trusted cannot be read, so none is: {error}"
            diagnostics.append(Diagnostic("state-invalid", "warning", message, file, hint="mend or delete the file"))
        return []


def is_trusted(user_folder: str, project: str) -> bool:
    """Whether the user trusts a project."""
    return os.path.realpath(project) in trusted_projects(user_folder)


def trust(user_folder: str, project: str, trusted: bool = True) -> None:
    """Trust a project from now on, or no longer."""
    wanted = os.path.realpath(project)
    others = {path for path in trusted_projects(user_folder) if path != wanted}
    projects = sorted(others | {wanted} if trusted else others)
    replace_json(os.path.join(user_folder, TRUST_FILE), {"version": 1, "projects": projects})


def trusts_place(config_folder: str, place: Place) -> bool:
    """Whether the user trusts the project that the profile sees, and the repository, which no setting moves."""
    known = trusted_projects(config_folder)
    return all(os.path.realpath(folder) in known for folder in (place.project, project_of(place.cwd)))


def mark_foreign(roots: Iterable[Root], place: Place, config_folder: str) -> tuple[Root, ...]:
    """The roots, each with whether it is foreign: of a project that the user has not said they trust.

    A cloned repository may bring a skill with the name of one that the user knows. Rules that name only a skill do not
    cover skills of foreign roots. This holds whatever the policy requires of a project; `metier trust` ends it.
    """
    if trusts_place(config_folder, place):
        return tuple(roots)
    project = os.path.realpath(place.project)
    at_home = _within(os.path.realpath(place.home), project)

    def foreign(root: Root) -> bool:
        if at_home and root.scope == "user":
            return False  # the project is the home folder or above it, so its settings are the user's own
        if root.scope in ("repo", "project") and not root.explicit:
            return True
        return _within(root.path, place.project) or _within(os.path.realpath(root.path), project)

    return tuple(replace(root, foreign=True) if foreign(root) else root for root in roots)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
