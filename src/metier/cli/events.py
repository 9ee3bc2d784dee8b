"""`events`, `replay`, `policy`, `store`: what happened, whether it would happen again, and what is allowed."""

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import click

from metier import replay
from metier.cli import output
from metier.cli.context import Context, shared
from metier.errors import ConfigError
from metier.files.text import printable
from metier.hosts.profiles import BUILT_IN
from metier.record.events import INSTALLS
from metier.record.store import Frame, Store, canonical
from metier.session.policy import Policy, Request

_ENVELOPE = ("id", "session_id", "stream_kind", "stream_id", "timestamp_ms", "seq", "type")


@click.command("events", epilog="Examples:\n\n\b\n  metier events --type skill_loaded\n  metier events --follow --json")
@click.option("--type", "types", multiple=True, metavar="T", help="Only events of this type; may be repeated.")
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, help="The last N events.")
@click.option("--follow", is_flag=True, help="Go on as new events come in, until interrupted.")
@shared
def events_command(context: Context, types: tuple[str, ...], limit: int, follow: bool) -> None:
    """Show the trail: what was loaded, read, called and refused, by whom and when."""
    with context.open_store() as store:
        cursor = store.cursor()
        shown = store.read(context.session, types=types or None, limit=limit, newest=True)
        timeline = _Timeline(context.as_json)
        timeline.show(shown)
        if not follow:
            if not shown and not context.quiet:
                click.echo("no events yet; load a skill first", err=True)
            return
        # What came between the cursor and the reading was shown already, and comes again.
        known = {frame["stream_id"]: frame["seq"] for frame in shown}
        while True:
            page = store.page(cursor, context.session, types=types or None)
            timeline.show([f for f in page.frames if f["seq"] > known.get(f["stream_id"], -1)])
            if page.cursor == cursor:
                store.wait(cursor, 1.0)
            cursor = page.cursor


class _Timeline:
    """Prints frames: as JSON lines, or for people, with a heading where another session or day begins."""

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
            click.echo(output.fit(line, output.width()).rstrip())
        sys.stdout.flush()


def _facts(frame: Mapping[str, Any]) -> Iterator[str]:
    """What a person wants to know of a frame: no digests, no tables, nothing that is simply not so."""
    for key, value in frame.items():
        if key in _ENVELOPE or value is False or str(value).startswith("sha256:"):
            continue
        if key in ("args", "arguments") and isinstance(value, dict):
            yield from _facts(cast("dict[str, Any]", value))
        elif isinstance(value, list):
            yield f"{len(cast('list[Any]', value))} {key}"
        elif not isinstance(value, dict):
            text = str(value)
            said = text if len(text) <= 48 else f"{text[:20]}...{text[-25:]}"
            yield said if key in ("name", "operation", "status") else f"{key}={said}"


@click.command(
    "replay",
    epilog="Examples:\n\n\b\n  metier replay\n  metier replay --verify trail.jsonl\n  metier replay --drift SESSION",
)
@click.argument("source", required=False, metavar="[SESSION|FILE]")
@click.option("--verify", is_flag=True, help="Also accept a redacted record, which can be checked but not run.")
@click.option("--drift", is_flag=True, help="Ask the same of today's files and show what would be different.")
@shared
def replay_command(context: Context, source: str | None, verify: bool, drift: bool) -> None:
    """Run a recorded session again, offline, and compare every byte. Exits with 1 if it differs.

    First the record itself is checked: gaps, broken lines, mixed sessions, changed and missing artifacts.
    """
    with context.open_store() as store:
        record = _record(context, store, source)
        if drift:
            context.profile = context.profile or _profile(record)
            outcome = replay.ReplayOutcome("", record.frames, (), replay.drift(record, context.discover()))
        elif verify and replay.redacted(record):
            outcome = replay.ReplayOutcome("", record.frames, (), replay.verify(record))
        else:
            outcome = replay.replay(record)
    if context.as_json:
        output.json_out(outcome.as_dict())
    else:
        for one in outcome.differences[:20]:
            click.echo(printable(f"{one.index}: {one.kind}: {one.detail}"))
            if one.expected or one.found:
                click.echo(output.fit(printable(f"  was: {one.expected}"), output.width()).rstrip())
                click.echo(output.fit(printable(f"  now: {one.found}"), output.width()).rstrip())
        if not context.quiet:
            verdict = "nothing has drifted" if drift else "identical, byte for byte"
            if verify and not drift and replay.redacted(record):
                verdict = "the record is sound; it is redacted and cannot be run again"
            said = verdict if outcome.identical else f"{len(outcome.differences):,} differences"
            click.echo(f"{len(record.frames):,} frames: {said}")
    if not outcome.identical:
        raise click.exceptions.Exit(1)


def _profile(record: replay.Record) -> str | None:
    """The profile of then, where it is one that is there today."""
    name = record.frames[0].get("profile") if record.frames else None
    return name if name in BUILT_IN else None


