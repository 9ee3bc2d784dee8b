"""`install`: a skill from a folder, an archive or a site, checked and shown before it is taken in."""

import sys

import click

from metier.cli import output
from metier.cli.context import Context, shared
from metier.errors import ConfigError
from metier.files.text import printable
from metier.install import Installer, InstallRequest, Offer
from metier.session.policy import Request

_LISTED = 40
"""Files that are shown before the question; the rest are counted."""


@click.command(
    "install",
    epilog="Examples:\n\n\b\n  metier install ./pdf\n  metier install pdf.skill --project\n"
    "  metier install https://skills.example.com pdf\n  metier install --verify",
)
@click.argument("source", required=False)
@click.argument("name", required=False)
@click.option("--project", is_flag=True, help="Into the project's folder of skills, not the user's.")
@click.option("--replace", is_flag=True, help="Replace a skill that is there already.")
@click.option("--digest", default="", metavar="sha256:...", help="Refuse what has another digest.")
@click.option("--lenient", is_flag=True, help="Accept breaches of the standard that the profile forgives.")
@click.option("--yes", is_flag=True, help="Install without a question.")
@click.option("--verify", is_flag=True, help="Compare what is installed with the lock file instead.")
@shared
def install_command(
    context: Context,
    source: str | None,
    name: str | None,
    project: bool,
    replace: bool,
    digest: str,
    lenient: bool,
    yes: bool,
    verify: bool,
) -> None:
    """Install a skill: from a folder, an archive, the URL of an archive, or by NAME from a site.

    A source on the network is refused, and no connection tried, unless a rule in [permissions] allows or asks for the
    tool `install`. Nothing is run and nothing is overwritten.
    """
    if verify:
        _verify(context, project)
        return
    if not source:
        raise ConfigError("name what to install", key="SOURCE", hint="a folder, an archive or a URL")
    wish = InstallRequest(source, name or "", digest, project, replace, lenient)
    can_ask = sys.stdin.isatty() and not context.as_json
    with context.open_store() as store:
        installer = Installer(context.settings(), store, approve=(lambda _: True) if yes else _ask if can_ask else None)
        offer = installer.install(wish, lambda offer: _decide(offer, yes, can_ask, context.quiet or context.as_json))
    if context.as_json:
        output.json_out(offer.as_dict())
    elif not context.quiet:
        click.echo(printable(f"installed {offer.name} in {offer.target}"))


def _verify(context: Context, project: bool) -> None:
    with context.open_store() as store:
        findings = Installer(context.settings(), store).verify(project=project)
    changed = [finding for finding in findings if finding.problems]
    if context.as_json:
        output.json_out({"unchanged": not changed, "skills": [finding.as_dict() for finding in findings]})
    else:
        for finding in changed:
            for problem in finding.problems:
                click.echo(printable(f"{finding.name}: {problem}"))
        if not context.quiet:
            click.echo(f"{len(findings):,} in the lock file, {len(changed):,} changed", err=bool(changed))
    if changed:
        raise click.exceptions.Exit(1)


def _ask(request: Request) -> bool:
    return click.confirm(printable(f"Connect to {request.path}?"), err=True)


def _decide(offer: Offer, yes: bool, can_ask: bool, silent: bool) -> bool:
    """Show what it is, and ask whoever can answer."""
    if not silent:
        _show(offer)
    if yes:
        return True
    if not can_ask:
        raise ConfigError("nobody can be asked whether to install this", key="--yes", hint="--yes says so beforehand")
    return click.confirm("Replace the one that is there?" if offer.replaces else "Install it?", err=True)


def _show(offer: Offer) -> None:
    size = sum(size for _, size, _ in offer.files)
    output.facts(
        (
            ("name", offer.name),
            ("description", offer.description),
            ("from", offer.source),
            ("archive", offer.artifact),
            ("digest", offer.tree),
            ("to", offer.target + (" (replaces what is there)" if offer.replaces else "")),
            ("files", f"{len(offer.files):,} with {size:,} bytes"),
        )
    )
    for path, size, executable in offer.files[:_LISTED]:
        click.echo(f"  {size:>10,}  {printable(path)}{'  (executable)' if executable else ''}")
    if len(offer.files) > _LISTED:
        click.echo(f"  and {len(offer.files) - _LISTED:,} more")
    for note in offer.diagnostics:
        click.echo(printable(f"{note.severity}: {note.message}"))


COMMANDS = (install_command,)
