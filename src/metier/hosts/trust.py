"""Trust: which projects the user has said they trust, by real path, in `~/.config/metier/trust.json`.

The file is the user's alone. Where it cannot be read, nothing is trusted.
"""

import os
from typing import Any, Final, cast

from metier.files.json_text import read_json
from metier.files.replace import replace_json
from metier.values.skill import Diagnostic

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
