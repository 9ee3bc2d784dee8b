"""Counts what sessions did with skills: offered, found, loaded, read, ran and refused, and their share of the context.

Everything comes from the record of a store, one session at a time and in pages, so that a store of any size can be
counted. What a record does not say is not guessed: the result counts the sessions whose texts were not kept. Skills are
counted by name. The text that an operation returned counts to the skill that the operation loaded, read or ran.
"""

import contextlib
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, get_args

from msgspec import Struct

from metier.catalog.snapshot import names_by_path
from metier.errors import BadArguments, MetierError, StoreError
from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_items
from metier.files.text import from_utf8
from metier.files.urls import parse_url
from metier.record.events import SkillsOffered, is_internal, offers_stream
from metier.record.offers import read_offer
from metier.record.state import ref_of
from metier.record.store import Frame, Store, Summary, open_store
from metier.record.telemetry import REFUSALS
from metier.record.writer import system_clock
from metier.values.value import Count, Value, field

TOKEN_CHARACTERS: Final = 4
"""The characters of a token, by a rule of thumb for English text."""

Sort = Literal["context", "loaded", "offered", "last", "name"]
SORTS: Final[tuple[Sort, ...]] = get_args(Sort)
"""What skills can be sorted by."""

MEASURES: Final = ("loaded", "read", "ran", "refused")
"""What a session did with a skill, by the fields of `SkillUsage`."""

_Names = dict[str, str]
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PAGE: Final = 1_000
"""The events that are read at once."""
_ABOUT_SKILLS: Final = {
    "skill_loaded": "loaded",
    "skill_resource_read": "read",
    "tool_started": "ran",
    "skill_resource_refused": "refused",
    "tool_failed": "refused",
}
_TYPES: Final = (
    *("session_started", "session_called", "session_returned", "skill_catalog_updated", "skills_searched"),
    *_ABOUT_SKILLS,
)


class SkillUsage(Value, kw_only=True):
    """What sessions did with the skills of one name."""

    name: str
    sessions: Count
    """The sessions in which it was offered, found, used or refused."""
    offered: Count
    """The sessions whose model was shown it in a list."""
    found: Count
    """How often a search found it."""
    loaded: Count
    """How often it was loaded, reminders included."""
    read: Count
    ran: Count
    refused: Count
    """The loads, reads and runs that policy, a check or a missing sandbox refused."""
    characters: Count
    """The characters of its descriptions, instructions, files and script output that went into contexts."""
    tokens: Count
    """An estimate: a token is taken to have four characters."""
    share: float
    """Its part of all characters that Metier put into the contexts of the counted sessions, from 0 to 1."""
    last_used_ms: int | None
    """When it was last loaded, read or run."""


class Usage(Value, kw_only=True):
    """What the counted sessions did with skills. Characters are those that Metier put into their contexts."""

    sessions: Count
    sessions_without_texts: Count
    """The sessions with texts that were not kept, so that their characters are not counted."""
    characters: Count
    """All characters, including search results, refusals and the headings of lists, which belong to no skill."""
    tokens: Count
    skills: tuple[SkillUsage, ...]
    never_loaded: tuple[str, ...]
    """The skills that models were shown and nobody loaded, those that took the most characters first."""


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
    summaries = [one for one in store.sessions() if not is_internal(one.id) and session in (None, one.id)]
    if session is not None and not summaries:
        hint = "`metier session store stats` lists the latest sessions"
        raise StoreError(f"there is no session {session!r}", reason="invalid", hint=hint)
    counter = SessionCounter(store)
    return together((counter.count(one) for one in summaries if one.last_ms >= after), skill=skill, sort=sort)


