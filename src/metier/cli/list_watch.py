"""`list --watch`: the catalog, and then a line for every change, until interrupted."""

import json
import queue
from collections.abc import Callable
from typing import Final

import click

from metier import Skills
from metier.catalog.build import Catalog
from metier.catalog.watch import News, Watcher
from metier.cli import output
from metier.cli.context import Context
from metier.files.text import printable
from metier.model import Changes, Diagnostic

NAMED: Final = 20
"""How many names are on a line. A checkout of another branch may change thousands."""


def follow(context: Context, skills: Skills, scope: str | None, show: Callable[[], None]) -> None:
    """Print the catalog, then one line for each change. With --json, each line is an object."""
    pending: queue.SimpleQueue[News] = queue.SimpleQueue()
    last = skills.catalog
    with Watcher(skills, pending.put) as watcher:
        if context.as_json:
            _json_line(
                {
                    "event": "catalog",
                    "profile": skills.profile.name,
                    "skills": [skill.as_dict() for skill in skills if scope in (None, skill.scope)],
                    "errors": [diagnostic.as_dict() for diagnostic in skills.errors],
                }
            )
        else:
            show()
        try:
            watcher.wait_ready()
            if not context.quiet and not context.as_json:
                click.echo(f"{watcher.how}; press Ctrl-C to stop", err=True)
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
        _json_line(
            {
                "event": "changed",
                "added": [skill.as_dict() for name in changes.added for skill in by_name.get(name, ())],
                "removed": list(changes.removed),
                "changed": [skill.as_dict() for name in changes.changed for skill in by_name.get(name, ())],
                "errors": [diagnostic.as_dict() for diagnostic in errors],
            }
        )
        return
    if changes:
        marked = [
            *(f"+{name}" for name in changes.added),
            *(f"-{name}" for name in changes.removed),
            *(f"~{name}" for name in changes.changed),
        ]
        more = f" and {len(marked) - NAMED:,} more" if len(marked) > NAMED else ""
        click.echo(f"{changes}: {printable(' '.join(marked[:NAMED]))}{more}")
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


def _json_line(data: dict[str, object]) -> None:
    # ASCII only, because some readers also split lines at Unicode line separators.
    click.echo(json.dumps(data, default=str))
