"""`validate`: whether skills follow the standard or the rules of a profile."""

from dataclasses import replace

import click

from metier.catalog import check, discover, validate
from metier.cli import output
from metier.cli.context import Context, shared
from metier.cli.failure import CommandRefusal
from metier.model import SKILL_FILE, Diagnostic, Root


@click.command(
    "validate", epilog="Examples:\n\n\b\n  metier validate ./skills/pdf\n  metier validate --strict --ascii ./skills"
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option("--strict", is_flag=True, help="Report every violation of the standard as an error, also unknown keys.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Allow only a-z, 0-9 and hyphens in names.")
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
            raise CommandRefusal(f"there is no {SKILL_FILE} in or below {path}", "NOT_FOUND")
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


COMMANDS = (validate_command,)