def since_ms(since: datetime | timedelta | str) -> int:
    """A point in time in milliseconds since 1970. Times without a zone are local."""
    if isinstance(since, timedelta):
        return system_clock() - int(since.total_seconds() * 1000)
    if isinstance(since, datetime):
        return int(since.timestamp() * 1000)
    text = since.strip()
    try:
        if text[-1:] in _UNITS and text[:-1].isascii() and text[:-1].isdigit():
            return since_ms(timedelta(**{_UNITS[text[-1]]: int(text[:-1])}))
        return since_ms(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        message = f"since is a date such as 2026-11-01, or how long ago, such as 30m, 12h, 7d or 4w, and not {text!r}"
        raise BadArguments(message, field="since") from error


# --- one session ---


class SessionUsage(Struct):
    """What one session did with skills."""

    summary: Summary
    surface: str = ""
    counts: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    """By the name of the skill and of the field of `SkillUsage`."""
    last_used_ms: dict[str, int] = field(default_factory=dict[str, int])
    characters: int = 0
    has_texts: bool = True

    def add(self, name: str, what: str, number: int = 1) -> None:
        self.counts.setdefault(name, Counter())[what] += number

    def count(self, what: str) -> int:
        return sum(counts[what] for counts in self.counts.values())

    @property
    def skills(self) -> list[str]:
        """The skills that it loaded, read, ran or refused."""
        return [name for name, counts in self.counts.items() if any(counts[what] for what in MEASURES)]


@contextlib.contextmanager
def _where_kept(found: SessionUsage) -> Generator[None]:
    """Note that a text is not counted, where the store has not kept it."""
    try:
        yield
    except StoreError as error:
        if error.reason != "missing-artifact":
            raise
        found.has_texts = False


class _Call(Struct):
    """An operation that has not returned yet."""

    operation: str = ""
    asked: str = ""
    """The name or the path of the skill that it asked for. A model can write any text there."""
    skill: str = ""
    """The skill that it loaded, read or ran, or whose text it returns again."""
    refused: bool = False


class SessionCounter:
    """Counts the sessions of a store. The latest texts are kept in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._length = lru_cache(4_096)(self._read_length)
        self._catalog = lru_cache(16)(self._read_catalog)

    def count(self, session: Summary) -> SessionUsage:
        found, names, refs, calls = SessionUsage(session), _Names(), _Names(), dict[str, _Call]()
        after = -1
        while frames := self._store.read(session.id, session.id, _TYPES, after, limit=_PAGE):
            for frame in frames:
                with _where_kept(found):
                    self._take(frame, found, names, refs, calls)
            after = int(frames[-1]["seq"])
        self._take_lists(found)
        return found

    def _read_length(self, digest: str) -> int:
        return len(from_utf8(self._store.get_artifact(digest)))

    def _read_catalog(self, digest: str) -> Mapping[str, str]:
        return names_by_path(from_utf8(self._store.get_artifact(digest)))

    def _take(self, frame: Frame, found: SessionUsage, names: _Names, refs: _Names, calls: dict[str, _Call]) -> None:
        """Count an event. `names` are those of skills by path, `refs` those of skills whose text has a ref."""
        kind, call = frame["type"], calls.get(frame.get("op", "")) or _Call()
        if kind == "session_started":
            found.surface = found.surface or str(frame.get("surface", ""))
        elif kind == "session_called":
            calls[str(frame["id"])] = _call(frame, refs)
        elif kind == "skill_catalog_updated" and frame.get("snapshot"):
            names.update(self._catalog(str(frame["snapshot"])))
        elif kind == "skills_searched":
            hits = as_table(parse_json(from_utf8(self._store.get_artifact(str(frame["hits"]))))).get("hits")
            for path in (hit[0] for hit in (hits if is_items(hits) else ()) if is_items(hit) and hit):
                if path in names:
                    found.add(names[str(path)], "found")
        elif kind == "session_returned":
            calls.pop(frame.get("op", ""), None)
            asked = names.get(call.asked, call.asked)
            if frame.get("code") in REFUSALS and not call.refused and asked in names.values():
                found.add(asked, "refused")
            # What is lost nobody got, and a message that loads nothing is the user's own.
            if frame.get("status") != "lost" and (call.operation != "invoke" or call.skill):
                self._add_text(found, call.skill, str(frame["output"]))
        elif isinstance(name := frame.get("name"), str):
            what = _ABOUT_SKILLS[kind]
            call.refused |= what == "refused"
            if kind == "tool_failed" and call.skill:
                return  # the script ran, and was stopped at a limit
            found.add(name, what)
            if what == "refused":
                return
            found.last_used_ms[name] = max(found.last_used_ms.get(name, 0), int(frame["timestamp_ms"]))
            if kind == "skill_loaded":
                refs[ref_of(str(frame["output"]))] = name
            if frame.get("preloaded"):  # it stands in the prompt, and no operation returns it
                self._add_text(found, name, str(frame["output"]))
            else:
                call.skill = name

    def _add_text(self, found: SessionUsage, name: str, digest: str) -> None:
        characters = self._length(digest)
        found.characters += characters
        if name:
            found.add(name, "characters", characters)

    def _take_lists(self, found: SessionUsage) -> None:
        """Count what the model was shown. A list that is shown again replaces the one before in the context."""
        lists, entries, session_id = Counter[str](), Counter[tuple[str, str]](), found.summary.id
        for frame in self._store.read(session_id, offers_stream(session_id), (SkillsOffered.type,)):
            with _where_kept(found):
                place, sizes = str(frame["place"]), Counter[str]()
                for one in read_offer(self._store.get_artifact(str(frame["digest"]))):  # several may have one name
                    sizes[one.name] += one.characters or 0
                lists[place] = max(lists[place], int(frame["characters"]))
                for name, size in sizes.items():
                    entries[place, name] = max(entries[place, name], size)
        found.characters += lists.total()
        for (_, name), size in entries.items():
            found.add(name, "characters", size)
            found.counts[name]["offered"] = 1


def _call(frame: Frame, refs: Mapping[str, str]) -> _Call:
    given = as_table(frame.get("args"))
    given = {**as_table(given.get("arguments")), **given}
    asked = next((text for key in ("name", "path") if isinstance(text := given.get(key), str) and text), "")
    with contextlib.suppress(MetierError):
        asked = parse_url(asked)[0]
    return _Call(str(frame.get("operation", "")), asked, refs.get(str(given.get("ref")), ""))


# --- all sessions ---


def together(sessions: Iterable[SessionUsage], *, skill: str | None = None, sort: Sort = "context") -> Usage:
    """The usage of sessions, each of which is dropped when it is counted."""
    counts, last, total = dict[str, Counter[str]](), dict[str, int](), Counter[str]()
    for one in sessions:
        total.update(sessions=1, without_texts=int(not one.has_texts), characters=one.characters)
        for name, counted in one.counts.items():
            counts.setdefault(name, Counter()).update(counted, sessions=1)
            last[name] = max(last.get(name, 0), one.last_used_ms.get(name, 0))
    skills = list[SkillUsage]()
    for name, counted in counts.items():
        counted["tokens"] = counted["characters"] // TOKEN_CHARACTERS
        known = {key: counted[key] for key, kind in SkillUsage.__annotations__.items() if kind is Count}
        share = round(counted["characters"] / (total["characters"] or 1), 4)
        if skill in (None, name):
            skills.append(SkillUsage(name=name, **known, share=share, last_used_ms=last[name] or None))
    unused = (one for one in skills if one.offered and not one.loaded)
    return Usage(
        sessions=total["sessions"],
        sessions_without_texts=total["without_texts"],
        characters=total["characters"],
        tokens=total["characters"] // TOKEN_CHARACTERS,
        skills=tuple(sorted(skills, key=lambda one: _order(one, sort))),
        never_loaded=tuple(one.name for one in sorted(unused, key=lambda one: _order(one, "context"))),
    )


def _order(one: SkillUsage, sort: Sort) -> tuple[int, str]:
    by = {"context": "characters", "last": "last_used_ms"}.get(sort, sort)
    return -(getattr(one, by) or 0) if sort != "name" else 0, one.name
