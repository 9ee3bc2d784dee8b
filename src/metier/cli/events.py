"""`events`: the record, as a timeline or as JSON lines."""

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import click

from metier.cli import output
from metier.cli.context import Context, shared
from metier.cli.failure import CommandRefusal
from metier.files.digests import is_digest
from metier.files.shapes import is_list, is_table
from metier.files.text import printable
from metier.record.store import Frame, Store, canonical

_HIDDEN = ("id", "session_id", "stream_kind", "stream_id", "timestamp_ms", "seq", "type", "op", "life", "chain")
"""What only programs need."""


@click.command("events", epilog="Examples:\n\n\b\n  metier events --type skill_loaded\n  metier events --follow --json")
@click.option("--type", "types", multiple=True, metavar="T", help="Show only events of this type. Can be repeated.")
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, help="Show the last N events.")
@click.option("--follow", is_flag=True, help="Keep showing new events until interrupted.")
@shared
def events_command(context: Context, types: tuple[str, ...], limit: int, follow: bool) -> None:
    """Show the record: what was loaded, read, run and refused, and when.

    Exits with 1 if events of a shown session were changed, removed or added after they were written.
    """
    with context.open_store() as store:
        cursor = store.cursor()
        shown = store.read(context.session, types=types or None, limit=limit, newest=True)
        timeline = _Timeline(context.as_json)
        timeline.show(shown)
        if not follow:
            if not shown and not context.quiet:
                context.note("no events yet; load a skill first")
            _check(context, store, shown)
            return
        # Events between the cursor and the read were already shown, and come again.
        known = {frame["stream_id"]: frame["seq"] for frame in shown}
        while True:
            page = store.page(cursor, context.session, types=types or None)
            timeline.show([f for f in page.frames if f["seq"] > known.get(f["stream_id"], -1)])
            if page.cursor == cursor:
                store.wait(cursor, 1.0)
            cursor = page.cursor


def _check(context: Context, store: Store, shown: list[Frame]) -> None:
    """Fail if the events of a shown session do not fit together."""
    from metier.replay import verify_chain  # not above, because other commands do not need it

    wrong: list[str] = []
    for session in dict.fromkeys(frame["session_id"] for frame in shown if frame["stream_kind"] == "session"):
        for one in verify_chain(store, session):
            context.note(f"error: session {session}: {one.detail}")
            wrong.append(session)
    if wrong:
        sessions = ", ".join(dict.fromkeys(wrong))
        raise CommandRefusal(f"events were changed after they were written: {sessions}", "CONFLICT")


class _Timeline:
    """Prints frames as JSON lines, or as text with a heading for each session and day."""

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._heading = as_json, ""

    def show(self, frames: list[Frame]) -> None:
        for frame in frames:
            if self._as_json:
                click.echo(canonical(frame))
                continue
            when = datetime.fromtimestamp(frame["timestamp_ms"] / 1000, UTC).astimezone()
            heading = f"{when:%Y-%m-%d}  session {frame['session_id']}"
            if heading != self._heading:
                click.secho(printable(heading), bold=True)
                self._heading = heading
            facts = printable(", ".join(_facts(frame)))
            line = f"{when:%H:%M:%S} {frame['seq']:>5}  {printable(frame['type']):<22} {facts}"
            click.echo(line.rstrip())
        sys.stdout.flush()


def _facts(frame: Mapping[str, object]) -> Iterator[str]:
    """The facts of a frame that matter to a person, without digests, tables and false flags."""
    for key, value in frame.items():
        if key in _HIDDEN or value is False or is_digest(value):
            continue
        if is_table(value):
            if key in ("args", "arguments"):
                yield from _facts(value)
        elif is_list(value):
            yield f"{len(value)} {key}"
        else:
            text = str(value)
            # On a terminal, prose is shortened. A path, a URL or an id is of no use in parts.
            prose = output.on_terminal() and len(text) > 48 and " " in text and not text.startswith(("/", "~", "."))
            short = f"{text[:45]}..." if prose else text
            yield short if key in ("name", "operation", "status") else f"{key}={short}"


COMMANDS = (events_command,)
