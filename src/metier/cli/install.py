"""`install`: a skill from a folder, an archive or a site. It is checked and shown before it is installed."""

import sys

import click

from metier.cli import asking, output
from metier.cli.context import Context, shared
from metier.errors import ConfigError
from metier.files.text import printable
from metier.install import Installer, InstallRequest, Offer
from metier.session.policy import Request

_LISTED = 40
"""How many files are shown before the question. The rest are counted."""


@click.command(
    "install",
    epilog="Examples:\n\n\b\n  metier install ./pdf\n  metier install pdf.skill --project\n"
    "  metier install https://skills.example.com pdf\n  metier install --verify",
)
@click.argument("source", required=False)
@click.argument("name", required=False)
@click.option("--project", is_flag=True, help="Install for this project instead of for you.")
@click.option("--replace", is_flag=True, help="Replace an installed skill of that name.")
@click.option("--digest", default="", metavar="sha256:...", help="Refuse a source with another digest.")
@click.option("--lenient", is_flag=True, help="Accept violations of the standard that the profile accepts.")
@click.option("--yes", is_flag=True, help="Install without asking.")
@click.option("--verify", is_flag=True, help="Only compare the installed skills with the lock file.")
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
    """Install a skill from a folder, an archive, a URL of an archive, or by NAME from a site.

    A source on the network is refused without a connection, unless a rule in [permissions] allows or asks for the tool
    `install`. Nothing is run, and nothing is overwritten without --replace.
    """
    if verify:
        _verify(context, project)
        return
    if not source:
        raise ConfigError("SOURCE is missing", key="SOURCE", hint="name a folder, an archive or a URL")
    request = InstallRequest(
        source=source, name=name or "", digest=digest, project=project, replace=replace, lenient=lenient
    )
    can_ask = sys.stdin.isatty() and not context.as_json
    with context.open_store() as store:
        installer = Installer(context.settings(), store, approve=(lambda _: True) if yes else _ask if can_ask else None)
        offer = installer.install(request, lambda offer: _decide(offer, yes, can_ask, context.quiet or context.as_json))
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
    return asking.ask(request, ("once", "no")) == "once"


def _decide(offer: Offer, yes: bool, can_ask: bool, silent: bool) -> bool:
    """Show what would be installed, and ask."""
    if not silent:
        _show(offer)
    if yes:
        return True
    if not can_ask:
        raise ConfigError("there is no terminal to ask for confirmation", key="--yes", hint="pass --yes")
    return click.confirm("Replace the installed skill?" if offer.replaces else "Install this skill?", err=True)


def _show(offer: Offer) -> None:
    size = sum(size for _, size, _ in offer.files)
    output.facts(
        (
            ("name", offer.name),
            ("description", offer.description),
            ("from", offer.source),
            ("archive", offer.artifact),
            ("digest", offer.tree),
            ("to", offer.target + (" (replaces the installed skill)" if offer.replaces else "")),
            ("files", f"{len(offer.files):,} files, {size:,} bytes"),
        ),
        whole=("from", "archive", "digest", "to"),
    )
    for path, size, executable in offer.files[:_LISTED]:
        click.echo(f"  {size:>10,}  {printable(path)}{'  (executable)' if executable else ''}")
    if more := _more(len(offer.files)):
        click.echo(f" {more}")
    if offer.left_out:
        click.echo(printable(f"not installed: {', '.join(offer.left_out[:_LISTED])}{_more(len(offer.left_out))}"))
    for note in offer.diagnostics:
        click.echo(printable(f"{note.severity}: {note.message}"))


def _more(count: int) -> str:
    return f" and {count - _LISTED:,} more" if count > _LISTED else ""


COMMANDS = (install_command,)
