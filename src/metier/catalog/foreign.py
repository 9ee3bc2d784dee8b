"""Which roots are foreign: those of a project that the user has not said they trust.

A cloned repository may bring a skill with the name of one that the user knows. Rules that name only a skill do not
cover skills of foreign roots. This holds whatever the policy requires of a project; `metier trust` ends it.
"""

import os
from collections.abc import Iterable
from typing import Final

from metier.hosts.roots import Place
from metier.hosts.settings import project_of
from metier.hosts.trust import trusted_projects
from metier.values.skill import Root
from metier.values.value import replace

_PROJECT_SCOPES: Final = ("repo", "project")


def is_trusted(config_folder: str, place: Place) -> bool:
    """Whether the user trusts the project that the profile sees, and the repository, which no setting moves."""
    known = trusted_projects(config_folder)
    return all(os.path.realpath(folder) in known for folder in (place.project, project_of(place.cwd)))


def mark_foreign(roots: Iterable[Root], place: Place, config_folder: str) -> tuple[Root, ...]:
    """The roots, each with whether it is foreign."""
    if is_trusted(config_folder, place):
        return tuple(roots)
    project = os.path.realpath(place.project)
    at_home = _within(os.path.realpath(place.home), project)

    def foreign(root: Root) -> bool:
        if at_home and root.scope == "user":
            return False  # the project is the home folder or above it, so its settings are the user's own
        if root.scope in _PROJECT_SCOPES and not root.explicit:
            return True
        return _within(root.path, place.project) or _within(os.path.realpath(root.path), project)

    return tuple(replace(root, foreign=True) if foreign(root) else root for root in roots)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
