"""`enable`, `disable`, `mode` and `trust`: how a skill is offered, and the projects whose skills are trusted."""

import os
from collections.abc import Mapping
from typing import Final

import click

from metier.catalog.modes import Level
from metier.files.text import printable
from metier.hosts import trust
from metier.hosts.settings import project_of
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command, name_argument
from metier.values.skill import MODES, Mode, Skill
from metier.values.value import Value

_MESSAGE: Final[Mapping[Mode, str]] = {
    "auto": "{name} is on for {whom}",
    "pinned": "{name} is pinned for {whom}: it comes first in every prompt",
    "name-only": "{name} is name-only for {whom}: the model sees its name without its description",
    "manual": "{name} is manual for {whom}: it is hidden from the model, and people call it by name",
    "off": "{name} is off for {whom}",
}

_project = click.option("--project", is_flag=True, help="Save it for everyone in this project.")


class SwitchedSkill(Value):
    json_keys = ("name=skill.name", "path=skill.path", "enabled=skill.enabled", "mode=skill.mode", "level")

    skill: Skill
    level: Level


class ProjectTrust(Value):
    project: str
    trusted: bool


def _switch(context: Context, name: str, mode: Mode, project: bool) -> None:
    level: Level = "project" if project else "user"
    skills = context.discover()
    skill = skills.set_mode(name, mode, level=level)
    context.done(
        SwitchedSkill(skill, level),
        _MESSAGE[mode].format(name=skill.name, whom="this project" if project else "you"),
    )
    successor = skills.get(skill.name)
    if successor is None or successor.path == skill.path or skill.enabled or context.as_json or context.quiet:
        return
    where = os.path.relpath(successor.path, skills.settings.place.cwd)
    click.echo(f"another skill of that name takes its place: {printable(where)}")


@command("enable", "metier enable release-notes", prints=SwitchedSkill)
@name_argument
@_project
def enable_command(context: Context, name: str, project: bool) -> None:
    """Switch a skill on, by name or path."""
    _switch(context, name, "auto", project)


@command("disable", "metier disable release-notes --project", prints=SwitchedSkill)
@name_argument
@_project
def disable_command(context: Context, name: str, project: bool) -> None:
    """Switch a skill off, by name or path. Another skill of that name takes its place."""
    _switch(context, name, "off", project)


@command(
    "mode",
    "metier mode release-notes pinned",
    "metier mode csv-profile name-only --project",
    prints=SwitchedSkill,
)
@name_argument
@click.argument("mode", type=click.Choice(MODES))
@_project
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


@command("trust", "metier trust", "metier trust ~/site", "metier trust --remove", prints=ProjectTrust)
@click.argument("folder", required=False, metavar="[DIR]", type=click.Path())
@click.option("--remove", is_flag=True, help="Remove the trust.")
def trust_command(context: Context, folder: str | None, remove: bool) -> None:
    """Trust the project of this folder, or of DIR.

    If the profile or the setting permissions.trust = "required" requires trust, the model sees no skill of an untrusted
    project. Settings of a project about scripts, policy and the store apply only if it is trusted. Allow rules that
    name only a skill cover the skills of trusted projects and your own.
    """
    if folder is not None:
        context.cwd = os.path.join(context.cwd or "", folder)
    config = context.settings()
    project = config.place.project
    for one in {project, project_of(config.place.cwd)}:
        trust.trust(config.config_folder, one, not remove)
    what = "no longer trusted" if remove else "trusted"
    context.done(ProjectTrust(project, not remove), f"{project} is {what}")
