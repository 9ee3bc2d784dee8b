"""`store`: the size of the event store, and moving and deleting events."""

from typing import TextIO

import click

from metier.cli import output
from metier.cli.context import Context, shared
from metier.cli.suggest import SuggestingGroup
from metier.record import retention
from metier.record.streams import RETENTION, is_internal
from metier.record.writer import system_clock


@click.group("store", cls=SuggestingGroup, epilog="Example:\n\n\b\n  metier store stats")
@shared
def store_group(context: Context) -> None:
    """Count, move and delete the events in the store."""


@store_group.command("stats", epilog="Example:\n\n\b\n  metier store stats --json")
@shared
def store_stats(context: Context) -> None:
    """Count the contents of the store, and list its latest sessions.

    `keeps` is the bound of the store. Sessions beyond it are deleted once a day, except those of the last day.
    """
    config = context.settings()
    bound = retention.Bound(config.store_days, config.store_megabytes)
    with context.open_store() as store:
        stats, sessions = store.stats().as_dict(), [one for one in store.sessions() if not is_internal(one.id)]
        stats["content_bytes"] = retention.content_bytes(store)
    sessions.sort(key=lambda one: -one.last_ms)
    if context.as_json:
        stats |= {"store_days": bound.days, "store_megabytes": bound.megabytes}
        output.json_out(stats | {"latest": [one.as_dict() for one in sessions[:50]]})
        return
    stats["keeps"] = f"{bound} (store_days, store_megabytes)"
    output.facts((key, f"{value:,}" if isinstance(value, int) else str(value)) for key, value in stats.items())
    if sessions:
        click.echo()
        output.table(("session", "events"), [(one.id, f"{one.events:,}") for one in sessions[:20]], 0)


@store_group.command("prune", epilog="Example:\n\n\b\n  metier store prune --days 30")
@click.option(
    "--days", type=click.IntRange(0), required=True, help="Delete sessions without an event for this many days."
)
@click.option("--keep", multiple=True, metavar="SESSION", help="Keep this session. Can be repeated.")
@shared
def store_prune(context: Context, days: int, keep: tuple[str, ...]) -> None:
    """Delete old sessions, and the artifacts that are no longer needed."""
    now = system_clock()
    with context.open_store() as store:
        pruned = retention.prune(store, now - days * retention.DAY_MS, (*keep, RETENTION), "command", now)
    if context.as_json:
        output.json_out(pruned.as_dict())
    else:
        click.echo(
            f"{pruned.sessions:,} sessions, {pruned.events:,} events and {pruned.artifacts:,} artifacts were deleted"
        )


@store_group.command("export", epilog="Example:\n\n\b\n  metier store export --session ID > record.jsonl")
@shared
def store_export(context: Context) -> None:
    """Print events and artifacts as JSON lines: all, or those of one --session."""
    with context.open_store() as store:
        for line in store.export_lines(context.session):
            click.echo(line)


@store_group.command("import", epilog="Example:\n\n\b\n  metier store import < record.jsonl")
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@shared
def store_import(context: Context, file: TextIO) -> None:
    """Read the JSON lines of an export. Events that are already stored are skipped."""
    from metier.record.store.lines import read_lines

    with context.open_store() as store:
        imported = store.import_lines(read_lines(file))
    if context.as_json:
        output.json_out(imported.as_dict())
    else:
        click.echo(f"{imported.events:,} events and {imported.artifacts:,} artifacts were imported")


COMMANDS = (store_group,)
