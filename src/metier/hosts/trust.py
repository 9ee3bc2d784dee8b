"""Trust: which projects the user has said they trust, by real path, in `~/.config/metier/trust.json`.

The file is the user's alone. Where it cannot be read, nothing is trusted. With each project it has the settings that
the project's files had when the user trusted it; see `metier.hosts.project_files`.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from metier.files.json_text import read_json
from metier.files.replace import replace_json
from metier.hosts.project_files import waiting_settings
from metier.hosts.roots import Place, project_of
from metier.values.skill import Diagnostic, Root
from metier.values.value import replace

TRUST_FILE: Final = "trust.json"


def trusted_projects(
    user_folder: str, diagnostics: list[Diagnostic] | None = None
) -> Mapping[str, Mapping[str, str] | None]:
    """The projects that the user trusts, by real path, each with the settings that were trusted with it.

    There are none in a file of an earlier version. A file that cannot be read trusts nothing.
    """
    file = os.path.join(user_folder, TRUST_FILE)
    try:
        content: Any = read_json(file)
        if isinstance(content["projects"], list):
            return dict.fromkeys(map(str, cast("list[Any]", content["projects"])))
        projects = cast("dict[str, dict[str, str]]", content["projects"])
        return {path: dict(settings) for path, settings in projects.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if diagnostics is not None:
            message = f"which projects are trusted cannot be read, so none is: {error}"
            diagnostics.append(Diagnostic("state-invalid", "warning", message, file, hint="mend or delete the file"))
        return {}


def is_trusted(user_folder: str, project: str) -> bool:
    """Whether the user trusts a project."""
    return os.path.realpath(project) in trusted_projects(user_folder)


def trusted_settings(user_folder: str, project: str) -> Mapping[str, str] | None:
    """The settings that the user trusted with a project. `None` if the project is not trusted."""
    return trusted_projects(user_folder).get(os.path.realpath(project))


def trust(user_folder: str, project: str, trusted: bool = True) -> None:
    """Trust a project from now on with the settings that it has now, or no longer."""
    known = {path: settings or {} for path, settings in trusted_projects(user_folder).items()}
    known.pop(os.path.realpath(project), None)
    if trusted:
        known[os.path.realpath(project)] = waiting_settings(project)
    content = {"version": 2, "projects": dict(sorted(known.items()))}
    replace_json(os.path.join(user_folder, TRUST_FILE), content)


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
