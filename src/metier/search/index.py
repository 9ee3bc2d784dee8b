"""A text index of skills: each skill is a document with a key, and a search returns keys with scores.

The weights of terms are written when a document is added (see `documents`), and a query only adds whole numbers (see
`plan`). So a score depends on the documents in the index and not on the order in which they were added or what was
deleted before: the same query gets the same result after any history.
"""

import os
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

import tantivy
from tantivy import Occur, Query

from metier import limits
from metier.search.documents import FORMAT, IndexedSkill, PreparedSkill, prepare
from metier.search.parts import DamagedPart, IndexPart, IndexUnavailable, PartFolder, in_memory, joined_parts
from metier.search.plan import CONTEXT_DEPTH, FITS, NO_ALIASES, POINTS, Clauses, QueryPlan, clause, term_query
from metier.search.words import Aliases

FILE_SHARE: Final = 0.25
"""A reference file is named if the words that it has and SKILL.md lacks are at least this share of the query."""

_ATTEMPTS: Final = 5
_REMEMBERED: Final = 1 << 12
"""The terms of queries about which a view remembers what it looked up."""

_Looked = TypeVar("_Looked")
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Scored:
    """The key of a document that was found, and its score from 0 to 1."""

    key: str
    score: float
    without_context: float | None = None
    """The score of the query alone, if there was a context."""

    @property
    def fits(self) -> bool:
        """Whether the query, without its context, fits."""
        return (self.score if self.without_context is None else self.without_context) >= FITS


