"""`init` and `new`: a folder for skills, and a first skill.

The invariant: no existing file is changed, and every new file is named.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import click

from metier.authoring.editing.new_skill import SkillExists, new_skill
from metier.errors import ConfigError
from metier.files.text import printable
from metier.hosts import roots
from metier.hosts.settings import Settings, project_of
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_folder
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.failure import CommandRefusal
from metier.surfaces.cli.frame import command
from metier.values.value import Value

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


class ScaffoldedFiles(Value):
    made: list[str]
    kept: list[str]


@command("init", "metier init", "metier init --profile claude-code", prints=ScaffoldedFiles)
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
    _tell(context, config, made, kept, "next: create a skill with `metier new NAME`")


@command(
    "new",
    "metier new meeting-minutes",
    'metier new csv-report --description "Reports on CSV files. Use when ..."',
    "metier new triage --user",
    prints=ScaffoldedFiles,
)
@click.argument("name")
@click.option("--description", metavar="TEXT", help="What the skill does and when to use it.")
@click.option("--user", is_flag=True, help="Create it for you in every project.")
@click.option("--in", "folder", metavar="DIR", shell_complete=complete_folder, help="Create it in this folder.")
def new_command(context: Context, name: str, description: str | None, user: bool, folder: str | None) -> None:
    """Create a skill to start from: SKILL.md, a reference and a script, with comments."""
    config = context.settings()
    try:
        made = new_skill(config, name, description, user=user, folder=folder)
    except SkillExists as error:
        raise CommandRefusal(error.message, "CONFLICT") from error
    skill = printable(output.relative(os.path.dirname(made[0]), config.place.cwd))
    following = f"next: write SKILL.md, then `metier validate --strict {skill}` and `metier check {skill}`"
    _tell(context, config, made, [], following)


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


def _tell(context: Context, config: Settings, made: list[str], kept: list[str], following: str) -> None:
    lines = [f"created {output.relative(path, config.place.cwd)}" for path in made]
    lines += [f"kept {output.relative(path, config.place.cwd)}, which exists" for path in kept]
    if context.as_json:
        output.json_out(ScaffoldedFiles(made, kept))
    elif not context.quiet:
        click.echo("\n".join([*map(printable, lines), following]))
