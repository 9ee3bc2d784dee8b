"""Counts what one session did with skills, from the events of its record and the lists that its model was shown.

The text that an operation returned counts to the skill that the operation loaded, read or ran. Events are read in
pages, so that a session may have any number of them.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from metier.catalog.snapshot import names_by_path
from metier.errors import MetierError, StoreError
from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_items
from metier.files.text import from_utf8
from metier.files.urls import parse_url
from metier.record.events import SkillsOffered, offers_stream
from metier.record.offers import OfferedSkill, read_offer
from metier.record.state import ref_of
from metier.record.store import Frame, Store
from metier.values.value import field

_PAGE: Final = 1_000
"""The events that are read at once."""
_REFUSED: Final = frozenset(("PolicyDenied", "ACCESS_DENIED", "PERMISSION_DENIED", "PathEscape", "ScriptRefused"))
"""The codes of errors that refuse something to a host or a model."""
_TYPES: Final = (
    "session_started",
    "session_called",
    "session_returned",
    "skill_catalog_updated",
    "skill_loaded",
    "skill_invoked",
    "skill_resource_read",
    "skill_resource_refused",
    "skills_searched",
    "tool_started",
    "tool_failed",
)


class SkillTally(Struct):
    """What one session did with a skill. Counts are by the names of the fields of `SkillUsage`, and how often it was
    `called` by a message or a model, whether or not that loaded it."""

    counts: Counter[str] = field(default_factory=Counter[str])
    characters: Counter[str] = field(default_factory=Counter[str])
    last_used_ms: int = 0


class SessionUsage(Struct):
    """What one session did with skills."""

    id: str
    surface: str = ""
    skills: dict[str, SkillTally] = field(default_factory=dict[str, SkillTally])
    listed: int = 0
    """The characters of the lists that its model was shown."""
    other: int = 0
    """The characters of results that belong to no skill."""
    has_lists: bool = False
    has_texts: bool = True

    def tally(self, name: str) -> SkillTally:
        return self.skills.setdefault(name, SkillTally())

    @property
    def characters(self) -> int:
        """All characters that Metier put into the context. A description is part of a list."""
        parts = (one.characters for one in self.skills.values())
        return self.listed + self.other + sum(part.total() - part["description"] for part in parts)


class Texts:
    """What the artifacts of a store say, the latest kept in memory; `None` where the store does not have it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.length = lru_cache(4_096)(self._length)
        self.catalog = lru_cache(16)(self._catalog)
        self.offer = lru_cache(64)(self._offer)

    def _length(self, digest: str) -> int | None:
        """The number of characters of a text."""
        data = self.data(digest)
        return None if data is None else len(from_utf8(data))

    def _catalog(self, digest: str) -> Mapping[str, str]:
        """The names of the skills of a catalog, by path; empty where it is not known."""
        data = self.data(digest) if digest else None
        return names_by_path(from_utf8(data)) if data is not None else {}

    def _offer(self, digest: str) -> list[OfferedSkill] | None:
        """The skills of a list that a model was shown."""
        data = self.data(digest)
        return read_offer(data) if data is not None else None

    def data(self, digest: str) -> bytes | None:
        try:
            return self.store.get_artifact(digest)
        except StoreError as error:
            if error.reason != "missing-artifact":
                raise
            return None


def of_session(texts: Texts, session_id: str) -> SessionUsage:
    """What a session did with skills."""
    count, after = _Count(texts, session_id), -1
    while frames := texts.store.read(session_id, session_id, _TYPES, after, limit=_PAGE):
        for frame in frames:
            count.take(frame)
        after = int(frames[-1]["seq"])
    return count.finish()


class _Operation(Struct):
    """An operation that has not returned yet: what it asked for, and what came of it."""

    name: str = ""
    asked: str = ""
    """The name or the path of the skill that it asked for. A model can write any text there."""
    ref: str = ""
    loaded: str = ""
    read: str = ""
    ran: str = ""
    refused: bool = False