class TextIndex:
    """An index in a folder or in memory. Processes may share a folder; the last update of a key wins.

    Any problem with the folder raises `IndexUnavailable` and leaves the last complete update in place.
    """

    def __init__(self, folder: PartFolder | None = None) -> None:
        self._folder = folder
        self._signature: tuple[int, ...] | None = None
        self._parts: tuple[IndexPart, ...] = ()
        self._joined: dict[str, IndexPart] = {}
        self._view = IndexView(())
        self.refresh()

    @classmethod
    def open(cls, path: str | None) -> Self:
        """Open the index in this folder, or one in memory. A missing or damaged index becomes an empty one."""
        if path is None:
            return cls()
        with _as_unavailable(f"cannot open the search index in {path}"):
            return cls(PartFolder(_place(path)))

    # --- writing ---

    def update(self, changed: Iterable[IndexedSkill], removed: Iterable[str] = ()) -> None:
        """Replace and remove documents by key. If anything fails, nothing is changed."""
        later: dict[str, PreparedSkill] = {}
        with _as_unavailable("cannot update the search index"):
            self._add(_once(_prepared(changed, removed), later))
            if later:
                self._add(later.values())

    def rewrite(self, skills: Iterable[IndexedSkill], parts: Collection[str]) -> bool:
        """Replace these parts by one with these skills, which must be all that only they have.

        Returns false if another process has replaced one of them before.
        """
        with _as_unavailable("cannot update the search index"):
            kept = [part for part in self._parts if part.name not in parts]
            gone = {
                key for part in self._parts if part.name in parts for key, stamp in part.stamps.items() if not stamp
            }
            hidden = {key for key in gone if any(key in part.stamps for part in kept)}
            return self._add(_prepared(skills, hidden), parts)

    def _add(self, skills: Iterable[PreparedSkill], dropped: Collection[str] = ()) -> bool:
        if self._folder is None:
            self._show([*self._parts, in_memory(skills)])  # which nobody rewrites
            return True
        part = self._folder.write(skills)
        if part is None and not dropped:
            return True
        published = self._folder.publish(part.name if part else None, dropped)
        self._read([part] if part and published else [])
        return published

    # --- reading ---

    def refresh(self) -> bool:
        """Read what other processes have written since. Returns whether there was anything."""
        if self._folder is not None:
            with _as_unavailable("cannot read the search index"):
                if self._signature != self._folder.signature():
                    self._read([])
                    return True
        return False

    def _read(self, written: Sequence[IndexPart]) -> None:
        """Open the parts that the manifest names and that are not open yet."""
        assert self._folder is not None
        known = {part.name: part for part in (*self._parts, *written)}
        for _ in range(_ATTEMPTS):
            signature, names = self._folder.signature(), self._folder.names()
            damaged: list[str] = []
            for name in names:
                if name not in known:
                    try:
                        known[name] = self._folder.read(name)
                    except FileNotFoundError:
                        if self._folder.signature() != signature:
                            break  # another process has replaced it
                        damaged.append(name)
                    except DamagedPart:
                        damaged.append(name)
            else:
                if not damaged:
                    self._signature = signature
                    self._show([known[name] for name in names])
                    return
                self._folder.publish(None, damaged)
        raise IndexUnavailable("the parts of the search index change all the time")

    def _show(self, parts: Sequence[IndexPart]) -> None:
        joined = joined_parts(parts, self._joined)
        self._parts, self._joined = tuple(parts), {part.name: part for part in joined}
        self._view = IndexView(joined)

    def stamps(self) -> dict[str, str]:
        """Return the key and stamp of every document."""
        self.refresh()
        return {key: stamp for part in self._view.parts for key, stamp in part.live.items()}

    def parts(self) -> dict[str, tuple[list[str], int]]:
        """Return for each stored part the keys that count, and the number of those that newer parts hide."""
        found: dict[str, tuple[list[str], int]] = {}
        newer: set[str] = set()
        for part in reversed(self._parts):
            live = [key for key, stamp in part.stamps.items() if stamp and key not in newer]
            found[part.name] = live, len(part.stamps) - len(live)
            newer.update(part.stamps)
        return found

    def search(
        self,
        query: str,
        limit: int,
        *,
        allowed: Callable[[str], bool] | None = None,
        aliases: Aliases = NO_ALIASES,
        context: str = "",
    ) -> list[Scored]:
        """Return the best documents first, equal ones in the order of their keys. `allowed` says which keys count.

        A context finds nothing by itself: of what the query finds, it puts those first that also have its words.
        """
        if limit < 1:
            return []
        with _as_unavailable("cannot search the index"):
            view = self._view
            plan = view.plan(query, aliases)
            if not plan.clauses:
                return []
            whole = Query.boolean_query(plan.clauses)
            deep = max(limit, CONTEXT_DEPTH) if context else limit
            found = sorted([hit for part in view.parts for hit in _best(part, whole, deep, allowed)])[:deep]
            if not context:
                return [Scored(key, plan.confidence(-points)) for points, key in found]
            added = _context_points(view, plan, context, [key for _, key in found])
        ordered = sorted((points - added.get(key, 0), key, points) for points, key in found)[:limit]
        return [Scored(key, plan.confidence(-points), plan.confidence(-own)) for points, key, own in ordered]

    def matched(self, query: str, keys: Sequence[str], *, aliases: Aliases = NO_ALIASES) -> dict[str, tuple[str, ...]]:
        """Return the words of the query that each of these documents has."""
        with _as_unavailable("cannot search the index"):
            view = self._view
            presence = view.plan(query, aliases).presence()
            found = {key: words for part in view.parts for key, words in _matched(part, keys, presence).items()}
            return {key: found.get(key, ()) for key in keys}

    def files(self, query: str, keys: Sequence[str]) -> dict[str, str]:
        """Return the file of each of these documents that has most of the query that SKILL.md lacks, if it is much."""
        with _as_unavailable("cannot search the index"):
            view = self._view
            wanted = view.plan(query).wanted
            return {key: file for part in view.parts for key, file in _files(part, keys, wanted).items()}


def _place(path: str) -> str:
    engine = re.sub(r"[^0-9a-z]+", "-", str(getattr(tantivy, "__version__", "")))
    return os.path.join(path, f"text-{FORMAT}-{engine}")


def _prepared(changed: Iterable[IndexedSkill], removed: Iterable[str]) -> Iterator[PreparedSkill]:
    for skill in changed:
        yield prepare(skill)
    for key in removed:
        yield PreparedSkill(key, "")


def _once(skills: Iterable[PreparedSkill], later: dict[str, PreparedSkill]) -> Iterator[PreparedSkill]:
    """Each key once. What comes again is kept for another part, since a part cannot hide what it has itself."""
    seen: set[str] = set()
    for one in skills:
        if one.key not in seen:
            seen.add(one.key)
            yield one
        elif one.stamp:
            later[one.key] = one


