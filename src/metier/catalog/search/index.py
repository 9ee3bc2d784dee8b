"""A text index of skills: each skill is a document with a key, and a search returns keys with scores.

The weights of terms are written when a document is added (see `documents`), and a query only adds whole numbers. So a
score depends on the documents in the index and not on the order in which they were added or what was deleted before:
the same query gets the same result after any history.
"""

import math
import os
import re
import shutil
import time
from collections.abc import Container, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, Self, cast

import tantivy
from tantivy import Occur, Query

from metier import limits
from metier.catalog.search.aliases import Aliases
from metier.catalog.search.documents import EVERY, FORMAT, STEM_BITS, WORD_BITS, IndexedSkill, documents, joined, schema
from metier.catalog.search.words import exact, pairs, terms, words
from metier.model import SKILL_FILE

WORD_SHARE: Final = 0.5
"""The weight of unstemmed words."""
PAIR_SHARE: Final = 0.15
"""The weight of two neighbouring terms."""
TYPO_SHARE: Final = 0.5
TYPO_LENGTH: Final = 5
"""A word of at least this length that no document has also matches words that differ by one letter."""
NAME_LENGTH: Final = 64
"""A query of at most this many letters may be a name, without its hyphens or with a typing error or two."""
QUERY_LIMIT: Final = 32
"""The number of terms of a query that count, the rarest first. More take time and find nothing else."""
COMMON: Final = 0.5
COMMON_WEIGHT: Final = 0.6
"""For a word that more than this share of the documents has, only its presence counts, with this weight."""
ALIAS_SHARE: Final = 0.5
"""The weight of another word for a word of the query."""
FEWEST: Final = 300
"""A smaller index is treated as this large, because a word in three of five documents is not a common word."""
FITS: Final = 0.5
"""The score below which a match is weak. Of the right answers, 1 in 100 is below it, and of small talk 4 % above."""

_EVEN: Final = 0.22
"""The share of a ten-word query that must be found for a score of 0.5."""
_LENGTH_POWER: Final = 0.75
"""How much more a share of a longer query says. Chosen so that queries of all lengths have one threshold."""
_POINTS: Final = 1024
"""The points of a full match at an idf of one. Sums stay far below 2**24, up to which the engine's floats are exact."""
_FILES: Final = limits.INDEXED_FILES + 1
_LOCK_PATIENCE: Final = 5.0
_HEAP: Final = 256_000_000


NO_ALIASES: Final[Aliases] = {}


class IndexUnavailable(Exception):
    """The stored index cannot be used: the disk is read-only or full, or the index is damaged."""


class IndexBusy(IndexUnavailable):
    """Another process is writing to the index. It can still be searched, but is not up to date."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The key of a document that was found, and its score from 0 to 1."""

    key: str
    score: float


class _Counted(Protocol):
    """The attribute of a search result that the engine's type stubs lack."""

    count: int


