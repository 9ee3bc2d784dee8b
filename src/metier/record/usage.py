"""Counts what sessions did with skills: offered, found, loaded, read, ran and refused, and their share of the context.

Everything comes from the record of a store, one session at a time, so that a store of any size can be counted. What a
record does not say is not guessed: the result counts the sessions without a list of offered skills, and those whose
texts were not kept. Skills are counted by name.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, Literal, get_args

from metier.errors import BadArguments, StoreError
from metier.record.events import is_internal
from metier.record.session_usage import SessionUsage, SkillTally, Texts, of_session
from metier.record.store import Store, open_store
from metier.record.writer import system_clock
from metier.values.value import Count, Value

TOKEN_CHARACTERS: Final = 4
"""The characters of a token, by a rule of thumb for English text."""

Sort = Literal["context", "loaded", "offered", "last", "name"]
SORTS: Final[tuple[Sort, ...]] = get_args(Sort)
"""What skills can be sorted by."""

_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class ContextCharacters(Value):
    """The characters that went into the context: of lists, of instructions, of other files, and of script output."""

    json_keys = ("description", "body", "resources", "output", "total")

    description: Count = 0
    body: Count = 0
    resources: Count = 0
    output: Count = 0

    @property
    def total(self) -> Count:
        return self.description + self.body + self.resources + self.output


class SkillUsage(Value, kw_only=True):
    """What sessions did with the skills of one name."""

    json_keys = (
        "name", "sessions", "offered", "found", "loaded", "loaded_by_model", "loaded_by_user", "preloaded",
        "loaded_again", "unoffered", "read", "ran", "run_refused", "refused", "characters", "tokens",
        "share=_rounded_share", "last_used_ms",
    )  # fmt: skip

    name: str
    sessions: Count
    """The sessions in which it was offered, found, used or refused."""
    offered: Count
    """The sessions whose model was shown it in a list."""
    found: Count
    """How often a search found it."""
    loaded: Count
    loaded_by_model: Count
    loaded_by_user: Count
    preloaded: Count
    loaded_again: Count
    """The loads that gave only a reminder, because the text had been given before."""
    unoffered: Count
    """The sessions that loaded it although no list that their model was shown has it."""
    read: Count
    ran: Count
    run_refused: Count
    """The scripts that did not start: policy, a check or a missing sandbox refused them."""
    refused: Count
    """The loads and reads that were refused."""
    characters: ContextCharacters
    share: float
    """Its part of all characters that Metier put into the contexts of the counted sessions, from 0 to 1."""
    last_used_ms: int | None
    """When it was last loaded, read or run."""

    @property
    def _rounded_share(self) -> float:
        return round(self.share, 4)

    @property
    def tokens(self) -> Count:
        """An estimate: a token is taken to have four characters."""
        return self.characters.total // TOKEN_CHARACTERS


_COUNTS: Final = tuple(name for name, kind in SkillUsage.__annotations__.items() if kind is Count)


class Usage(Value, kw_only=True):
    """What the counted sessions did with skills. Characters are those that Metier put into their contexts."""

    json_keys = (
        "sessions", "sessions_without_lists", "sessions_without_texts", "characters", "tokens", "skills",
        "never_loaded=_never_loaded", "unoffered=_unoffered",
    )  # fmt: skip

    sessions: Count
    skills: tuple[SkillUsage, ...]
    characters: Count
    """All characters, including search results, refusals and the headings of lists, which belong to no skill."""
    sessions_without_lists: Count
    """The sessions whose record has no list of offered skills: no model was shown one."""
    sessions_without_texts: Count
    """The sessions with texts that were not kept, so that their characters are not counted."""

    @property
    def never_loaded(self) -> tuple[SkillUsage, ...]:
        """The skills that models were shown and nobody loaded, those that took the most characters first."""
        found = [one for one in self.skills if one.offered and not one.loaded]
        return tuple(sorted(found, key=lambda one: (-one.characters.total, one.name)))

    @property
    def unoffered(self) -> tuple[SkillUsage, ...]:
        """The skills that were loaded without being in a list that the model was shown."""
        return tuple(one for one in self.skills if one.unoffered)

    @property
    def tokens(self) -> Count:
        return self.characters // TOKEN_CHARACTERS

    @property
    def _never_loaded(self) -> list[str]:
        return [one.name for one in self.never_loaded]

    @property
    def _unoffered(self) -> list[str]:
        return [one.name for one in self.unoffered]


def usage(
    store: Store | str,
    *,
    session: str | None = None,
    since: datetime | timedelta | str | None = None,
    skill: str | None = None,
    sort: Sort = "context",
) -> Usage:
    """Count what the sessions of a store did with skills.

    Args:
        store: A `Store` or its URL.
        session: Count only this session.
        since: Count only sessions with an event since then: a time, how long ago, or a text such as `7d`, `12h` or
            `2026-11-01`.
        skill: Return only the skill of this name. Its share is still that of everything.
        sort: The order of the skills: by characters in the `context`, by how often they were `loaded` or `offered`, by
            when they were `last` used, or by `name`.
    """
    if isinstance(store, str):
        with open_store(store) as opened:
            return usage(opened, session=session, since=since, skill=skill, sort=sort)
    if sort not in SORTS:
        raise BadArguments(f"sort must be one of {', '.join(SORTS)}", field="sort")
    after = since_ms(since) if since is not None else 0
    summaries = [one for one in store.sessions() if not is_internal(one.id)]
    if session is not None:
        summaries = [one for one in summaries if one.id == session]
        if not summaries:
            hint = "`metier session store stats` lists the latest sessions"
            raise StoreError(f"there is no session {session!r}", reason="invalid", hint=hint)
    texts = Texts(store)
    counted = (of_session(texts, one.id) for one in summaries if one.last_ms >= after)
    return together(counted, skill=skill, sort=sort)


def since_ms(since: datetime | timedelta | str) -> int:
    """A point in time in milliseconds since 1970. Times without a zone are local."""
    if isinstance(since, str):
        since = _parsed(since.strip())
    if isinstance(since, timedelta):
        return system_clock() - int(since.total_seconds() * 1000)
    return int(since.timestamp() * 1000)


def _parsed(text: str) -> datetime | timedelta:
    try:
        if text[-1:] in _UNITS and text[:-1].isascii() and text[:-1].isdigit():
            return timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        message = f"since is a date such as 2026-11-01, or how long ago, such as 30m, 12h, 7d or 4w, and not {text!r}"
        raise BadArguments(message, field="since") from error


def together(sessions: Iterator[SessionUsage], *, skill: str | None = None, sort: Sort = "context") -> Usage:
    """The usage of sessions, each of which is dropped when it is counted."""
    skills: dict[str, SkillTally] = {}
    counted: Counter[str] = Counter()
    for one in sessions:
        counted["sessions"] += 1
        counted["without_lists"] += not one.has_lists
        counted["without_texts"] += not one.has_texts
        counted["characters"] += one.characters
        for name, tally in one.skills.items():
            known = skills.setdefault(name, SkillTally())
            known.counts.update(tally.counts)
            known.counts["sessions"] += 1
            known.characters.update(tally.characters)
            known.last_used_ms = max(known.last_used_ms, tally.last_used_ms)
    found = [_skill_usage(name, tally, counted["characters"]) for name, tally in skills.items()]
    return Usage(
        sessions=counted["sessions"],
        skills=tuple(sorted((one for one in found if skill in (None, one.name)), key=lambda one: _order(one, sort))),
        characters=counted["characters"],
        sessions_without_lists=counted["without_lists"],
        sessions_without_texts=counted["without_texts"],
    )


def _skill_usage(name: str, tally: SkillTally, all_characters: int) -> SkillUsage:
    characters = ContextCharacters(**{name: tally.characters[name] for name in ContextCharacters.__struct_fields__})
    return SkillUsage(
        name=name,
        **{key: tally.counts[key] for key in _COUNTS},
        characters=characters,
        share=characters.total / all_characters if all_characters else 0.0,
        last_used_ms=tally.last_used_ms or None,
    )


def _order(one: SkillUsage, sort: Sort) -> tuple[int, str]:
    by: Mapping[Sort, int] = {
        "context": one.characters.total,
        "loaded": one.loaded,
        "offered": one.offered,
        "last": one.last_used_ms or 0,
        "name": 0,
    }
    return -by[sort], one.name
