"""Creates a skill to start from: SKILL.md, a reference and a script, with comments.

Its text is data, in `new.toml`. Nothing that exists is changed, and a skill that cannot be written completely is
not left behind in part.
"""

import json
import os
import re
import shutil
import tomllib
import unicodedata

from metier import limits
from metier.catalog import validate
from metier.errors import ConfigError
from metier.files.text import printable, remove_invisible
from metier.hosts import roots
from metier.hosts.settings import Settings
from metier.values.skill import SKILL_FILE


class SkillExists(ConfigError):
    """There is something at the place of the new skill."""


def new_skill(
    config: Settings, name: str, description: str | None, *, user: bool, folder: str | None = None
) -> list[str]:
    """Create a skill for the project, for the user, or in a given folder, and return the files that were written."""
    check_name(name)
    text = " ".join(remove_invisible(description or "").split())
    if description is not None and not 1 <= len(text) <= limits.DESCRIPTION_LENGTH:
        raise ConfigError(f"the description has {len(text)} characters, not 1 to {limits.DESCRIPTION_LENGTH}", key="")
    skill = os.path.join(folder_for(config, user=user, given=folder), name)
    if os.path.lexists(skill):
        raise SkillExists(f"{printable(skill)} already exists; nothing was changed", key="NAME")
    about = text or f"Does what {name} is for. Use when the user asks for it. (Replace these sentences with your own.)"
    files = template()
    quoted = json.dumps(about, ensure_ascii=False)  # JSON is valid YAML
    title = name.replace("-", " ").capitalize()
    files[SKILL_FILE] = files[SKILL_FILE].format(name=name, description=quoted, title=title)
    made: list[str] = []
    file = os.path.join(skill, SKILL_FILE)
    try:
        os.makedirs(os.path.dirname(skill), exist_ok=True)
        os.mkdir(skill)
    except OSError as error:
        if error.filename == skill and isinstance(error, FileExistsError):  # created by somebody else meanwhile
            raise SkillExists(f"{printable(skill)} already exists; nothing was changed", key="NAME") from error
        raise _unwritable(error, file) from error
    try:
        for relative, content in files.items():
            file = os.path.join(skill, relative)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "x", encoding="utf-8", errors="replace") as stream:
                stream.write(content)
            made.append(file)
        os.chmod(os.path.join(skill, "scripts/example.py"), 0o755)  # noqa: S103 - scripts are executable
    except OSError as error:
        shutil.rmtree(skill, ignore_errors=True)  # half a skill would be in the way the next time
        raise _unwritable(error, file) from error
    return made


def template() -> dict[str, str]:
    """The files of a new skill, by path."""
    with open(os.path.join(os.path.dirname(__file__), "new.toml"), "rb") as stream:
        return tomllib.load(stream)


def _unwritable(error: OSError, file: str) -> ConfigError:
    error.filename = error.filename or file
    return ConfigError(f"{error.filename} cannot be written: {error.strerror}", key="")


def check_name(name: str) -> None:
    """Raise `ConfigError` if no skill should have this name. The hint has a better one."""
    flaw = validate.name_flaw(name, "ascii")
    if not flaw and len(name) > limits.NAME_LENGTH:
        flaw = f"has {len(name)} characters, more than {limits.NAME_LENGTH}"
    if flaw:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        better = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[: limits.NAME_LENGTH].strip("-")
        hint = f"try {better}" if better else "such as release-notes"
        raise ConfigError(f"{printable(name)!r} is not a valid name: the name {flaw}", key="NAME", hint=hint)


def folder_for(config: Settings, *, user: bool, given: str | None = None) -> str:
    """The folder in which a new skill belongs."""
    if given is not None:
        return roots.normalise(given, config.place.cwd, config.place.home)
    project, personal = roots.usual(config.profile)
    place = personal if user else project
    if not place:
        where = "user" if user else "project"
        message = f"the profile {config.profile.name} has no folder for {where} skills"
        raise ConfigError(message, key="profile", hint="use --in DIR")
    return roots.normalise(place, roots.project_of(config.place.cwd), config.place.home)
