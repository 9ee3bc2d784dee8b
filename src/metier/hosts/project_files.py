"""The two files with which a project sets Metier up: `.metier/config.toml`, and `[tool.metier]` in pyproject.toml.

They come with a clone, so until the user trusts the project they may only deny, ask, and name built-in hosts to check.
Everything else waits. Trust is given to what the files say at that moment: a setting that is added or changed later
waits again, and so does what a profile file says that they choose.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from metier import limits
from metier.errors import ConfigError
from metier.files.beneath import read_regular
from metier.files.shapes import is_table
from metier.hosts import profiles
from metier.values.value import Value

RESTRICTING: Final = ("deny", "ask")
"""The lists of rules that any project may have."""
USERS_ALONE: Final = ("model", "mcp", "store_days", "store_megabytes", "run.sandbox", "run.image")
"""What no project sets, trusted or not, and neither does it set `permissions` but for `RESTRICTING`: servers are
programs that are started, the model receives the conversation, the store has the records of other projects, and the
sandbox is what holds scripts back."""


class ProjectFile(Value):
    """One of the two files, with what it sets."""

    path: str
    values: Mapping[str, Any]

    @property
    def narrowing(self) -> dict[str, Any]:
        """The settings that count without trust. Of the rules, `RESTRICTING` says which ones."""
        kept: dict[str, Any] = {}
        permissions, check = self.values.get("permissions"), self.values.get("check")
        if is_table(permissions):
            kept["permissions"] = permissions
        if is_table(check) and isinstance(check.get("hosts"), list):
            kept["check"] = {"hosts": [host for host in cast("list[Any]", check["hosts"]) if not _is_file(host)]}
        return kept

    @property
    def waiting(self) -> dict[str, str]:
        """The settings that need trust, each with its value as text."""
        found = {key: _text(value) for key, value in profiles.flatten(self.values) if self._waits(key, value)}
        name = chosen_profile(self.values)
        if isinstance(name, str) and is_file(name):
            found |= {f"{name}: {key}": _text(value) for key, value in profiles.flatten(profiles.load(name))}
        return found

    @staticmethod
    def _waits(key: str, value: object) -> bool:
        if key == "check.hosts" and isinstance(value, list):
            return any(map(_is_file, cast("list[object]", value)))
        in_table = key.split(".", 2)[2:] if key.startswith("profile.") else []  # of one profile, as profile.NAME.KEY
        plain = (in_table[0] if in_table else key).removeprefix("app.").removeprefix("skills.")
        return not key.startswith("permissions.") and not any(
            plain == name or plain.startswith(f"{name}.") for name in USERS_ALONE
        )


def project_files(project: str) -> Iterator[ProjectFile]:
    """The files of a project that are there, the one that counts less first."""
    config, pyproject = os.path.join(project, ".metier", "config.toml"), os.path.join(project, "pyproject.toml")
    if os.path.isfile(config):
        yield ProjectFile(config, profiles.read_toml(config))
    start = b""
    with contextlib.suppress(OSError):
        start = read_regular(pyproject, limits.REGISTRY_BYTES, start=True)
    if b"tool.metier" in start:  # most files do not mention Metier and are not parsed
        table: object = profiles.read_toml(pyproject).get("tool", {}).get("metier", {})
        if not isinstance(table, dict):
            raise ConfigError("[tool.metier] must be a table", file=pyproject, key="tool.metier")
        yield ProjectFile(pyproject, cast("Mapping[str, Any]", table))


def waiting_settings(project: str) -> dict[str, str]:
    """The settings of a project that need trust, each with its value as text."""
    return {key: value for file in project_files(project) for key, value in file.waiting.items()}


def chosen_profile(values: Mapping[str, Any]) -> object:
    """The profile that a file chooses, as `profile = "NAME"` or as `profile.use`."""
    chosen: object = values.get("profile")
    return chosen.get("use") if is_table(chosen) else chosen


def is_file(profile: str) -> bool:
    """Whether a profile is named by its file."""
    return os.sep in profile or profile.endswith(".toml")


def _is_file(host: object) -> bool:
    return isinstance(host, str) and is_file(host)


def _text(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str, order="sorted").decode()
