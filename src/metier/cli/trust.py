"""`trust`: whose project it is whose skills the model may see, where trust is asked for."""

import os

import click

from metier.cli import output
from metier.cli.context import Context, shared
from metier.files.text import printable
from metier.hosts import trust
from metier.hosts.settings import project_of


@click.command("trust", epilog="Examples:\n\n\b\n  metier trust\n  metier trust ~/site\n  metier trust --remove")
@click.argument("folder", required=False, metavar="[DIR]", type=click.Path())
@click.option("--remove", is_flag=True, help="Trust it no longer.")
@shared
def trust_command(context: Context, folder: str | None, remove: bool) -> None:
    """Trust a project: the one here, or the one of a folder.

    Where a profile or the setting permissions.trust = "required" asks for it, the model sees no skill of a project
    before. What a project sets about scripts, policy and the store counts only if it is trusted.
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