def _record(context: Context, store: Store, source: str | None) -> replay.Record:
    if source and replay.looks_like_file(source):
        return replay.from_file(source)
    wanted = source or context.session
    if wanted is None:
        sessions = sorted((one for one in store.sessions() if one.id != INSTALLS), key=lambda one: one.last_ms)
        if not sessions:
            raise ConfigError("there is no session in the store yet", key="SESSION", hint="load a skill first")
        wanted = sessions[-1].id
    record = replay.from_store(store, wanted)
    if not record.frames:
        raise click.ClickException(f"there is no session {wanted!r} in the store; `metier store stats` lists them")
    return record


@click.group("policy", epilog="Example:\n\n\b\n  metier policy explain skill_run --skill release-notes")
@shared
def policy_group(context: Context) -> None:
    """What is allowed, and which rule says so."""


@policy_group.command("show", epilog="Example:\n\n\b\n  metier policy show --json")
@shared
def policy_show(context: Context) -> None:
    """List the rules in the order in which they are asked."""
    config = context.settings()
    policy = Policy.from_settings(config.permissions, config.profile)
    if context.as_json:
        output.json_out(policy.as_dict() | {"warnings": policy.warnings})
        return
    click.echo(f"policy {policy.name}: deny before allow before ask, then the defaults of the policy")
    rows = [("deny", str(r)) for r in policy.deny] + [("allow", str(r)) for r in policy.allow]
    rows += [("ask", str(r)) for r in policy.ask]
    if rows:
        output.table(("verdict", "rule"), rows)
    for warning in policy.warnings:
        click.echo(f"warning: {warning}", err=True)


@policy_group.command("explain", epilog="Example:\n\n\b\n  metier policy explain skill_load --skill pdf")
@click.argument("tool")
@click.option("--skill", "skill_name", default="", metavar="NAME", help="On behalf of this skill.")
@click.option("--path", default="", metavar="P", help="For this file.")
@click.option("--command", default="", metavar="C", help="For this command.")
@shared
def policy_explain(context: Context, tool: str, skill_name: str, path: str, command: str) -> None:
    """Say whether a tool may be used, and which rule decides. Exits with 3 if it is refused."""
    config = context.settings()
    policy = Policy.from_settings(config.permissions, config.profile)
    decision = policy.decide(Request(policy.canonical(tool, config.profile), skill_name, path, command))
    if context.as_json:
        rule = decision.rule.as_dict() if decision.rule else None
        output.json_out({"verdict": decision.verdict, "why": decision.why, "rule": rule})
    else:
        click.echo(f"{decision.verdict}: {decision.why}")
    if decision.verdict == "deny":
        raise click.exceptions.Exit(3)


@click.group("store", epilog="Example:\n\n\b\n  metier store stats")
@shared
def store_group(context: Context) -> None:
    """The event store: how much it holds, and moving it."""


@store_group.command("stats", epilog="Example:\n\n\b\n  metier store stats --json")
@shared
def store_stats(context: Context) -> None:
    """Count what the store holds, and list its latest sessions."""
    with context.open_store() as store:
        stats, sessions = store.stats().as_dict(), sorted(store.sessions(), key=lambda one: -one.last_ms)
    if context.as_json:
        output.json_out(stats | {"latest": [one.as_dict() for one in sessions[:50]]})
        return
    output.facts((key, f"{value:,}" if isinstance(value, int) else str(value)) for key, value in stats.items())
    if sessions:
        click.echo()
        output.table(("session", "events"), [(one.id, f"{one.events:,}") for one in sessions[:20]], 0)


@store_group.command("prune", epilog="Example:\n\n\b\n  metier store prune --days 30")
@click.option("--days", type=click.IntRange(0), required=True, help="Sessions without an event for this many days go.")
@click.option("--keep", multiple=True, metavar="SESSION", help="Keep this session whatever its age.")
@shared
def store_prune(context: Context, days: int, keep: tuple[str, ...]) -> None:
    """Delete old sessions whole, and the artifacts that nothing needs any more."""
    horizon = int(datetime.now(UTC).timestamp() * 1000) - days * 86_400_000
    with context.open_store() as store:
        pruned = store.prune(horizon, keep)
    if context.as_json:
        output.json_out(pruned.as_dict())
    else:
        click.echo(
            f"{pruned.sessions:,} sessions, {pruned.events:,} events and {pruned.artifacts:,} artifacts are gone"
        )


@store_group.command("export", epilog="Example:\n\n\b\n  metier store export --session ID > trail.jsonl")
@shared
def store_export(context: Context) -> None:
    """Write events and artifacts as JSON lines: all, or those of one --session."""
    with context.open_store() as store:
        for line in store.export_lines(context.session):
            click.echo(line)


@store_group.command("import", epilog="Example:\n\n\b\n  metier store import < trail.jsonl")
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@shared
def store_import(context: Context, file: Any) -> None:
    """Read JSON lines that an export wrote; what is there already is left as it is."""
    with context.open_store() as store:
        imported = store.import_lines(line for line in file if line.strip())
    if context.as_json:
        output.json_out(imported.as_dict())
    else:
        click.echo(f"{imported.events:,} events and {imported.artifacts:,} artifacts are new")


COMMANDS = (events_command, replay_command, policy_group, store_group)
