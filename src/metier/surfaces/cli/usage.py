"""`usage`: which skills were offered, found, loaded, read and run, and their share of the context."""

import time
from collections.abc import Sequence
from typing import Final, cast

import click

from metier.files.text import printable
from metier.record.usage import SORTS, TOKEN_CHARACTERS, SkillUsage, Sort, Usage, usage
from metier.surfaces.cli import output
from metier.surfaces.cli.completion import complete_skill
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command

_NAMED: Final = 8
"""The names in a line below the table."""


@command(
    "usage",
    "metier usage",
    "metier usage --since 7d --sort offered",
    "metier usage --sort name --limit 0",
    "metier usage --session ID --json",
    prints=Usage,
)
@click.option("--since", metavar="WHEN", help="Count sessions active since then: 30m, 12h, 7d, 4w or 2026-11-01.")
@click.option("--skill", metavar="NAME", help="Show only this skill.", shell_complete=complete_skill)
@click.option("--sort", type=click.Choice(SORTS), default="context", show_default=True, help="What comes first.")
@click.option("--limit", type=click.IntRange(0), default=40, show_default=True, help="Show N skills; 0 shows all.")
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
    elif skill:
        _show_one(found.skills[0], found)
    else:
        _show(found, limit, quiet=context.quiet)
    return bool(skill and not found.skills)


def _show(found: Usage, limit: int, *, quiet: bool) -> None:
    shown = found.skills[: limit or None]
    headers = ("skill", "offered", "found", "loaded", "read", "ran", "refused", "context", "last")
    output.table(headers, [_row(one) for one in shown], 0)
    if quiet:
        return
    click.echo()
    if len(found.skills) > len(shown):
        click.echo(f"{len(found.skills) - len(shown):,} more skills are not shown; --limit 0 shows all")
    _say(f"{_many(found.sessions, 'session')}, about {_short(found.characters // TOKEN_CHARACTERS)} tokens from Metier")
    if found.never_loaded:
        _say(f"offered and never loaded: {_names(found.never_loaded)}")
    if found.unoffered:
        _say(f"loaded without being in a list: {_names(found.unoffered)}")
    _notes(found)


def _row(one: SkillUsage) -> Sequence[str]:
    counts = (one.offered, one.found, one.loaded, one.read, one.ran, one.refused + one.run_refused)
    context = f"{_short(one.tokens)} {one.share:.0%}" if one.characters.total else ""
    return (one.name, *(f"{count:,}" if count else "" for count in counts), context, _ago(one.last_used_ms))


def _show_one(one: SkillUsage, found: Usage) -> None:
    part = one.characters
    parts = {"list": part.description, "instructions": part.body, "files": part.resources, "output": part.output}
    loads = {"model": one.loaded_by_model, "user": one.loaded_by_user, "preloaded": one.preloaded}
    facts = (
        ("skill", one.name),
        ("offered", f"in {one.offered:,} of {_many(found.sessions, 'session')}"),
        ("found", f"{_many(one.found, 'time')} by a search"),
        ("loaded", f"{_many(one.loaded, 'time')}{_detail(loads)}"),
        ("again", f"{one.loaded_again:,} of these loads gave only a reminder" if one.loaded_again else ""),
        ("not in a list", f"when {_many(one.unoffered, 'session')} loaded it" if one.unoffered else ""),
        ("read", _many(one.read, "file")),
        ("ran", f"{_many(one.ran, 'script')}, {one.run_refused:,} refused"),
        ("refused", f"{one.refused:,} loads or reads" if one.refused else ""),
        ("context", f"{part.total:,} characters, about {one.tokens:,} tokens, {one.share:.1%}{_detail(parts)}"),
        ("last used", _ago(one.last_used_ms, " ago") or "never"),
    )
    output.facts(facts)
    _notes(found)


def _notes(found: Usage) -> None:
    """What the record does not say."""
    if found.sessions_without_lists:
        _say(f"note: {_many(found.sessions_without_lists, 'session')} recorded no list: no model was shown one")
    if found.sessions_without_texts:
        _say(
            f"note: {_many(found.sessions_without_texts, 'session')} kept no texts, so their characters are not counted"
        )


def _say(text: str) -> None:
    click.echo(output.wrap(printable(text), hanging="  "))


def _detail(parts: dict[str, int]) -> str:
    known = [f"{name} {count:,}" for name, count in parts.items() if count]
    return f" ({', '.join(known)})" if known else ""


def _names(skills: Sequence[SkillUsage]) -> str:
    return output.first([one.name for one in skills], _NAMED)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _short(count: int) -> str:
    """A number in at most four digits."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 10 * size else f"{count // size:,}{unit}"
    return str(count)


def _ago(ms: int | None, suffix: str = "") -> str:
    if ms is None:
        return ""
    seconds = max(0, int(time.time() - ms / 1000))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length:,}{unit}{suffix}"
    return "now"