@contextmanager
def _as_unavailable(what: str) -> Generator[None, None, None]:
    try:
        yield
    except IndexUnavailable:
        raise
    except BaseException as error:
        # The engine raises OSError, ValueError or, from deep inside, a panic, which is not an Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise IndexUnavailable(f"{what}: {error}") from error
        raise


@dataclass(slots=True, eq=False)
class _ShownPart:
    """A part as a view shows it: without what newer parts hide."""

    name: str
    searcher: tantivy.Searcher
    live: Mapping[str, str]
    hidden: Query | None
    """The documents that newer parts hide."""
    keys: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """Keys of documents by address. With thousands of equal hits, looking keys up takes most of the time."""
    files: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict[tuple[int, int], tuple[str, str]])
    """Keys of skills and paths of their files by address."""

    def key(self, address: tantivy.DocAddress) -> str:
        place = (address.segment_ord, address.doc)
        known = self.keys.get(place)
        if known is None:
            known = self.keys[place] = str(self.searcher.doc(address).get_first("key"))
        return known

    def file(self, address: tantivy.DocAddress) -> tuple[str, str]:
        """Return the key of the skill that a file belongs to, and the path of the file."""
        place = (address.segment_ord, address.doc)
        known = self.files.get(place)
        if known is None:
            document = self.searcher.doc(address)
            known = self.files[place] = str(document.get_first("parent")), str(document.get_first("file"))
        return known

    def counted(self, field: str, term: str, counted: int) -> int:
        """The number of documents that count, of those that have a term."""
        if not counted or self.hidden is None:
            return counted
        both = Query.boolean_query([(Occur.Must, term_query(field, term)), (Occur.Must, self.hidden)])
        found: Any = self.searcher.search(both, 1, count=True)  # the type stubs lack its `count`
        return counted - found.count


class _Remembered(dict[_Looked, _Found]):
    """Forgets everything when it is full: a process that runs for weeks is asked for every word there is."""

    def __setitem__(self, key: _Looked, value: _Found) -> None:
        if len(self) >= _REMEMBERED:
            self.clear()
        super().__setitem__(key, value)


class IndexView:
    """One state of the index, and what was looked up in it. A new view replaces it when the index changes."""

    def __init__(self, parts: Sequence[IndexPart]) -> None:
        shown: list[_ShownPart] = []
        newer: set[str] = set()
        for part in reversed(parts):
            hidden = sorted(key for key in part.stamps.keys() & newer if part.stamps[key])
            live = part.stamps  # a copy of a large dict would take as long as the rest of opening the index
            if not all(live.values()) or not newer.isdisjoint(live):
                live = {key: stamp for key, stamp in live.items() if stamp and key not in newer}
            query = Query.boolean_query([(Occur.Should, term_query("key", key)) for key in hidden]) if hidden else None
            shown.append(_ShownPart(part.name, part.searcher, live, query))
            if len(shown) < len(parts):
                newer.update(part.stamps)
        self.parts = tuple(reversed(shown))
        self.total = sum(len(part.live) for part in self.parts)
        self.clauses: dict[tuple[str, str, float], Clauses] = _Remembered()
        self._frequencies: dict[tuple[str, str], int] = _Remembered()
        self._levels: dict[str, tuple[Mapping[int, int], int]] = _Remembered()
        self._last: tuple[str, Aliases, QueryPlan] | None = None

    def plan(self, query: str, aliases: Aliases | None = None) -> QueryPlan:
        """The plan of a query, with any aliases if none are given. That of the last query is at hand."""
        known = self._last
        if known is not None and known[0] == query and (aliases is None or known[1] is aliases):
            return known[2]
        plan = QueryPlan(self, query, aliases or NO_ALIASES)
        self._last = query, plan.aliases, plan
        return plan

    def levels(self, term: str) -> Mapping[int, int]:
        return self._stem(term)[0]

    def occurrences(self, term: str) -> int:
        return self._stem(term)[1]

    def _stem(self, term: str) -> tuple[Mapping[int, int], int]:
        known = self._levels.get(term)
        if known is None:
            levels: dict[int, int] = {}
            total = 0
            for part in self.parts:
                found = part.searcher.terms_with_prefix("stem", term + ":")
                for stored, count in found:
                    level = int(stored[-1])
                    levels[level] = levels.get(level, 0) + count
                    total += part.counted("stem", stored, count)
            known = self._levels[term] = (levels, total)
        return known

    def frequency(self, field: str, term: str) -> int:
        known = self._frequencies.get((field, term))
        if known is None:
            known = sum(part.counted(field, term, part.searcher.doc_freq(field, term)) for part in self.parts)
            self._frequencies[field, term] = known
        return known


