"""`init` and `new`: a folder for skills, and a first skill.

The invariant: no existing file is changed, and every new file is named.
"""

import json
import os
import re
import shutil
import unicodedata
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final

import click

from metier import limits
from metier.catalog import validate
from metier.cli import output
from metier.cli.context import Context, complete_folder, shared
from metier.cli.failure import CommandRefusal
from metier.errors import ConfigError
from metier.files.text import printable, remove_invisible
from metier.hosts import roots
from metier.hosts.settings import Settings, project_of
from metier.model import SKILL_FILE

CONFIG: Final = """\
# Settings of Metier for everyone in this project. Every line is optional; uncomment what you need.
# `metier doctor` shows every value in force and where it comes from.

# The host whose rules apply.
{profile}

# Names of skills that are not offered here.
# filters.ignore = ["draft-*"]

# The most characters that the list of skills may take in the system prompt.
# prompt.max_chars = 8000

# More folders to search, after the folders of the profile.
# custom_directories = ["prompts/skills"]

# A project can only restrict permissions.
# [permissions]
# deny = [{{ tool = "skill_run" }}]
"""

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


@click.command("init", epilog="Examples:\n\n\b\n  metier init\n  metier init --profile claude-code")
@shared
def init_command(context: Context) -> None:
    """Create a folder for the project's skills, and a commented configuration.

    The profile decides which folder. Existing files are not changed.
    """
    config = context.settings()
    project = project_of(config.place.cwd)
    folder, _ = roots.usual(config.profile)
    if not folder:
        raise ConfigError(f"the profile {config.profile.name} has no folder for project skills", key="profile")
    named = f'profile = "{context.profile}"' if context.profile else '# profile = "standard"'
    made: list[str] = []
    kept: list[str] = []
    with _writing(project):
        skills = os.path.join(project, folder)
        (kept if os.path.isdir(skills) else made).append(skills)
        os.makedirs(skills, exist_ok=True)
        file = os.path.join(project, ".metier", "config.toml")
        os.makedirs(os.path.dirname(file), exist_ok=True)
        (made if _write(file, CONFIG.format(profile=named)) else kept).append(file)
    _tell(context, config, made, kept)
    if not (context.as_json or context.quiet):
        click.echo("next: create a skill with `metier new NAME`")


@click.command(
    "new",
    epilog="Examples:\n\n\b\n  metier new meeting-minutes\n"
    '  metier new csv-report --description "Reports on CSV files. Use when ..."\n  metier new triage --user',
)
@click.argument("name")
@click.option("--description", metavar="TEXT", help="What the skill does and when to use it.")
@click.option("--user", is_flag=True, help="Create it for you in every project.")
@click.option("--in", "folder", metavar="DIR", shell_complete=complete_folder, help="Create it in this folder.")
@shared
def new_command(context: Context, name: str, description: str | None, user: bool, folder: str | None) -> None:
    """Create a skill to start from: SKILL.md, a reference and a script, with comments."""
    config = context.settings()
    _check_name(name)
    text = " ".join(remove_invisible(description or "").split())
    if description is not None and not 1 <= len(text) <= limits.DESCRIPTION_LENGTH:
        raise ConfigError(f"the description has {len(text)} characters, not 1 to {limits.DESCRIPTION_LENGTH}", key="")
    skill = os.path.join(_folder(config, user, folder), name)
    if os.path.lexists(skill):
        raise CommandRefusal(f"{printable(skill)} already exists; nothing was changed", "CONFLICT")
    about = text or f"Does what {name} is for. Use when the user asks for it. (Replace these sentences with your own.)"
    files = {
        SKILL_FILE: SKILL.format(name=name, description=_quoted(about), title=name.replace("-", " ").capitalize()),
        "references/guide.md": GUIDE,
        "scripts/example.py": SCRIPT,
    }
    made: list[str] = []
    with _writing(skill):
        try:
            for relative, content in files.items():
                file = os.path.join(skill, relative)
                os.makedirs(os.path.dirname(file), exist_ok=True)
                if _write(file, content):
                    made.append(file)
            os.chmod(os.path.join(skill, "scripts/example.py"), 0o755)  # noqa: S103 - scripts are executable
        except OSError:
            shutil.rmtree(skill, ignore_errors=True)  # half a skill would be in the way the next time
            raise
    _tell(context, config, made, [])
    if not (context.as_json or context.quiet):
        shown = printable(_from(skill, config.place.cwd))
        click.echo(f"next: write SKILL.md, then `metier validate --strict {shown}` and `metier check {shown}`")


def _check_name(name: str) -> None:
    flaw = validate.name_flaw(name, "ascii")
    if not flaw and len(name) > limits.NAME_LENGTH:
        flaw = f"has {len(name)} characters, more than {limits.NAME_LENGTH}"
    if flaw:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        better = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[: limits.NAME_LENGTH].strip("-")
        hint = f"try {better}" if better else "such as release-notes"
        raise ConfigError(f"{printable(name)!r} is not a valid name: the name {flaw}", key="NAME", hint=hint)


def _folder(config: Settings, user: bool, given: str | None) -> str:
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


@contextmanager
def _writing(path: str) -> Generator[None]:
    """Turn an error of the file system into one line with the reason."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}", key="") from error


def _write(file: str, content: str) -> bool:
    """Write a new file. Return `False` if it exists, without changing it."""
    try:
        stream = open(file, "x", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed below
    except FileExistsError:
        return False
    try:
        with stream:
            stream.write(content)
    except OSError as error:
        os.unlink(file)  # half a file would be kept the next time
        error.filename = file
        raise
    return True


def _tell(context: Context, config: Settings, made: list[str], kept: list[str]) -> None:
    if context.as_json:
        output.json_out({"made": made, "kept": kept})
    elif not context.quiet:
        for line in _lines(config.place.cwd, made, kept):
            click.echo(line)


def _lines(cwd: str, made: list[str], kept: list[str]) -> Iterator[str]:
    yield from (f"created {printable(_from(path, cwd))}" for path in made)
    yield from (f"kept {printable(_from(path, cwd))}, which exists" for path in kept)


def _from(path: str, cwd: str) -> str:
    return os.path.relpath(path, cwd) if path.startswith(f"{cwd.rstrip('/')}/") else path


COMMANDS = (init_command, new_command)
