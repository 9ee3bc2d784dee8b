"""`profiles`: the hosts whose rules are known."""

import click

from metier.files.shapes import is_table
from metier.hosts import documentation, profiles
from metier.hosts.documentation import Documentation
from metier.hosts.profiles import Profile, Raw
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_profile
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command


@command("profiles", "metier profiles", "metier profiles cursor")
@click.argument("name", required=False, shell_complete=complete_profile)
def profiles_command(context: Context, name: str | None) -> None:
    """List the known hosts, or show the rules of one and where each rule comes from."""
    names = [name] if name else profiles.names()
    built = [(profiles.build(profiles.load(each)), documentation.load(each)) for each in names]
    if context.as_json:
        described = [_described(profile, sources) for profile, sources in built]
        output.json_out(described[0] if name else described)
    elif name:
        _rules(*built[0])
    else:
        output.table(("profile", "summary"), [(profile.name, profile.summary) for profile, _ in built])


def _described(profile: Profile, sources: Documentation | None) -> Raw:
    return {**profiles.describe(profile), "documentation": sources.as_dict() if sources else None}


def _rules(profile: Profile, sources: Documentation | None) -> None:
    described = profiles.describe(profile)
    output.facts((key, str(described[key])) for key in ("name", "summary", "enabled"))
    for root in profile.roots:
        click.echo(f"  searches {root.path} at {root.at} ({root.source}, {root.scope}, priority {root.priority})")
    for folder in profile.directories:
        click.echo(f"  searches {folder}")
    for section in ("project", "discovery", "validation", "collisions", "filters", "catalog", "toggles"):
        values: object = described[section]
        click.secho(f"[{section}]", bold=True)
        for key, value in values.items() if is_table(values) else ():
            click.echo(f"  {key} = {value!r}")
    if sources:
        _documentation(sources)


def _documentation(sources: Documentation) -> None:
    """Each source once, with the rules that come from it. An address is never wrapped."""
    counts = ", ".join(f"{count} {certainty}" for certainty, count in sources.counts().items())
    click.secho("[documentation]", bold=True)
    for line in (f"page = {sources.page}", f"version = {sources.version}", f"rules = {counts}"):
        click.echo(f"  {line}")
    rules: dict[str, list[str]] = {}
    for rule, source in sources.rules.items():
        rules.setdefault(f"{source.certainty}: {source.at or source.why}", []).append(rule)
    for about, names in rules.items():
        click.echo(f"  {about}")
        click.echo(output.wrap(", ".join(names), "    ", "    "))
