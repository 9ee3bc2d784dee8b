"""`list` and `show`: the catalog, and one skill."""

import os
from typing import Final

import click

from metier import Skills, limits
from metier.catalog.build import Catalog
from metier.files.beneath import Listing, list_files
from metier.files.text import printable
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_skill
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command, option
from metier.values.skill import Changes, Diagnostic, FileError, Skill
from metier.values.value import JsonObject

_NAMED: Final = 20
"""How many names are on a line of --watch. A checkout of another branch may change thousands."""


@command(
    "list",
    "metier list --scope repo",
    "metier list --all --profile codelia",
    "metier list --watch --json",
)
@option("--all", "Include what is shadowed, left out or broken.", "everything")
@option("--scope S", "Show only skills of this scope, such as repo or user.")
@option("--watch", "Keep running, and print a line for each change; with --json, JSON lines.")
def list_command(context: Context, everything: bool, scope: str | None, watch: bool) -> None:
    """List the skills that the profile finds in this folder."""
    skills = context.discover()
    if watch:
        _follow(context, skills, everything, scope)
    elif context.as_json:
        output.json_out(_catalog(skills, _shown(skills, scope)))
    else:
        _show(context, skills, everything, scope)


def _shown(skills: Skills, scope: str | None) -> list[Skill]:
    return [skill for skill in skills if scope in (None, skill.scope)]


def _show(context: Context, skills: Skills, everything: bool, scope: str | None) -> None:
    shown = _shown(skills, scope)
    if shown:
        denied = output.denying_rule(skills)
        rows = [(s.name + output.mark_of(s, denied), s.scope, s.description) for s in shown]
        output.table(("name", "scope", "description"), rows)
    if everything:
        _the_rest(skills)
    if not context.quiet:
        _summary(skills, bool(shown), everything)


def _catalog(skills: Skills, shown: list[Skill]) -> JsonObject:
    """The catalog. A large one is printed item by item, and never held as a whole."""
    roots = [
        {
            "path": root.path,
            "scope": root.scope,
            "source": root.source,
            "exists": os.path.isdir(root.path),
            "count": skills.catalog.per_root.get(root.path, 0),
        }
        for root in skills.roots
    ]
    return {
        "profile": skills.profile.name,
        "roots": roots,
        "skills": iter(shown),
        "shadowed": iter(skills.shadowed),
        "skipped": iter(skills.skipped),
        "diagnostics": iter(skills.diagnostics),
        "errors": (FileError(d.path, d.message) for d in skills.errors),
        "truncated": skills.catalog.truncated,
        "counts": skills.counts,
    }


def _the_rest(skills: Skills) -> None:
    cwd = skills.settings.place.cwd
    if skills.shadowed:
        click.echo()
        rows = [(e.skill.name, e.skill.path) for e in skills.shadowed]
        below = [f"by {e.winner.path}" for e in skills.shadowed]
        output.table(("shadowed", "path"), rows, below=below, whole=True)
    if skills.skipped:
        click.echo()
        below = [s.path for s in skills.skipped]
        output.table(("left out",), [(s.detail or s.reason,) for s in skills.skipped], below=below)
    for diagnostic in skills.diagnostics:
        if diagnostic.severity == "error":
            click.echo()
            output.diagnostic(diagnostic, cwd)


def _summary(skills: Skills, any_shown: bool, everything: bool) -> None:
    counts = skills.counts
    if not skills.profile.enabled:
        return  # which was said already
    if not any_shown:
        searched = ", ".join(root.path for root in skills.roots[:4])
        output.note(f"no skills found; searched: {searched}")
    output.warnings(skills.warnings)
    rest = [(counts.shadowed, "shadowed"), (counts.skipped, "left out"), (counts.errors, "broken")]
    others = ", ".join(f"{number:,} {what}" for number, what in rest if number)
    if others:
        hint = "" if everything else "; `metier list --all` shows them"
        click.echo(f"{counts.loaded:,} of {counts.found:,} skills; {others}{hint}", err=True)


def _follow(context: Context, skills: Skills, everything: bool, scope: str | None) -> None:
    """Print the catalog, then one line for each change, until interrupted. With --json, each line is an object."""
    import queue

    from metier.catalog.watch import News, Watcher

    pending: queue.SimpleQueue[News] = queue.SimpleQueue()
    last = skills.catalog
    with Watcher(skills, pending.put) as watcher:
        if context.as_json:
            shown = _shown(skills, scope)
            _json_line({"event": "catalog", "profile": skills.profile.name, "skills": shown, "errors": skills.errors})
        else:
            _show(context, skills, everything, scope)
        try:
            watcher.wait_ready()
            if not context.as_json:
                context.hint(f"{watcher.how}; press Ctrl-C to stop")
            while True:
                changes = pending.get().changes
                new = skills.catalog
                _report(context, skills, _within(changes, last, new, scope), _errors(new) - _errors(last))
                last = new
        except KeyboardInterrupt:
            return


