"""`validate`: whether skills follow the standard or the rules of a profile, and what their authors got wrong."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import click

from metier.authoring import check
from metier.authoring import lint as authoring
from metier.authoring.fix import Fix, apply, obstacle, plan
from metier.authoring.frontmatter_schema import Draft, frontmatter_schema
from metier.catalog import discover, validate
from metier.catalog.garbage import no_collection
from metier.files.text import printable
from metier.hosts.roots import project_of
from metier.hosts.settings import Settings
from metier.sources.install.lock import installed_from
from metier.surfaces.cli import output
from metier.surfaces.cli.check import sarif_log
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.failure import CommandRefusal
from metier.surfaces.cli.frame import command, option
from metier.values.skill import SKILL_FILE, Diagnostic, Root
from metier.values.value import JsonObject, replace


@command(
    "validate",
    "metier validate ./skills/pdf",
    "metier validate --strict --ascii ./skills",
    "metier validate --diff ./skills",
    "metier validate --fix ./skills",
    "metier validate --strict --sarif . > skills.sarif",
    "metier validate --schema --profile claude-code > skill.schema.json",
)
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path())
@option(
    "--strict",
    "Report every violation of the standard as an error, also unknown keys, and review descriptions, links and "
    "hidden characters. Exits with 1 for warnings, too.",
)
@option("--ascii", "Allow only a-z, 0-9 and hyphens in names.", "ascii_only")
@option("--fix", "Fix what can be fixed safely, then report what is left.")
@option("--diff", "Show what --fix would change, and write nothing.")
@option("--sarif", "Print SARIF 2.1.0, for code review.")
@option("--changed", "Check the skills that contain these files, and ignore other files.")
@option(
    "--schema [DRAFT]",
    "Print the JSON Schema of the frontmatter instead, in draft 2020-12 or 07.",
    is_flag=False,
    flag_value="2020-12",
    type=click.Choice(["2020-12", "07"]),
)
def validate_command(
    context: Context,
    paths: tuple[str, ...],
    strict: bool,
    ascii_only: bool,
    fix: bool,
    diff: bool,
    sarif: bool,
    changed: bool,
    schema: Draft | None,
) -> int:
    """Check a skill, or all skills below a folder. Exits with 1 if one is invalid.

    --fix removes characters that nobody sees and byte order marks, quotes values that are not valid YAML, and adds a
    missing `name`. It changes no installed skill, no read-only file, and nothing through a link. --diff exits with 1 if
    there is something to fix.

    With --strict and a --profile, keys that this host documents are accepted. What --strict reports as `info` is
    advice, and does not change the exit code.

    The schema accepts everything that `validate` accepts with the same options. It cannot check what is not in the
    frontmatter, such as the name of the folder.
    """
    config = context.settings()
    if schema:
        if paths:
            raise click.UsageError("--schema checks no files; leave out PATH")
        output.json_out(frontmatter_schema(config.profile, strict=strict, ascii_only=ascii_only, draft=schema))
        return 0
    if not paths:
        raise click.UsageError("name a skill or a folder")
    rules = validate.strict(config.profile) if strict else config.profile.validation
    if ascii_only:
        rules = replace(rules, name_pattern="ascii", name_breach="error")
    chosen = list(_skills_with(paths, config.place.cwd)) if changed else list(paths)
    files = _examine(chosen, config, rules, strict)
    done: Fixes | None = None
    if diff or fix:
        done = _planned(_folders(chosen, files, config.place.cwd))
    if diff and done is not None:
        _show_fixes(context, done)
        return bool(done.wanted)
    if done is not None:
        done = _written(done)
        files = _examine(chosen, config, rules, strict)
        if not context.as_json:
            _tell_refused(done)
            for one in done.wanted:
                shown = output.relative(one.file, config.place.cwd)
                context.hint(f"fixed {printable(shown)}: {printable(', '.join(one.changes))}")
    return _report(context, config.place.cwd, files, done, strict=strict, sarif=sarif)


def _folders(paths: Sequence[str], files: Iterable[str], cwd: str) -> list[tuple[str, str]]:
    """The folder of each skill, and the folder below which it was found."""
    named = [check.folder_of(path, cwd) for path in paths]
    skills = [os.path.dirname(file) for file in files if os.path.basename(file) == SKILL_FILE]
    return [(folder, next(top for top in named if f"{folder}/".startswith(f"{top}/"))) for folder in skills]


class Fixes(NamedTuple):
    """The fixes of skills: those to write, and those that are not written, each with the reason."""

    wanted: list[Fix]
    refused: list[tuple[Fix, str]]

    def told_refused(self) -> list[JsonObject]:
        return [{"path": one.file, "reason": why} for one, why in self.refused]


def _planned(folders: Iterable[tuple[str, str]]) -> Fixes:
    """The fixes of skills, given as their folders and the folder below which the user asked for it."""
    fixes = Fixes([], [])
    for folder, below in folders:
        source = installed_from(folder)  # a fix would make it differ from what its lock file says
        installed = f"it was installed from {source}, and has to be fixed there" if source else ""
        for one in plan(folder):
            if why := installed or obstacle(one, below):
                fixes.refused.append((one, why))
            else:
                fixes.wanted.append(one)
    return fixes


def _written(fixes: Fixes) -> Fixes:
    """Write the fixes. Those that cannot be written count as refused."""
    done = Fixes([], [*fixes.refused])
    for one in fixes.wanted:
        try:
            apply(one)
            done.wanted.append(one)
        except OSError as error:
            done.refused.append((one, error.strerror or "it cannot be written"))
    return done


def _tell_refused(fixes: Fixes) -> None:
    for one, why in fixes.refused:
        click.echo(f"not fixed: {printable(one.file)}: {printable(why)}", err=True)


def _show_fixes(context: Context, fixes: Fixes) -> None:
    """Print what `--fix` would write."""
    if context.as_json:
        listed = [{"path": one.file, "changes": one.changes, "diff": one.diff()} for one in fixes.wanted]
        output.json_out({"fixable": listed, "refused": fixes.told_refused()})
        return
    for one in fixes.wanted:
        click.echo(output.safe(one.diff()))
    _tell_refused(fixes)
    context.hint(f"{len(fixes.wanted):,} files to fix")


def _skills_with(paths: Iterable[str], cwd: str) -> Iterable[str]:
    """The folders of the skills that contain these files, each once. Nothing above the working directory counts."""
    seen: set[str] = set()
    for path in paths:
        folder = os.path.dirname(os.path.normpath(os.path.join(cwd, path)))
        while f"{folder}/".startswith(f"{cwd.rstrip('/')}/"):
            if os.path.lexists(os.path.join(folder, SKILL_FILE)):
                if folder not in seen:
                    seen.add(folder)
                    yield folder
                break
            folder = os.path.dirname(folder)


def _examine(
    paths: Sequence[str], config: Settings, rules: validate.Rules, strict: bool
) -> dict[str, list[Diagnostic]]:
    """The diagnostics of each SKILL.md in or below these folders, and of the files beside it."""
    profile = replace(
        config.profile,
        validation=rules,
        discovery=replace(config.profile.discovery, nested=True, depth=0, root_is_skill=True, hidden=True),
    )
    files: dict[str, list[Diagnostic]] = {}
    for path in paths:
        root = Root(check.folder_of(path, config.place.cwd), "extra", "argument", explicit=True)
        with no_collection():
            found, _ = discover.scan(profile, config.place, (root,))
        met = {file: None for file in (*(skill.path for skill in found.skills), *found.failed) if file not in files}
        files.update({file: [] for file in met})
        for diagnostic in found.diagnostics:
            if diagnostic.path in met or diagnostic.path not in files:
                files.setdefault(diagnostic.path, []).append(diagnostic)
        for file in met:
            files[file] += _about_body(file)
            if strict:
                known = [diagnostic.code for diagnostic in files[file]]
                files[file] += authoring.review(os.path.dirname(file), known)
        if not found.skills and not found.failed and not found.diagnostics:
            raise CommandRefusal(f"there is no {SKILL_FILE} in or below {path}", "NOT_FOUND")
    return files


def _about_body(file: str) -> list[Diagnostic]:
    try:
        with open(file, "rb") as stream:
            found = validate.check_body(stream.read(1 << 20), file)
    except OSError:
        return []
    return [found] if found is not None else []


def _report(
    context: Context,
    cwd: str,
    files: dict[str, list[Diagnostic]],
    done: Fixes | None,
    *,
    strict: bool,
    sarif: bool,
) -> bool:
    serious = ("error", "warning") if strict else ("error",)
    broken = {file for file, notes in files.items() if any(d.severity in serious for d in notes)}
    told = (d for _, notes in sorted(files.items()) for d in notes if d.severity != "info" or strict or context.verbose)
    if sarif:
        output.json_out(sarif_log([(d, {}) for d in told], project_of(cwd), "validate"))
    elif context.as_json:
        listed = (
            {"path": file, "valid": file not in broken, "diagnostics": notes} for file, notes in sorted(files.items())
        )
        printed: JsonObject = {"valid": not broken, "skills": listed}
        if done is not None:
            printed["fixed"] = [{"path": one.file, "changes": one.changes} for one in done.wanted]
            printed["refused"] = done.told_refused()
        output.json_out(printed)
    else:
        for diagnostic in told:
            output.diagnostic(diagnostic, cwd)
            click.echo()
        if not context.quiet:
            click.echo(_summary(files, len(broken), strict), err=bool(broken))
    return bool(broken)


def _summary(files: dict[str, list[Diagnostic]], broken: int, strict: bool) -> str:
    counts = {
        severity: sum(1 for notes in files.values() for d in notes if d.severity == severity)
        for severity in ("warning", "info")
    }
    warned = f", {counts['warning']:,} warnings" if counts["warning"] else ""
    advised = f", {counts['info']:,} hints" if counts["info"] and strict else ""
    return f"{len(files):,} checked, {broken:,} invalid{warned}{advised}"
