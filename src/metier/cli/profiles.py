"""`profiles`: the hosts whose rules are known."""

import click

from metier.cli import output
from metier.cli.context import Context, complete_profile, shared
from metier.files.shapes import is_table
from metier.hosts import profiles
from metier.hosts.profiles import Profile


@click.command("profiles", epilog="Examples:\n\n\b\n  metier profiles\n  metier profiles codelia")
@click.argument("name", required=False, shell_complete=complete_profile)
@shared
def profiles_command(context: Context, name: str | None) -> None:
    """List the known hosts, or show the rules of one."""
    names = [name] if name else profiles.names()
    built = [profiles.build(profiles.load(each)) for each in names]
    if context.as_json:
        output.json_out(profiles.describe(built[0]) if name else [profiles.describe(profile) for profile in built])
    elif name:
        _rules(built[0])
    else:
        output.table(("profile", "summary"), [(profile.name, profile.summary) for profile in built])


def _rules(profile: Profile) -> None:
    described = profiles.describe(profile)
    output.facts((key, str(described[key])) for key in ("name", "summary", "documented", "enabled"))
    for root in profile.roots:
        click.echo(f"  searches {root.path} at {root.at} ({root.source}, {root.scope}, priority {root.priority})")
    for folder in profile.directories:
        click.echo(f"  searches {folder}")
    for section in ("project", "discovery", "validation", "collisions", "filters", "catalog", "toggles"):
        values: object = described[section]
        click.secho(f"[{section}]", bold=True)
        for key, value in values.items() if is_table(values) else ():
            click.echo(f"  {key} = {value!r}")
    if profile.documentation:
        click.secho("[documentation]", bold=True)
        for rule, page in profile.documentation.items():
            click.echo(f"  {rule}: {page}")


COMMANDS = (profiles_command,)
