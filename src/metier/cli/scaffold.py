"""`init`, `new` and `completion`: what a newcomer needs first.

Nothing that is there is ever overwritten, and everything that was made is named.
"""

import json
import os
import re
import unicodedata
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final

import click

from metier import limits
from metier.catalog import validate
from metier.cli import output
from metier.cli.completion import complete_folder
from metier.cli.context import Context, shared
from metier.errors import ConfigError
from metier.files.text import printable, remove_invisible
from metier.hosts import roots
from metier.hosts.settings import Settings, project_of
from metier.model import SKILL_FILE

CONFIG: Final = """\
# Settings of Metier for everyone who works in this project. Every line is optional; uncomment what you need.
# `metier doctor` shows which value counts and where it comes from.

# The host whose rules apply.
{profile}

# Skills that are not offered here, by name.
# filters.ignore = ["draft-*"]

# Characters of the system prompt that the list of skills may take.
# prompt.max_chars = 8000

# More folders to search, after those of the profile.
# custom_directories = ["prompts/skills"]

# What a project may do to permissions is to narrow them.
# [permissions]
# deny = [{{ tool = "skill_run" }}]
"""

SKILL: Final = """\
---
# The name is the folder's: a-z, 0-9 and single hyphens.
name: {name}
# What the skill does and when to use it. This is all that a model sees before it chooses, so put in the words that
# people use when they need it.
description: {description}
# Optional:
# license: MIT
# compatibility: Needs Python 3.11 or newer.
# metadata:
#   author: you
# allowed-tools: Read Bash(git log *)
---
# {title}

<!-- What follows is read only when the skill is loaded. Write to the model: what to do, in which order, and how to tell
that it worked. Keep it short; what is needed now and then goes into references/, what is better done by a program into
scripts/. Delete this comment and the sentences below when you have written your own. -->

1. Say what the task needs before you begin, and ask for it if it is not there.
2. Run `scripts/example.py` with the text as its arguments; it counts the words.
3. Read `references/guide.md` only if the count is a surprise.
4. End with a summary: what was done, and what is left for a person to decide.
"""

GUIDE: Final = """\
# Guide

Details that are needed now and then: tables, edge cases, long examples. The model reads this file when the instructions
in SKILL.md send it here, and at no other time.
"""

SCRIPT: Final = '''\
#!/usr/bin/env python3
"""Counts words. Put here what a program does better than a model; it sees its arguments and the skill's own files."""

import sys

words = " ".join(sys.argv[1:]).split()
print(f"{len(words)} words, {len(set(words))} different")
'''


@click.command("init", epilog="Examples:\n\n\b\n  metier init\n  metier init --profile claude-code")
@shared
def init_command(context: Context) -> None:
    """Make the project's folder for skills and a commented configuration.

    The folder is the one that the profile searches; what is there already stays as it is.
    """
    config = context.settings()
    project = project_of(config.place.cwd)
    folder, _ = roots.usual(config.profile)
    if not folder:
        raise ConfigError(f"the profile {config.profile.name} has no folder in a project", key="profile")
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
        click.echo("next: `metier new NAME` makes a skill")


@click.command(
    "new",
    epilog="Examples:\n\n\b\n  metier new meeting-minutes\n"
    '  metier new csv-report --description "Reports on CSV files. Use when ..."\n  metier new triage --user',
)
@click.argument("name")
@click.option("--description", metavar="TEXT", help="What it does and when to use it.")
@click.option("--user", is_flag=True, help="For you in every project, instead of for this project.")
@click.option("--in", "folder", metavar="DIR", shell_complete=complete_folder, help="Put it into this folder instead.")
@shared
def new_command(context: Context, name: str, description: str | None, user: bool, folder: str | None) -> None:
    """Make a skill to start from: SKILL.md, a reference and a script, with comments on what goes where."""
    config = context.settings()
    _check_name(name)
    text = " ".join(remove_invisible(description or "").split())
    if description is not None and not 1 <= len(text) <= limits.DESCRIPTION_LENGTH:
        raise ConfigError(f"the description has {len(text)} characters, not 1 to {limits.DESCRIPTION_LENGTH}", key="")
    skill = os.path.join(_folder(config, user, folder), name)
    if os.path.lexists(skill):
        raise click.ClickException(f"{printable(skill)} is there already; nothing was changed")
    said = text or f"Does what {name} is for. Use when somebody asks for it. (Replace this sentence by your own.)"
    files = {
        SKILL_FILE: SKILL.format(name=name, description=_quoted(said), title=name.replace("-", " ").capitalize()),
        "references/guide.md": GUIDE,
        "scripts/example.py": SCRIPT,
    }
    made: list[str] = []
    with _writing(skill):
        for relative, content in files.items():
            file = os.path.join(skill, relative)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            if _write(file, content):
                made.append(file)
        os.chmod(os.path.join(skill, "scripts/example.py"), 0o755)  # noqa: S103 - scripts are executable
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
        raise ConfigError(f"a skill cannot be called {printable(name)!r}: the name {flaw}", key="NAME", hint=hint)


def _folder(config: Settings, user: bool, given: str | None) -> str:
    if given is not None:
        return roots.normalise(given, config.place.cwd, config.place.home)
    project, personal = roots.usual(config.profile)
    place = personal if user else project
    if not place:
        where = "in a home" if user else "in a project"
        message = f"the profile {config.profile.name} has no folder {where}"
        raise ConfigError(message, key="profile", hint="use --in DIR")
    return roots.normalise(place, project_of(config.place.cwd), config.place.home)


def _quoted(text: str) -> str:
    """Text as a YAML value: what JSON can say, YAML can."""
    return json.dumps(text, ensure_ascii=False)


@contextmanager
def _writing(path: str) -> Generator[None]:
    """Whatever the disk refuses becomes one line with the reason."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{error.filename or path} cannot be written: {error.strerror}", key="") from error


def _write(file: str, content: str) -> bool:
    """Write a new file; `False` where there is one, which stays as it is."""
    try:
        with open(file, "x", encoding="utf-8", errors="replace") as stream:
            stream.write(content)
    except FileExistsError:
        return False
    return True


def _tell(context: Context, config: Settings, made: list[str], kept: list[str]) -> None:
    if context.as_json:
        output.json_out({"made": made, "kept": kept})
    elif not context.quiet:
        for line in _lines(config.place.cwd, made, kept):
            click.echo(line)


def _lines(cwd: str, made: list[str], kept: list[str]) -> Iterator[str]:
    yield from (f"made {printable(_from(path, cwd))}" for path in made)
    yield from (f"kept {printable(_from(path, cwd))}, which was there" for path in kept)


def _from(path: str, cwd: str) -> str:
    return os.path.relpath(path, cwd) if path.startswith(f"{cwd.rstrip('/')}/") else path


@click.command(
    "completion",
    epilog='Examples:\n\n\b\n  eval "$(metier completion bash)"        # in ~/.bashrc\n'
    '  eval "$(metier completion zsh)"         # in ~/.zshrc, after compinit\n'
    "  metier completion fish > ~/.config/fish/completions/metier.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@shared
def completion_command(context: Context, shell: str) -> None:
    """Print the script that lets a shell complete commands, options, profiles and the names of skills."""
    from click.shell_completion import ShellComplete, get_completion_class

    from metier.cli import cli

    found = get_completion_class(shell)
    assert found is not None
    # Not the class's own `source`, which starts a bash to learn its version: whoever asks may have none here.
    click.echo(ShellComplete.source(found(cli, {}, "metier", "_METIER_COMPLETE")))


COMMANDS = (init_command, new_command, completion_command)
