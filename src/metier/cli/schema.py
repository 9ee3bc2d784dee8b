"""`schema`: what a host accepts as frontmatter, as JSON Schema."""

from typing import cast

import click

from metier.catalog.frontmatter_schema import Draft, frontmatter_schema
from metier.cli import output
from metier.cli.context import Context, complete_profile, shared
from metier.hosts import profiles


@click.command(
    "schema",
    epilog="Examples:\n\n\b\n  metier schema --strict > .metier/skill.schema.json\n"
    "  metier schema --host claude-code\n  metier schema --strict --draft 07 > skill.schema.json",
)
@click.option(
    "--host",
    metavar="NAME|FILE",
    shell_complete=complete_profile,
    help="Use the rules of this host instead of those of the profile in use.",
)
@click.option("--strict", is_flag=True, help="Use the rules of `metier validate --strict`, with the keys of the host.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Allow only a-z, 0-9 and hyphens in names.")
@click.option(
    "--draft",
    type=click.Choice(["2020-12", "07"]),
    default="2020-12",
    show_default=True,
    help="The draft of JSON Schema. Some editors know only 07.",
)
@shared
def schema_command(context: Context, host: str | None, strict: bool, ascii_only: bool, draft: str) -> None:
    """Print the JSON Schema of a skill's frontmatter.

    It accepts everything that `metier validate` accepts with the same options. It cannot check what is not in the
    frontmatter, such as the name of the folder.
    """
    profile = profiles.build(profiles.load(host)) if host else context.settings().profile
    chosen = cast("Draft", draft)
    output.json_out(frontmatter_schema(profile, strict=strict, ascii_only=ascii_only, draft=chosen))


COMMANDS = (schema_command,)
