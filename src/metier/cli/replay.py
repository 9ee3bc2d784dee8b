"""`replay`: whether a recorded session gives the same result again."""

from collections.abc import Sequence
from typing import Final

import click

from metier import replay
from metier.cli import output
from metier.cli.context import Context, shared
from metier.cli.failure import CommandRefusal
from metier.errors import ConfigError
from metier.files.text import printable
from metier.hosts import profiles
from metier.record.store import Store
from metier.record.streams import is_internal

_SHOWN: Final = 20
"""How many differences are printed."""


@click.command(
    "replay",
    epilog="Examples:\n\n\b\n  metier replay\n  metier replay --verify record.jsonl\n  metier replay --drift SESSION",
)
@click.argument("source", required=False, metavar="[SESSION|FILE]")
@click.option("--verify", is_flag=True, help="Accept a redacted record, which can be checked but not run.")
@click.option("--drift", is_flag=True, help="Run on the current files, and show what would differ.")
@shared
def replay_command(context: Context, source: str | None, verify: bool, drift: bool) -> None:
    """Run a recorded session again, offline, and compare every byte. Exits with 1 if it differs.

    The record itself is checked first, for gaps, broken chains and lines, mixed sessions, and changed or missing
    artifacts.
    """
    with context.open_store() as store:
        record = _record(context, store, source)
        if drift:
            context.profile = context.profile or _profile(record)
            outcome = _outcome(record, replay.drift(record, context.discover()))
        elif verify and replay.redacted(record):
            outcome = _outcome(record, replay.verify(record))
        else:
            outcome = replay.replay(record)
    if context.as_json:
        output.json_out(outcome.as_dict())
    else:
        _show(outcome.differences)
        if not context.quiet:
            result = "nothing has drifted" if drift else "identical, byte for byte"
            if outcome.not_compared and outcome.identical:
                result += f"; {outcome.not_compared:,} frames of operations that never ended were not compared"
            if verify and not drift and replay.redacted(record):
                result = "the record is valid; it is redacted and cannot be run again"
            if not outcome.identical:
                result = f"{len(outcome.differences):,} differences"
            click.echo(f"{len(record.frames):,} frames: {result}")
    if not outcome.identical:
        raise click.exceptions.Exit(1)


def _outcome(record: replay.Record, differences: Sequence[replay.Difference]) -> replay.ReplayOutcome:
    return replay.ReplayOutcome(session_id="", frames=record.frames, outputs=(), differences=differences)


def _show(differences: Sequence[replay.Difference]) -> None:
    for one in differences[:_SHOWN]:
        click.echo(printable(f"{one.index}: {one.kind}: {one.detail}"))
        if one.expected or one.found:
            click.echo(output.cut(printable(f"  was: {one.expected}"), output.width()))
            click.echo(output.cut(printable(f"  now: {one.found}"), output.width()))


def _profile(record: replay.Record) -> str | None:
    """The recorded profile, if it is a built-in one."""
    name = record.frames[0].get("profile") if record.frames else None
    return name if name in profiles.names() else None


def _record(context: Context, store: Store, source: str | None) -> replay.Record:
    if source and replay.looks_like_file(source):
        return replay.from_file(source)
    wanted = source or context.session
    if wanted is None:
        sessions = sorted((one for one in store.sessions() if not is_internal(one.id)), key=lambda one: one.last_ms)
        if not sessions:
            raise ConfigError("there is no session in the store yet", key="SESSION", hint="load a skill first")
        wanted = sessions[-1].id
    record = replay.from_store(store, wanted)
    if not record.frames:
        raise CommandRefusal(
            f"there is no session {wanted!r} in the store; `metier store stats` lists them", "NOT_FOUND"
        )
    return record


COMMANDS = (replay_command,)