class TextIndex:
    """An index in a folder or in memory. Processes may share a folder; the last update of a key wins.

    Any problem with the folder raises `IndexUnavailable` and leaves the last complete update in place.
    """

    def __init__(self, index: tantivy.Index) -> None:
        index.register_tokenizer("terms", tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build())
        index.config_reader("manual")
        index.reload()
        self._index = index
        self._seen: _View | None = None

    @classmethod
    def open(cls, path: str | None) -> Self:
        """Open the index in this folder, or one in memory. A missing or damaged index becomes an empty one."""
        if path is None:
            return cls(tantivy.Index(schema()))
        folder = _folder(path)
        with _as_unavailable(f"cannot open the search index in {folder}"):
            os.makedirs(folder, exist_ok=True)
            try:
                return cls(tantivy.Index(schema(), folder))
            except ValueError as error:
                # The engine's errors have a text and no code. A folder that cannot be locked is not damaged.
                if "Lockfile" in str(error):
                    raise
                cls.discard(path)
                os.makedirs(folder, exist_ok=True)
                return cls(tantivy.Index(schema(), folder))

    @staticmethod
    def discard(path: str) -> None:
        """Delete the index in this folder."""
        shutil.rmtree(_folder(path), ignore_errors=True)

    def update(self, changed: Iterable[IndexedSkill], removed: Iterable[str] = ()) -> None:
        """Replace and remove documents by key. If anything fails, nothing is changed."""
        with _as_unavailable("cannot update the search index"), self._writer() as writer:
            for key in removed:
                _delete(writer, key)
            for skill in changed:
                _delete(writer, skill.key)
                for document in documents(skill):
                    writer.add_document(document)
            writer.commit()
        self.refresh()

    def refresh(self) -> None:
        """Read what other processes have written since."""
        with _as_unavailable("cannot read the search index"):
            self._index.reload()
        self._seen = None

    def stamps(self) -> dict[str, str]:
        """Return the key and stamp of every document."""
        self.refresh()
        with _as_unavailable("cannot read the search index"):
            searcher = self._view().searcher
            if not searcher.num_docs:
                return {}
            hits = searcher.search(self._view().term("stem", EVERY), searcher.num_docs, count=False).hits
            found = (searcher.doc(address) for _, address in hits)
            return {str(document.get_first("key")): str(document.get_first("stamp")) for document in found}

    def search(
        self, query: str, limit: int, *, allowed: Container[str] | None = None, aliases: Aliases = NO_ALIASES
    ) -> list[Scored]:
        """Return the best documents first, equal ones in the order of their keys. `allowed` restricts the keys."""
        if limit < 1:
            return []
        with _as_unavailable("cannot search the index"):
            view = self._view()
            plan = _Plan(view, query, aliases)
            if not plan.clauses:
                return []
            best = _best(view, Query.boolean_query(plan.clauses), limit, allowed)
        return [Scored(key, plan.confidence(points)) for points, key in best]

    def matched(self, query: str, keys: Sequence[str], *, aliases: Aliases = NO_ALIASES) -> dict[str, tuple[str, ...]]:
        """Return the words of the query that each of these documents has."""
        with _as_unavailable("cannot search the index"):
            view = self._view()
            return _matched(view, keys, _Plan(view, query, aliases).presence)

    def files(self, query: str, keys: Sequence[str]) -> dict[str, str]:
        """Return the file of each of these documents that has most of the query, unless that is SKILL.md."""
        with _as_unavailable("cannot search the index"):
            view = self._view()
            return _files(view, keys, _Plan(view, query).wanted)

    def _view(self) -> "_View":
        view = self._seen
        if view is None:
            searcher = self._index.searcher()
            added = searcher.doc_freq("stem", EVERY) + searcher.doc_freq("has", EVERY)
            view = self._seen = _View(searcher, self._index.schema, added != searcher.num_docs, {}, {}, {})
        return view

    @contextmanager
    def _writer(self) -> Generator[tantivy.IndexWriter, None, None]:
        give_up = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                writer = self._index.writer(_HEAP, 1)
                break
            except ValueError as error:
                if "LockBusy" not in str(error):  # the engine's errors have a text and no code
                    raise
                if time.monotonic() > give_up:
                    raise IndexBusy("another process is updating the search index") from error
                time.sleep(0.005)
        try:
            yield writer
        finally:
            writer.wait_merging_threads()  # the lock is free only after that


def _folder(path: str) -> str:
    engine = re.sub(r"[^0-9a-z]+", "-", str(getattr(tantivy, "__version__", "")))
    return os.path.join(path, f"text-{FORMAT}-{engine}")


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


class _View(NamedTuple):
    """One state of the index, and what was looked up in it. A new view replaces it when the index is read again."""

    searcher: tantivy.Searcher
    schema: tantivy.Schema
    deleted: bool
    """Whether the engine still counts documents that were deleted."""
    frequencies: dict[tuple[str, str], int]
    keys: dict[tuple[int, int], str]
    """Keys of documents by address. With thousands of equal hits, looking keys up takes most of the time."""
    files: dict[tuple[int, int], tuple[str, str]]
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

    def term(self, field: str, term: str) -> Query:
        return Query.term_query(self.schema, field, term, "basic")

    def frequency(self, field: str, term: str) -> int:
        """Return the number of documents with this term."""
        searcher = self.searcher
        known = self.frequencies.get((field, term))
        if known is None:
            known = searcher.doc_freq(field, term)
            # Until it merges, the engine also counts deleted documents. Then only a search gives the number.
            if known and self.deleted:
                known = cast("_Counted", searcher.search(self.term(field, term), 1, count=True)).count
            self.frequencies[field, term] = known
        return known


