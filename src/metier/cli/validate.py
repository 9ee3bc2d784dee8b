"""`validate` and `doctor`: what is wrong, and what would help."""

import os
import platform
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from metier import __version__
from metier.catalog import check, discover, validate
from metier.cli import output
from metier.cli.context import Context, shared
from metier.errors import SandboxUnavailable
from metier.model import SKILL_FILE, Diagnostic, Root

if TYPE_CHECKING:
    from metier.sandbox.probe import ProbeFinding


@click.command(
    "validate", epilog="Examples:\n\n\b\n  metier validate ./skills/pdf\n  metier validate --strict --ascii ./skills"
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option("--strict", is_flag=True, help="Every breach of the standard is an error, unknown keys included.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Names only of a-z, 0-9 and hyphens.")
@shared
def validate_command(context: Context, paths: tuple[str, ...], strict: bool, ascii_only: bool) -> None:
    """Check a skill, or all skills below a folder. Exits with 1 if one is invalid."""
    config = context.settings()
    rules = validate.STRICT if strict else config.profile.validation
    if ascii_only:
        rules = replace(rules, name_pattern="ascii", name_breach="error")
    profile = replace(
        config.profile,
        validation=rules,
        discovery=replace(config.profile.discovery, nested=True, depth=0, root_is_skill=True, hidden=True),
    )
    files: dict[str, list[Diagnostic]] = {}
    for path in paths:
        root = Root(check.folder_of(path, config.place.cwd), "extra", "argument", explicit=True)
        found, _ = discover.scan(profile, config.place, (root,))
        met = [skill.path for skill in found.skills] + found.failed
        files.update({file: [] for file in met if file not in files})
        for diagnostic in (*found.diagnostics, *(_about_body(file) for file in met)):
            if diagnostic is not None:
                files.setdefault(diagnostic.path, []).append(diagnostic)
        if not met and not found.diagnostics:
            raise click.ClickException(f"there is no {SKILL_FILE} in or below {path}")
    _report(context, config.place.cwd, files)


def _about_body(file: str) -> Diagnostic | None:
    try:
        with open(file, "rb") as stream:
            return validate.check_body(stream.read(1 << 20), file)
    except OSError:
        return None


def _report(context: Context, cwd: str, files: dict[str, list[Diagnostic]]) -> None:
    broken = [file for file, notes in files.items() if any(d.severity == "error" for d in notes)]
    if context.as_json:
        listed = [
            {"path": file, "valid": file not in broken, "diagnostics": [d.as_dict() for d in notes]}
            for file, notes in sorted(files.items())
        ]
        output.json_out({"valid": not broken, "skills": listed})
    else:
        for _, notes in sorted(files.items()):
            for diagnostic in notes:
                if diagnostic.severity != "info" or context.verbose:
                    output.diagnostic(diagnostic, cwd)
                    click.echo()
        if not context.quiet:
            warned = sum(1 for notes in files.values() for d in notes if d.severity == "warning")
            tail = f", {warned:,} warnings" if warned else ""
            click.echo(f"{len(files):,} checked, {len(broken):,} invalid{tail}", err=bool(broken))
    if broken:
        raise click.exceptions.Exit(1)


@click.command("doctor", epilog="Example:\n\n\b\n  metier doctor --profile omp")
@shared
def doctor_command(context: Context) -> None:
    """Say what works on this machine, what is missing, and where each setting comes from."""
    skills = context.discover()
    config = skills.settings
    place = config.place
    sandbox, promises = _sandbox()
    parts = [
        sandbox,
        (
            "cache",
            _writable(config.cache_folder),
            f"remembers scans in {config.cache_folder or 'nowhere: cache = false'}",
        ),
    ]
    facts = {
        "version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "profile": skills.profile.name,
        "cwd": place.cwd,
        "project": place.project,
        "home": place.home,
        "config": config.config_folder,
    }
    if context.as_json:
        shown: dict[str, Any] = facts | {
            "parts": [{"name": name, "works": works, "about": about} for name, works, about in parts],
            "sandbox": [finding._asdict() for finding in promises],
            "settings": dict(config.origins),
            "roots": [{"path": r.path, "source": r.source, "exists": os.path.isdir(r.path)} for r in skills.roots],
            "counts": skills.counts.as_dict(),
            "diagnostics": [d.as_dict() for d in skills.diagnostics if not d.path.endswith(SKILL_FILE)],
        }
        output.json_out(shown)
        return
    output.facts(facts.items())
    click.echo()
    output.table(("part", "works", "about"), [(name, "yes" if works else "no", about) for name, works, about in parts])
    if promises:
        click.echo()
        output.table(("sandbox promise", "held"), [(one.promise, "yes" if one.held else "NO") for one in promises], 0)
    if config.origins:
        click.echo()
        output.table(("setting", "set by"), sorted(config.origins.items()))
    click.echo()
    rows = [(r.path, r.source, str(skills.catalog.per_root.get(r.path, "-"))) for r in skills.roots]
    output.table(("searched", "source", "skills"), rows, 0)
    counts = skills.counts
    click.echo(
        f"\n{counts.found:,} found: {counts.loaded:,} offered, {counts.shadowed:,} shadowed, "
        f"{counts.skipped:,} left out, {counts.errors:,} broken"
    )
    for diagnostic in skills.diagnostics:
        if not diagnostic.path.endswith(SKILL_FILE):
            output.diagnostic(diagnostic, place.cwd)
    sys.stdout.flush()


def _sandbox() -> tuple[tuple[str, bool, str], "list[ProbeFinding]"]:
    """The sandbox of this machine, and what became of a few real attempts to get out of it."""
    from metier.sandbox import choose
    from metier.sandbox.probe import examine

    try:
        runner = choose()
    except SandboxUnavailable as error:
        return ("sandbox", False, str(error)), []
    findings = examine(runner)
    held = sum(finding.held for finding in findings)
    return ("sandbox", held == len(findings), f"{runner.name} keeps {held} of {len(findings)} promises"), findings


def _writable(folder: str) -> bool:
    existing = folder
    while existing and not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    return bool(existing) and os.access(existing, os.W_OK)


COMMANDS = (validate_command, doctor_command)
