"""Settings, tools in rules, commands and options of earlier versions, each with what to do instead.

Files of users go on working: what they still have of these is left out with a warning. `removed.toml` is the only place
where such a name may stand.
"""

import os
from collections.abc import Mapping
from functools import cache
from typing import Literal, cast

from metier.values.skill import Diagnostic

Kind = Literal["settings", "tools", "commands", "options"]


@cache
def removed(kind: Kind) -> Mapping[str, str]:
    """The names of a kind that are gone, and what to do instead."""
    import tomllib  # few files have such a name

    with open(os.path.join(os.path.dirname(__file__), "removed.toml"), "rb") as file:
        return cast("Mapping[Kind, Mapping[str, str]]", tomllib.load(file)).get(kind, {})


def setting_removed(key: str, file: str, line: int) -> Diagnostic:
    """The warning about a setting that is gone."""
    message = f"there is no setting {key} any more, so it has no effect"
    return Diagnostic("setting-removed", "warning", message, file, line, min(line, 1), removed("settings")[key])