class _Plan:
    """A query as clauses for the engine: each clause that a document matches adds points."""

    def __init__(self, view: _View, query: str, aliases: Aliases = NO_ALIASES) -> None:
        self.clauses: list[tuple[Occur, Query]] = []
        self.presence: list[tuple[str, Query]] = []
        """The words of the query, each with a clause that matches the documents that have it."""
        self.wanted: list[tuple[str, float]] = []
        """The terms of the query that some document has, each with its inverse document frequency."""
        self.potential = 0
        """The points of a document that has all terms with full weight."""
        self.length = 0
        """The number of terms."""
        self._view = view
        self._aliases = aliases
        self._total = max(view.frequency("stem", EVERY), FEWEST)
        found = terms(query)
        self._add_stems(found, words(query))
        self._add_words(exact(query))
        self._add_pairs(pairs(found))
        self._add_name(joined(query), found)

    def confidence(self, points: int) -> float:
        """Return the share of the query that was found. Half of a long query counts more than all of two words."""
        found = points / self.potential * (max(self.length, 3) / 10) ** _LENGTH_POWER
        return found / (found + _EVEN)

    def _add_stems(self, found: list[str], spelled: list[str]) -> None:
        word_of = dict(zip(reversed(found), reversed(spelled), strict=True))
        for term, count, idf in self._rarest("stem", found):
            self.potential += round(_POINTS * idf)
            self.length += 1
            word = word_of[term]
            if count:
                self.wanted.append((term, idf))
            if count > COMMON * self._total:
                self.presence.append((word, self._add("stem", term, idf * COMMON_WEIGHT, 0)))
            elif count:
                self.presence.append((word, self._add("stem", term, idf, STEM_BITS)))
            elif len(term) >= TYPO_LENGTH and term.isascii() and term.isalpha():
                near = Query.fuzzy_term_query(self._view.schema, "word", "0" + word, 1)
                self._score(near, round(_POINTS * TYPO_SHARE * idf))
                self.presence.append((word, near))
            self._add_aliases(term, idf)

    def _add_aliases(self, term: str, most: float) -> None:
        """Match other words for a term, which count less than the term itself."""
        for other, word in self._aliases.get(term, {}).items():
            count = self._view.frequency("stem", "0" + other)
            if 0 < count <= COMMON * self._total:
                idf = min(self._idf(count), most)
                self.presence.append((word, self._add("stem", other, idf * ALIAS_SHARE, STEM_BITS)))

    def _add_words(self, found: list[str]) -> None:
        for term, count, idf in self._rarest("word", found):
            self.potential += round(_POINTS * WORD_SHARE * idf)
            if count:
                self._add("word", term, idf * WORD_SHARE, WORD_BITS)

    def _add_pairs(self, found: list[str]) -> None:
        for term, count, idf in self._rarest("pair", found):
            if count:
                self._add("pair", term, idf * PAIR_SHARE, 0)

    def _add_name(self, name: str, found: list[str]) -> None:
        """Match the whole query as a name, which is worth as many points as all of its words."""
        if not self.potential or len(name) > NAME_LENGTH:
            return
        # Typing errors are allowed only if one of the words is unknown.
        known = all(self._view.frequency("stem", "0" + term) for term in found)
        errors = 0 if known or not name.isascii() else min(len(name) // 4, 2)
        fuzzy = Query.fuzzy_term_query(self._view.schema, "name", name, errors) if errors else None
        self._score(fuzzy or self._view.term("name", name), self.potential)

    def _rarest(self, field: str, found: Iterable[str]) -> list[tuple[str, int, float]]:
        """The rarest terms, each with the number of documents that have it and its inverse document frequency."""
        counts = ((term, self._view.frequency(field, "0" + term)) for term in dict.fromkeys(found))
        rated = [(term, count, self._idf(count)) for term, count in counts]
        return sorted(rated, key=lambda item: item[1])[:QUERY_LIMIT]

    def _idf(self, count: int) -> float:
        return math.log(1 + (self._total - count + 0.5) / (count + 0.5))

    def _add(self, field: str, term: str, worth: float, bits: int) -> Query:
        """Add the clauses of a term: one for its presence, and one for each bit of its weight."""
        step = _POINTS * worth / (1 << bits)
        there = self._view.term(field, "0" + term)
        self._score(there, round(step) or 1)
        for bit in range(bits):
            self._score(self._view.term(field, f"{1 << bit}{term}"), round(step * (1 << bit)) or 1)
        return there

    def _score(self, query: Query, points: float) -> None:
        self.clauses.append((Occur.Should, Query.const_score_query(query, points)))


def _best(view: _View, query: Query, limit: int, allowed: Container[str] | None) -> list[tuple[int, str]]:
    """Return the first `limit` documents by points, then by key.

    The engine orders equal points at random, so more are fetched until the points drop below those of the last one.
    """
    fetch = limit + 16
    while True:
        hits = view.searcher.search(query, fetch, count=False).hits
        complete = len(hits) < fetch
        floor = 0 if complete else hits[-1][0]
        found: list[tuple[int, str]] = []
        for points, address in hits:
            if points <= floor or (len(found) >= limit and points < -found[limit - 1][0]):
                break
            key = view.key(address)
            if allowed is None or key in allowed:
                found.append((-int(points), key))
        if complete or len(found) >= limit:
            return [(-points, key) for points, key in sorted(found)[:limit]]
        fetch *= 4


def _files(view: _View, keys: Sequence[str], wanted: Sequence[tuple[str, float]]) -> dict[str, str]:
    """Return for each skill the file that has most of the wanted terms; nothing if SKILL.md has as much."""
    if not keys or not wanted:
        return {}
    chosen = Query.boolean_query([(Occur.Should, view.term("parent", key)) for key in keys])
    clauses = [(Occur.Must, Query.const_score_query(chosen, 1.0))]
    for term, idf in wanted:
        clauses.append((Occur.Should, Query.const_score_query(view.term("has", term), round(_POINTS * idf))))
    best: dict[str, tuple[float, str]] = {}
    hits = view.searcher.search(Query.boolean_query(clauses), len(keys) * _FILES, count=False).hits
    for points, address in hits:
        key, file = view.file(address)
        first, path = best.setdefault(key, (points, file))
        if points == first and path != SKILL_FILE and (file == SKILL_FILE or file < path):
            best[key] = (points, file)
    return {key: file for key, (_, file) in best.items() if file != SKILL_FILE}


def _delete(writer: tantivy.IndexWriter, key: str) -> None:
    writer.delete_documents_by_term("key", key)
    writer.delete_documents_by_term("parent", key)


def _matched(view: _View, keys: Sequence[str], presence: list[tuple[str, Query]]) -> dict[str, tuple[str, ...]]:
    """Return the words that each document has: one search in which every word adds a power of two."""
    found: dict[str, list[str]] = {key: [] for key in keys}
    if not keys:
        return {}
    chosen = Query.boolean_query([(Occur.Should, view.term("key", key)) for key in keys])
    for start in range(0, len(presence), 16):
        part = presence[start : start + 16]
        query = Query.boolean_query(
            [
                (Occur.Must, Query.const_score_query(chosen, 1.0)),
                *((Occur.Should, Query.const_score_query(q, float(2 << at))) for at, (_, q) in enumerate(part)),
            ]
        )
        for score, address in view.searcher.search(query, len(keys), count=False).hits:
            mask = int(score) >> 1
            words_found = found[view.key(address)]
            words_found.extend([word for at, (word, _) in enumerate(part) if mask >> at & 1])
    return {key: tuple(words_found) for key, words_found in found.items()}