class _Count:
    """Counts the events of one session."""

    def __init__(self, texts: Texts, session_id: str) -> None:
        self._texts = texts
        self._usage = SessionUsage(session_id)
        self._names: dict[str, str] = {}
        """The names of the skills that the session could know, by path."""
        self._refs: dict[str, str] = {}
        """The names of the skills whose text was given under a ref."""
        self._open: dict[str, _Operation] = {}

    def take(self, frame: Frame) -> None:
        operation = self._open.get(frame.get("op", "")) or _Operation()
        match frame["type"]:
            case "session_started":
                self._usage.surface = self._usage.surface or str(frame.get("surface", ""))
            case "session_called":
                self._open[str(frame["id"])] = _called(frame)
            case "session_returned":
                self._returned(frame, operation)
                self._open.pop(frame.get("op", ""), None)
            case "skill_catalog_updated":
                self._names.update(self._texts.catalog(frame.get("snapshot", "")))
            case "skills_searched":
                self._searched(frame)
            case _ if isinstance(frame.get("name"), str):
                self._about(frame, operation, frame["name"])
            case _:
                pass

    def _about(self, frame: Frame, operation: _Operation, name: str) -> None:
        """Count an event that is about a skill."""
        counts = self._usage.tally(name).counts
        match frame["type"]:
            case "skill_loaded":
                self._loaded(frame, operation, name)
            case "skill_invoked":
                counts["called"] += 1
                if operation.loaded == name:
                    counts["loaded_by_model" if frame.get("mode") == "auto" else "loaded_by_user"] += 1
            case "skill_resource_read":
                operation.read = name
                counts["read"] += 1
                self._used(frame, name)
            case "skill_resource_refused":
                operation.refused = True
                counts["refused"] += 1
            case "tool_started":
                operation.ran = name
                counts["ran"] += 1
                self._used(frame, name)
            case "tool_failed":
                operation.refused = True
                counts["run_refused"] += not operation.ran
            case _:
                pass

    def _used(self, frame: Frame, name: str) -> None:
        tally = self._usage.tally(name)
        tally.last_used_ms = max(tally.last_used_ms, int(frame["timestamp_ms"]))

    def _loaded(self, frame: Frame, operation: _Operation, name: str) -> None:
        counts = self._usage.tally(name).counts
        counts["loaded"] += 1
        counts["loaded_again"] += bool(frame.get("already_loaded"))
        self._refs[ref_of(str(frame["output"]))] = name
        self._used(frame, name)
        if frame.get("preloaded"):  # it stands in the prompt, and no operation returns it
            counts["preloaded"] += 1
            self._add(name, "body", self._length(str(frame["output"])))
        else:
            operation.loaded = name

    def _searched(self, frame: Frame) -> None:
        data = self._texts.data(str(frame["hits"]))
        if data is None:
            self._usage.has_texts = False
            return
        hits = as_table(parse_json(from_utf8(data))).get("hits")
        for hit in hits if is_items(hits) else ():
            path = str(hit[0]) if is_items(hit) and hit else ""
            if path in self._names:
                self._usage.tally(self._names[path]).counts["found"] += 1

    def _returned(self, frame: Frame, operation: _Operation) -> None:
        """Count the text that an operation returned, to the skill that it is of."""
        code = frame.get("code")
        name = self._names.get(operation.asked, operation.asked)
        if code in _REFUSED and not operation.refused and name in self._names.values():
            self._usage.tally(name).counts["refused"] += 1
        if frame.get("status") == "lost" or (operation.name == "invoke" and not operation.loaded):
            return  # nobody got it, or it is the user's own message
        characters = self._length(str(frame["output"]))
        if operation.ran:
            self._add(operation.ran, "output", characters)
        elif operation.read:
            self._add(operation.read, "resources", characters)
        elif operation.loaded and operation.name != "run":
            self._add(operation.loaded, "body", characters)
        elif operation.ref in self._refs:
            self._add(self._refs[operation.ref], "body", characters)
        else:
            self._usage.other += characters

    def _length(self, digest: str) -> int:
        found = self._texts.length(digest)
        if found is None:
            self._usage.has_texts = False
        return found or 0

    def _add(self, name: str, part: str, characters: int) -> None:
        self._usage.tally(name).characters[part] += characters

    # --- lists ---

    def finish(self) -> SessionUsage:
        """The counts of the session, with what its model was shown."""
        found, session = self._usage, self._usage.id
        lists: Counter[str] = Counter()
        entries: Counter[tuple[str, str, str]] = Counter()
        shown: set[str] = set()
        for frame in self._texts.store.read(session, offers_stream(session), (SkillsOffered.type,)):
            skills = self._texts.offer(str(frame["digest"]))
            if skills is None:
                found.has_texts = False
                continue
            found.has_lists = True
            place = str(frame["place"])
            lists[place] = max(lists[place], int(frame["characters"]))
            for name, part, characters in _entries(skills):
                shown.add(name)
                # A list that is shown again, with other skills or shortened, replaces the one before in the context.
                entries[place, name, part] = max(entries[place, name, part], characters)
        for (_, name, part), characters in entries.items():
            self._add(name, part, characters)
        for name in shown:
            found.tally(name).counts["offered"] = 1
        if found.has_lists:
            for name, tally in found.skills.items():
                tally.counts["unoffered"] = int(
                    tally.counts["loaded"] > tally.counts["preloaded"] and name not in shown
                )
        found.listed = lists.total() - sum(size for (_, _, part), size in entries.items() if part == "body")
        return found


def _entries(skills: list[OfferedSkill]) -> Iterator[tuple[str, str, int]]:
    """The names in a list, each with the part that its characters count to. Several skills may have one name."""
    sizes: Counter[tuple[str, str]] = Counter()
    for one in skills:
        sizes[one.name, "body" if one.how == "whole" else "description"] += one.characters or 0
    for (name, part), characters in sizes.items():
        yield name, part, characters


def _called(frame: Frame) -> _Operation:
    given = as_table(frame.get("args"))
    inner = as_table(given.get("arguments"))

    def text(key: str) -> str:
        value = given.get(key) or inner.get(key)
        return value if isinstance(value, str) else ""

    asked = text("name") or text("path")
    with contextlib.suppress(MetierError):
        asked = parse_url(asked)[0]
    return _Operation(str(frame.get("operation", "")), asked=asked, ref=text("ref"))