def _report(context: Context, skills: Skills, changes: Changes, broken: set[Diagnostic]) -> None:
    if not changes and not broken:
        return
    errors = sorted(broken, key=lambda diagnostic: diagnostic.path)
    if context.as_json:
        by_name = skills.catalog.by_name
        added, changed = (
            [skill for name in names for skill in by_name.get(name, ())] for names in (changes.added, changes.changed)
        )
        _json_line(
            {"event": "changed", "added": added, "removed": changes.removed, "changed": changed, "errors": errors}
        )
        return
    if changes:
        marked = [
            *(f"+{name}" for name in changes.added),
            *(f"-{name}" for name in changes.removed),
            *(f"~{name}" for name in changes.changed),
        ]
        click.echo(f"{changes}: {printable(output.first(marked, _NAMED, ' '))}")
    for diagnostic in errors:
        output.diagnostic(diagnostic, skills.settings.place.cwd, source=False)


def _within(changes: Changes, old: Catalog, new: Catalog, scope: str | None) -> Changes:
    """The changes of the skills in a scope."""
    if scope is None:
        return changes
    before, after = ({skill.name for skill in catalog.skills if skill.scope == scope} for catalog in (old, new))
    return Changes(
        tuple(name for name in changes.added if name in after),
        tuple(name for name in changes.removed if name in before),
        tuple(name for name in changes.changed if name in after),
    )


def _errors(catalog: Catalog) -> set[Diagnostic]:
    return {diagnostic for diagnostic in catalog.diagnostics if diagnostic.severity == "error"}


def _json_line(data: JsonObject) -> None:
    import json

    # ASCII only, because some readers also split lines at Unicode line separators.
    click.echo(json.dumps(data, default=output.as_json))


@command("show", "metier show release-notes", "metier show ./skills/pdf/SKILL.md")
@click.argument("name", shell_complete=complete_skill)
def show_command(context: Context, name: str) -> None:
    """Show one skill, by name or path: its fields, files and diagnostics."""
    skills = context.discover()
    skill = skills.at(name) if os.sep in name else skills[name]
    listing = list_files(skill.dir, limits.LISTED_FILES, limits.SKILL_FILE_BYTES, skill.inner)
    notes = [d for d in skills.diagnostics if d.path == skill.path]
    shadowed_by = next((e.winner.path for e in skills.shadowed if e.skill.path == skill.path), "")
    if context.as_json:
        files = {"files": listing.files, "files_truncated": listing.truncated, "files_left_out": listing.left_out}
        output.json_out({**skill.as_dict(), **files, "shadowed_by": shadowed_by or None, "diagnostics": notes})
        return
    denied = output.denying_rule(skills)(skill)
    who = [
        who
        for who, may in (("the model", skill.visible), ("the user", skill.user_invocable and skill.enabled))
        if may and not denied
    ]
    output.facts(
        (
            ("name", skill.name),
            ("description", skill.description),
            ("path", skill.path),
            ("scope", f"{skill.scope} (from {skill.source})"),
            ("mode", skill.mode),
            ("called by", " and ".join(who) or f"nobody; {denied or 'it is switched off'}"),
            ("trust", "" if skill.trusted else "the project is not trusted; `metier trust` trusts it"),
            ("shadowed by", shadowed_by),
            ("version", skill.version or ""),
            ("license", skill.license or ""),
            ("compatibility", skill.compatibility or ""),
            ("allowed tools", "" if skill.allowed_tools is None else ", ".join(skill.allowed_tools) or "none"),
            *((f"metadata.{key}", str(value)) for key, value in skill.metadata.items()),
            *((key, str(value)) for key, value in skill.extra.items() if key != "version"),
            ("files", ", ".join(listing.files) + _more(listing)),
        )
    )
    for diagnostic in notes:
        click.echo()
        output.diagnostic(diagnostic, skills.settings.place.cwd)


def _more(listing: Listing) -> str:
    if not listing.truncated:
        return ""
    return f" and {listing.left_out:,} more" if listing.left_out else " and more"
