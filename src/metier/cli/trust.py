"""`trust`: the projects whose skills and settings are trusted."""

import os

import click

from metier.cli import output
from metier.cli.context import Context, shared
from metier.files.text import printable
from metier.hosts import trust
from metier.hosts.settings import project_of


@click.command("trust", epilog="Examples:\n\n\b\n  metier trust\n  metier trust ~/site\n  metier trust --remove")
@click.argument("folder", required=False, metavar="[DIR]", type=click.Path())
@click.option("--remove", is_flag=True, help="Remove the trust.")
@shared
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
    if context.as_json:
        output.json_out({"project": project, "trusted": not remove})
    elif not context.quiet:
        click.echo(printable(f"{project} is {'no longer ' if remove else ''}trusted"))


COMMANDS = (trust_command,)
