"""`install`: a skill from a folder, an archive or a site. It is checked and shown before it is installed."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict, cast

import click

from metier.errors import ConfigError
from metier.files.text import printable
from metier.policy.decide import Request
from metier.sources.install import Installer, InstallRequest, Offer
from metier.sources.install.lock import Scope
from metier.surfaces.cli import asking, output
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command
from metier.values.skill import Diagnostic
from metier.values.value import Count, Meta, Value

_LISTED = 40
"""How many files are shown before the question. The rest are counted."""


class OfferedFile(TypedDict):
    path: str
    size: Count
    executable: bool


class OfferPrinted(TypedDict):
    name: str
    description: str
    source: str
    path: str
    digest: str
    artifact: str
    files: Sequence[OfferedFile]
    replaced: bool
    left_out: Sequence[str]
    diagnostics: Sequence[Diagnostic]


class FindingPrinted(TypedDict):
    scope: Scope
    name: str
    unchanged: bool
    problems: Sequence[str]


class Verified(Value):
    unchanged: bool
    skills: Sequence[FindingPrinted]


@command(
    "install",
    "metier install ./pdf",
    "metier install pdf.skill --project",
    "metier install https://skills.example.com pdf",
    "metier install --verify",
    prints=OfferPrinted | Annotated[Verified, Meta(description="With --verify.")],
)
@click.argument("source", required=False)
@click.argument("name", required=False)
@click.option(
    "--project/--user",
    default=None,
    help="Install for this project, or for you (the default). With --verify, compare only these; otherwise both.",
)
@click.option("--replace", is_flag=True, help="Replace an installed skill of that name.")
@click.option("--digest", default="", metavar="sha256:...", help="Refuse a source with another digest.")
@click.option("--lenient", is_flag=True, help="Accept violations of the standard that the profile accepts.")
@click.option("--yes", is_flag=True, help="Install without asking.")
@click.option("--verify", is_flag=True, help="Only compare the installed skills with the lock files.")
def install_command(
    context: Context, source: str | None, name: str | None, project: bool | None, yes: bool, verify: bool, **given: Any
) -> int:
    """Install a skill from a folder, an archive, a URL of an archive, or by NAME from a site.

    A source on the network is refused without a connection, unless a rule in [permissions] allows or asks for the tool
    `install`. Nothing is run, and nothing is overwritten without --replace.
    """
    if verify:
        return _verify(context, project)
    if not source:
        raise ConfigError("SOURCE is missing", key="SOURCE", hint="name a folder, an archive or a URL")
    request = InstallRequest(source=source, name=name or "", project=bool(project), **given)
    can_ask = sys.stdin.isatty() and not context.as_json
    with context.open_store() as store:
        installer = Installer(context.settings(), store, approve=(lambda _: True) if yes else _ask if can_ask else None)
        offer = installer.install(request, lambda offer: _decide(offer, yes, can_ask, context.quiet or context.as_json))
    context.done(offer.as_dict(), f"installed {offer.name} in {offer.target}")
    return 0


def _verify(context: Context, project: bool | None) -> bool:
    with context.open_store() as store:
        findings = Installer(context.settings(), store).verify(project=project)
    changed = [finding for finding in findings if finding.problems]
    if context.as_json:
        output.json_out(Verified(not changed, cast("list[FindingPrinted]", [one.as_dict() for one in findings])))
    else:
        for finding in changed:
            for problem in finding.problems:
                click.echo(printable(f"{finding.scope}: {finding.name}: {problem}"))
        for scope, is_project in (("user", False), ("project", True)):
            if not context.quiet and project in (None, is_project):
                problems = [bool(finding.problems) for finding in findings if finding.scope == scope]
                told = f"{scope}: {len(problems):,} in the lock file, {sum(problems):,} changed"
                click.echo(told, err=bool(changed))
    return bool(changed)


def _ask(request: Request) -> bool:
    return asking.ask(request, ("once", "no")) == "once"


def _decide(offer: Offer, yes: bool, can_ask: bool, silent: bool) -> bool:
    """Show what would be installed, and ask."""
    if not silent:
        _show(offer)
    if yes:
        return True
    if not can_ask:
        raise asking.no_terminal()
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
    if len(offer.files) > _LISTED:
        click.echo(f"  and {len(offer.files) - _LISTED:,} more")
    if offer.left_out:
        click.echo(printable(f"not installed: {output.first(offer.left_out, _LISTED)}"))
    for note in offer.diagnostics:
        click.echo(printable(f"{note.severity}: {note.message}"))
