"""`enable`, `disable` and `mode`: how a skill is offered, saved for the user or the project."""

import os
from collections.abc import Mapping
from typing import Final

import click

from metier.catalog.modes import Level
from metier.cli import output
from metier.cli.completion import complete_skill
from metier.cli.context import Context, shared
from metier.files.text import printable
from metier.model import MODES, Mode

_MESSAGE: Final[Mapping[Mode, str]] = {
    "auto": "{name} is on for {whom}",
    "pinned": "{name} is pinned for {whom}: it comes first in every prompt",
    "name-only": "{name} is name-only for {whom}: the model sees its name without its description",
    "manual": "{name} is manual for {whom}: it is hidden from the model, and people call it by name",
    "off": "{name} is off for {whom}",
}


def _switch(context: Context, name: str, mode: Mode, project: bool) -> None:
    level: Level = "project" if project else "user"
    skills = context.discover()
    skill = skills.set_mode(name, mode, level=level)
    if context.as_json:
        output.json_out(
            {"name": skill.name, "path": skill.path, "enabled": skill.enabled, "mode": skill.mode, "level": level}
        )
        return
    if context.quiet:
        return
    click.echo(_MESSAGE[mode].format(name=printable(skill.name), whom="this project" if project else "you"))
    successor = skills.get(skill.name)
    if successor is not None and successor.path != skill.path and not skill.enabled:
        where = os.path.relpath(successor.path, skills.settings.place.cwd)
        click.echo(f"another skill of that name takes its place: {printable(where)}")


@click.command("enable", epilog="Example:\n\n\b\n  metier enable release-notes")
@click.argument("name", shell_complete=complete_skill)
@click.option("--project", is_flag=True, help="Save it for everyone in this project.")
@shared
def enable_command(context: Context, name: str, project: bool) -> None:
    """Switch a skill on, by name or path."""
    _switch(context, name, "auto", project)


@click.command("disable", epilog="Example:\n\n\b\n  metier disable release-notes --project")
@click.argument("name", shell_complete=complete_skill)
@click.option("--project", is_flag=True, help="Save it for everyone in this project.")
@shared
def disable_command(context: Context, name: str, project: bool) -> None:
    """Switch a skill off, by name or path. Another skill of that name takes its place."""
    _switch(context, name, "off", project)


@click.command(
    "mode", epilog="Examples:\n\n\b\n  metier mode release-notes pinned\n  metier mode csv-profile name-only --project"
)
@click.argument("name", shell_complete=complete_skill)
@click.argument("mode", type=click.Choice(MODES))
@click.option("--project", is_flag=True, help="Save it for everyone in this project.")
@shared
def mode_command(context: Context, name: str, mode: Mode, project: bool) -> None:
    """Set how a skill is offered to the model, by name or path.

    \b
    pinned     always in the prompt, before all others
    auto       in the prompt if there is room; the default
    name-only  in the prompt without its description
    manual     hidden from the model; people call it by name
    off        switched off
    """
    _switch(context, name, mode, project)


COMMANDS = (enable_command, disable_command, mode_command)
