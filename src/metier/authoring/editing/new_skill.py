"""Creates a skill to start from: SKILL.md, a reference and a script, with comments.

Nothing that exists is changed, and a skill that cannot be written completely is not left behind in part.
"""

import json
import os
import re
import shutil
import unicodedata
from typing import Final

from metier import limits
from metier.catalog import validate
from metier.errors import ConfigError
from metier.files.text import printable, remove_invisible
from metier.hosts import roots
from metier.hosts.settings import Settings, project_of
from metier.values.skill import SKILL_FILE

SKILL: Final = """\
---
# The same as the name of the folder: a-z, 0-9 and single hyphens.
name: {name}
# What the skill does and when to use it. A model sees only this before it loads the skill, so use the words that people
# use when they need it.
description: {description}
# Optional:
# license: MIT
# compatibility: Needs Python 3.11 or newer.
# metadata:
#   author: you
# allowed-tools: Read Bash(git log *)
---
# {title}

<!-- The model reads this part when it loads the skill. Write instructions for it: what to do, in which order, and how
to check the result. Keep it short. Put details that are rarely needed into references/, and work for a program into
scripts/. Replace this comment and the steps below with your own. -->

1. List what the task needs, and ask the user for anything that is missing.
2. Run `scripts/example.py` with the text as its arguments. It counts the words.
3. Read `references/guide.md` only if the count is unexpected.
4. End with a summary of what was done and what the user has to decide.
"""

GUIDE: Final = """\
# Guide

Put details here that are rarely needed: tables, edge cases, long examples. The model reads this file only when the
instructions in SKILL.md refer to it.
"""

SCRIPT: Final = '''\
#!/usr/bin/env python3
"""Counts words. Replace it with work that a program does better than a model."""

import sys

words = " ".join(sys.argv[1:]).split()
print(f"{len(words)} words, {len(set(words))} different")
'''


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
    files = {
        SKILL_FILE: SKILL.format(name=name, description=_quoted(about), title=name.replace("-", " ").capitalize()),
        "references/guide.md": GUIDE,
        "scripts/example.py": SCRIPT,
    }
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
    return roots.normalise(place, project_of(config.place.cwd), config.place.home)


def _quoted(text: str) -> str:
    """Text as a YAML value. JSON is valid YAML."""
    return json.dumps(text, ensure_ascii=False)
