"""`events`, `replay` and `usage`: the record, shown, run again and counted."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, cast

import click

from metier import replay
from metier.errors import ConfigError
from metier.files.digests import is_digest
from metier.files.shapes import is_list, is_table
from metier.files.text import printable
from metier.hosts import profiles
from metier.record.events import is_internal
from metier.record.store import Frame, Store, canonical
from metier.record.usage import SORTS, SkillUsage, Sort, Usage, usage
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_skill
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.failure import CommandRefusal
from metier.surfaces.cli.frame import command, option

_HIDDEN: Final = ("id", "session_id", "stream_kind", "stream_id", "timestamp_ms", "seq", "type", "op", "life", "chain")
"""What only programs need."""
_SHOWN: Final = 20
"""How many differences are printed."""


@command("events", "metier events --type skill_loaded", "metier events --follow --json")
@option("--type T", "Show only events of this type.", "types", many=True)
@option("--limit", "Show the last N events.", type=click.IntRange(1), default=200, show_default=True)
@option("--follow", "Keep showing new events until interrupted.")
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
    wrong: list[str] = []
    for session in dict.fromkeys(frame["session_id"] for frame in shown if frame["stream_kind"] == "session"):
        for one in replay.verify(replay.from_store(store, session), frames_only=True):
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


# --- replay ---


@command(
    "replay",
    "metier replay",
    "metier replay --verify record.jsonl",
    "metier replay --drift SESSION",
)
@click.argument("source", required=False, metavar="[SESSION|FILE]")
@option("--verify", "Accept a record that can be checked but not run: a redacted one, or one of another version.")
@option("--drift", "Run on the current files, and show what would differ.")
def replay_command(context: Context, source: str | None, verify: bool, drift: bool) -> int:
    """Run a recorded session again, offline, and compare every byte. Exits with 1 if it differs.

    The record itself is checked first, for gaps, broken chains and lines, mixed sessions, and changed or missing
    artifacts.
    """
    with context.open_store() as store:
        record = _record(context, store, source)
        if drift:
            context.profile = context.profile or _profile(record)
            outcome = _outcome(record, replay.drift(record, context.discover()))
        elif verify and replay.unrunnable(record):
            outcome = _outcome(record, replay.verify(record))
        else:
            outcome = replay.replay(record)
    result = "nothing has drifted" if drift else "identical, byte for byte"
    if outcome.not_compared and outcome.identical:
        result += f"; {outcome.not_compared:,} frames of operations that never ended were not compared"
    if verify and not drift and (why := replay.unrunnable(record)):
        result = f"the record is valid; it {why} and cannot be run again"
    if not outcome.identical:
        result = f"{len(outcome.differences):,} differences"
    if not context.as_json:
        _show(outcome.differences)
    context.done(outcome.as_dict(), f"{len(record.frames):,} frames: {result}")
    return not outcome.identical


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
        message = f"there is no session {wanted!r} in the store; `metier session store stats` lists them"
        raise CommandRefusal(message, "NOT_FOUND")
    return record


# --- usage ---


_NAMES: Final = 8
"""The names in a line below the table."""


@command(
    "usage",
    "metier usage",
    "metier usage --since 7d --sort offered",
    "metier usage --sort name --limit 0",
    "metier usage --session ID --json",
)
@option("--since WHEN", "Count sessions active since then: 30m, 12h, 7d, 4w or 2026-11-01.")
@option("--skill NAME", "Show only this skill.", complete=complete_skill)
@option("--sort", "What comes first.", type=click.Choice(SORTS), default="context", show_default=True)
@option("--limit", "Show N skills; 0 shows all.", type=click.IntRange(0), default=40, show_default=True)
def usage_command(context: Context, since: str | None, skill: str | None, sort: str, limit: int) -> int:
    """Show which skills were offered, found, loaded, read and run.

    OFFERED counts the sessions whose model was shown the skill in a list, the others count each time. CONTEXT is the
    estimated number of tokens, and the share of everything that Metier put into the contexts. --session counts only
    that session. Exits with 1 if no session had the --skill.
    """
    with context.open_store() as store:
        found = usage(store, session=context.session, since=since, skill=skill, sort=cast("Sort", sort))
    if context.as_json:
        output.json_out(found)
    elif not found.sessions:
        when = f" since {since}" if since else ""
        click.echo(f"no session is recorded{when}; load a skill, or give your agent `metier mcp`", err=True)
        return 0
    elif not found.skills:
        what = f"the skill {skill!r}" if skill else "a skill"
        click.echo(printable(f"none of {_many(found.sessions, 'session')} offered, found or used {what}"), err=True)
    else:
        _show_usage(found, limit, quiet=context.quiet)
    return bool(skill and not found.skills)


def _show_usage(found: Usage, limit: int, *, quiet: bool) -> None:
    shown = found.skills[: limit or None]
    headers = ("skill", "offered", "found", "loaded", "read", "ran", "refused", "context", "last")
    output.table(headers, [_usage_row(one) for one in shown], 0)
    if quiet:
        return
    click.echo()
    if len(found.skills) > len(shown):
        click.echo(f"{len(found.skills) - len(shown):,} more skills are not shown; --limit 0 shows all")
    _say(f"{_many(found.sessions, 'session')}, about {_short(found.tokens)} tokens from Metier")
    if found.never_loaded:
        _say(f"offered and never loaded: {output.first(found.never_loaded, _NAMES)}")
    if found.sessions_without_texts:
        kept = f"{_many(found.sessions_without_texts, 'session')} kept no texts"
        _say(f"note: {kept}, so their characters are not counted")


def _usage_row(one: SkillUsage) -> Sequence[str]:
    counts = (one.offered, one.found, one.loaded, one.read, one.ran, one.refused)
    context = f"{_short(one.tokens)} {one.share:.0%}" if one.characters else ""
    return (one.name, *(f"{count:,}" if count else "" for count in counts), context, _ago(one.last_used_ms))


def _say(text: str) -> None:
    click.echo(output.wrap(printable(text), hanging="  "))


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _short(count: int) -> str:
    """A number in at most four digits."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 10 * size else f"{count // size:,}{unit}"
    return str(count)


def _ago(ms: int | None) -> str:
    if ms is None:
        return ""
    seconds = max(0, int(time.time() - ms / 1000))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length:,}{unit}"
    return "now"