def _best(part: _ShownPart, query: Query, limit: int, allowed: Callable[[str], bool] | None) -> list[tuple[int, str]]:
    """Return the first `limit` documents by points, which are negative, then by key.

    The engine orders equal points at random, so more are fetched until the points drop below those of the last one.
    """
    fetch = limit + 16
    while True:
        hits = part.searcher.search(query, fetch, count=False).hits
        complete = len(hits) < fetch
        floor = 0 if complete else hits[-1][0]
        found: list[tuple[int, str]] = []
        for points, address in hits:
            if points <= floor or (len(found) >= limit and points < -found[limit - 1][0]):
                break
            key = part.key(address)
            if key in part.live and (allowed is None or allowed(key)):
                found.append((-int(points), key))
        if complete or len(found) >= limit:
            return sorted(found)[:limit]
        fetch *= 4


def _one_of(field: str, keys: Iterable[str]) -> tuple[Occur, Query]:
    """A clause that a document must match, and that adds one point."""
    any_of = Query.boolean_query([(Occur.Should, term_query(field, key)) for key in keys])
    return Occur.Must, Query.const_score_query(any_of, 1.0)


def _context_points(view: "IndexView", plan: QueryPlan, context: str, keys: Sequence[str]) -> dict[str, int]:
    """Return the points that each of these documents gets for having words of the context."""
    clauses, most = plan.context_clauses(context)
    found: dict[str, int] = {}
    for part in view.parts if clauses else ():
        live = [key for key in keys if key in part.live]
        if live:
            query = Query.boolean_query([_one_of("key", live), *clauses])
            for points, address in part.searcher.search(query, len(live), count=False).hits:
                found[part.key(address)] = min(int(points) - 1, most)
    return found


def _files(part: _ShownPart, keys: Sequence[str], wanted: Sequence[tuple[str, float]]) -> dict[str, str]:
    """Return for each skill the file that has most of the wanted terms."""
    keys = [key for key in keys if key in part.live]
    if not keys or not wanted:
        return {}
    least = FILE_SHARE * POINTS * sum(idf for _, idf in wanted)
    clauses = [clause(term_query("has", term), round(POINTS * idf)) for term, idf in wanted]
    best: dict[str, tuple[float, str]] = {}
    query = Query.boolean_query([_one_of("parent", keys), *clauses])
    hits = part.searcher.search(query, len(keys) * limits.INDEXED_FILES, count=False).hits
    for points, address in hits:
        if points - 1 < least:
            break
        key, file = part.file(address)
        first, path = best.setdefault(key, (points, file))
        if points == first and file < path:
            best[key] = (points, file)
    return {key: file for key, (_, file) in best.items()}


def _matched(
    part: _ShownPart, keys: Sequence[str], presence: Sequence[tuple[str, Query]]
) -> dict[str, tuple[str, ...]]:
    """Return the words that each document has: one search in which every word adds a power of two."""
    found: dict[str, list[str]] = {key: [] for key in keys if key in part.live}
    if not found:
        return {}
    chosen = _one_of("key", found)
    for start in range(0, len(presence), 16):
        some = presence[start : start + 16]
        query = Query.boolean_query([chosen, *(clause(has, 2 << at) for at, (_, has) in enumerate(some))])
        for score, address in part.searcher.search(query, len(found), count=False).hits:
            mask = int(score) >> 1
            found[part.key(address)].extend([word for at, (word, _) in enumerate(some) if mask >> at & 1])
    return {key: tuple(words) for key, words in found.items()}
