"""Ranked search over short documents with long bodies: text in, keys out.

Every document is reduced, when it is added, to the weight each of its terms deserves, and that weight is written into
the index in binary: one posting says that the term is there, and up to three more say how much it counts. A query
adds up whole numbers. So a score depends on the documents that are there and on nothing else, neither on the order in
which they came nor on what was deleted before, and the same question gets the same answer after any history.
"""

import math
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Container, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, Self, cast

import tantivy
from tantivy import Occur, Query

from metier.catalog.search.words import affirmative, exact, pairs, terms, words

FORMAT: Final = 2
"""Part of the folder's name: raise it when the same text would be written as something else."""

NAME_WEIGHT: Final = 20
ABOUT_WEIGHT: Final = 10
"""A term of the name, or of description and keywords, says as much as this many occurrences in the body."""
SATURATION: Final = 4.0
LENGTH_SHARE: Final = 0.75
USUAL_LENGTH: Final = 1800.0
"""BM25's k1, b and average length. The length is a constant, so that a document's weights ignore the other ones."""
WORD_NAME_WEIGHT: Final = 2
WORD_SATURATION: Final = 2.0
WORD_USUAL_LENGTH: Final = 50.0
WORD_SHARE: Final = 0.5
"""An unstemmed word of name, description or keywords, beside its stem."""
PAIR_SHARE: Final = 0.15
"""Two neighbouring terms."""
TYPO_SHARE: Final = 0.5
TYPO_LENGTH: Final = 5
"""A word of at least this length that no document knows may stand for one that is a letter away."""
NAME_LENGTH: Final = 64
"""A query of at most so many letters may be a name, written without its hyphens or with a typing error or two."""
BODY_LIMIT: Final = 32_000
"""Characters of a body that are read; what comes later describes the skill no better."""
QUERY_LIMIT: Final = 32
"""Terms of a query that count, the rarest ones; more of them cost time and find nothing else."""
COMMON: Final = 0.5
COMMON_WEIGHT: Final = 0.6
"""Of a word that more than this share of the documents has, it counts that it is there, and not how often."""
FEWEST: Final = 300
"""A smaller index counts as this large: that three of its five documents have a word does not make the word common."""
FITS: Final = 0.5
"""Score below which search should say that nothing fits: of the right answers, about one in seventy lies there."""

_EVEN: Final = 0.2
"""The share of a ten-word query that has to be found for a score of FITS."""
_POINTS: Final = 1024
"""Points of a full match at an idf of one: the sums stay far below 2**24, where the engine's floats are exact."""
_STEM_BITS: Final = 3
_WORD_BITS: Final = 2
_LOCK_PATIENCE: Final = 5.0
_HEAP: Final = 256_000_000
_EVERY: Final = "*"
_BETWEEN: Final = re.compile(r"[\W_]+")


class IndexUnavailable(Exception):
    """The stored index cannot be used (read-only, full disk, damaged); one in memory can."""


class IndexBusy(IndexUnavailable):
    """Another process keeps writing. What is stored can still be searched, it is only not up to date."""


@dataclass(frozen=True, slots=True)
class IndexedSkill:
    """What is searched. `stamp` is the caller's name for this version of it."""

    key: str
    name: str
    description: str
    keywords: tuple[str, ...]
    body: str
    stamp: str


@dataclass(frozen=True, slots=True)
class Scored:
    """A document found, and its score from 0 to 1; below FITS, rather nothing fits."""

    key: str
    score: float


@dataclass(frozen=True, slots=True)
class _Plan:
    """A query as the engine is asked it: what adds points, the word behind each term, the most that can be had."""

    clauses: list[tuple[Occur, Query]]
    presence: list[tuple[str, Query]]
    potential: int
    length: int

    def confidence(self, points: int) -> float:
        """The share of the query that was found; half of a long query says more than all of two words."""
        found = points / self.potential * math.sqrt(max(self.length, 2) / 10)
        return found / (found + _EVEN)


class _Counted(Protocol):
    """The part of a search result that the engine's type stubs leave out."""

    count: int


class TextIndex:
    """An index in a folder or, without one, in memory. Two processes may share a folder; the last update of a key wins.

    Whatever goes wrong with the folder raises IndexUnavailable and leaves the last complete update in place.
    """

    def __init__(self, index: tantivy.Index) -> None:
        index.register_tokenizer("terms", tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build())
        index.config_reader("manual")
        index.reload()
        self._index = index
        self._schema = index.schema
        self._seen: _View | None = None

    @classmethod
    def open(cls, path: str | None) -> Self:
        """The index below this folder, made if there is none; a damaged one is replaced by an empty one."""
        if path is None:
            return cls(tantivy.Index(_schema()))
        folder = _folder(path)
        with _as_unavailable(f"cannot open the search index in {folder}"):
            os.makedirs(folder, exist_ok=True)
            try:
                return cls(tantivy.Index(_schema(), folder))
            except ValueError as error:
                if "Lockfile" in str(error):  # a folder that cannot be locked is not a damaged one
                    raise
                cls.discard(path)
                os.makedirs(folder, exist_ok=True)
                return cls(tantivy.Index(_schema(), folder))

    @staticmethod
    def discard(path: str) -> None:
        """Forget what is stored there, say after a search found it damaged; the next open starts empty."""
        shutil.rmtree(_folder(path), ignore_errors=True)

    def update(self, changed: Iterable[IndexedSkill], removed: Iterable[str] = ()) -> None:
        """Replace and remove documents by key, all of it or, if anything fails, nothing."""
        with _as_unavailable("cannot update the search index"), self._writer() as writer:
            for key in removed:
                writer.delete_documents_by_term("key", key)
            for document in changed:
                writer.delete_documents_by_term("key", document.key)
                writer.add_document(_encode(document))
            writer.commit()
        self.refresh()

    def refresh(self) -> None:
        """See what other processes have written since."""
        with _as_unavailable("cannot read the search index"):
            self._index.reload()
        self._seen = None

    def stamps(self) -> dict[str, str]:
        """What is indexed: key and stamp of every document."""
        self.refresh()
        with _as_unavailable("cannot read the search index"):
            searcher = self._view().searcher
            if not searcher.num_docs:
                return {}
            hits = searcher.search(Query.all_query(), searcher.num_docs, count=False).hits
            found = (searcher.doc(address) for _, address in hits)
            return {str(document.get_first("key")): str(document.get_first("stamp")) for document in found}

    def search(self, query: str, limit: int, *, allowed: Container[str] | None = None) -> list[Scored]:
        """The best documents first, equal ones in the order of their keys; none if no word of the query is known."""
        if limit < 1:
            return []
        with _as_unavailable("cannot search the index"):
            view = self._view()
            plan = self._plan(view, query)
            if not plan.clauses:
                return []
            best = _best(view, Query.boolean_query(plan.clauses), limit, allowed)
        return [Scored(key, plan.confidence(points)) for points, key in best]

    def matched(self, query: str, keys: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The words of the query that each of these documents has: why it was found."""
        with _as_unavailable("cannot search the index"):
            view = self._view()
            return _matched(view.searcher, self._schema, keys, self._plan(view, query).presence)

    def _view(self) -> "_View":
        view = self._seen
        if view is None:
            view = self._seen = _View.of(self._index.searcher())
        return view

    @contextmanager
    def _writer(self) -> Generator[tantivy.IndexWriter, None, None]:
        give_up = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                writer = self._index.writer(_HEAP, 1)
                break
            except ValueError as error:
                if "LockBusy" not in str(error):
                    raise
                if time.monotonic() > give_up:
                    raise IndexBusy("another process is updating the search index") from error
                time.sleep(0.005)
        try:
            yield writer
        finally:
            writer.wait_merging_threads()  # only then is the lock free

    def _frequency(self, view: "_View", field: str, term: str) -> int:
        """Documents with this term. The engine counts deleted ones too until it tidies up, hence the second way."""
        searcher = view.searcher
        known = view.frequencies.get((field, term))
        if known is None:
            known = searcher.doc_freq(field, term)
            if known and searcher.doc_freq("stem", _EVERY) != searcher.num_docs:
                every = Query.term_query(self._schema, field, term, "basic")
                known = cast("_Counted", searcher.search(every, 1, count=True)).count
            view.frequencies[field, term] = known
        return known

    def _plan(self, view: "_View", query: str) -> _Plan:
        total = max(view.searcher.num_docs, FEWEST)
        clauses: list[tuple[Occur, Query]] = []
        presence: list[tuple[str, Query]] = []
        potential = length = 0

        def rarest(field: str, terms: Iterable[str]) -> list[tuple[str, int, float]]:
            found = ((term, self._frequency(view, field, "0" + term)) for term in dict.fromkeys(terms))
            rated = [(term, count, math.log(1 + (total - count + 0.5) / (count + 0.5))) for term, count in found]
            return sorted(rated, key=lambda item: item[1])[:QUERY_LIMIT]

        def ask(field: str, term: str, worth: float, bits: int) -> Query:
            step = _POINTS * worth / (1 << bits)
            there = Query.term_query(self._schema, field, "0" + term, "basic")
            clauses.append((Occur.Should, Query.const_score_query(there, round(step) or 1)))
            for bit in range(bits):
                plane = Query.term_query(self._schema, field, f"{1 << bit}{term}", "basic")
                clauses.append((Occur.Should, Query.const_score_query(plane, round(step * (1 << bit)) or 1)))
            return there

        found_terms, found_words = terms(query), words(query)
        spelled = dict(zip(reversed(found_terms), reversed(found_words), strict=True))
        for term, count, idf in rarest("stem", found_terms):
            potential += round(_POINTS * idf)
            length += 1
            if count > COMMON * total:
                presence.append((spelled[term], ask("stem", term, idf * COMMON_WEIGHT, 0)))
            elif count:
                presence.append((spelled[term], ask("stem", term, idf, _STEM_BITS)))
            elif len(term) >= TYPO_LENGTH and term.isascii() and term.isalpha():
                near = Query.fuzzy_term_query(self._schema, "word", "0" + spelled[term], 1)
                clauses.append((Occur.Should, Query.const_score_query(near, round(_POINTS * TYPO_SHARE * idf))))
                presence.append((spelled[term], near))
        for term, count, idf in rarest("word", exact(query)):
            potential += round(_POINTS * WORD_SHARE * idf)
            if count:
                ask("word", term, idf * WORD_SHARE, _WORD_BITS)
        for term, count, idf in rarest("pair", pairs(found_terms)):
            if count:
                ask("pair", term, idf * PAIR_SHARE, 0)
        whole = _joined(query)
        if potential and len(whole) <= NAME_LENGTH:
            # A name is worth all that its words could be; it may be misspelled only where a word means nothing else.
            known = all(self._frequency(view, "stem", "0" + term) for term in found_terms)
            errors = 0 if known or not whole.isascii() else min(len(whole) // 4, 2)
            named = (
                Query.fuzzy_term_query(self._schema, "name", whole, errors)
                if errors
                else Query.term_query(self._schema, "name", whole, "basic")
            )
            clauses.append((Occur.Should, Query.const_score_query(named, float(potential))))
        return _Plan(clauses, presence, potential, length)


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("key", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("stamp", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("name", tokenizer_name="raw", index_option="basic")
    for field in ("stem", "word", "pair"):
        builder.add_text_field(field, tokenizer_name="terms", index_option="basic")
    return builder.build()


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
        # The engine reports trouble as OSError, ValueError or, from deep inside, as a panic, which is no Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise IndexUnavailable(f"{what}: {error}") from error
        raise


def _encode(document: IndexedSkill) -> tantivy.Document:
    about = affirmative(document.description) + "\n" + "\n".join(document.keywords)
    name_terms, about_terms, body_terms = terms(document.name), terms(about), terms(document.body[:BODY_LIMIT])
    weights = Counter(body_terms)
    _add(weights, name_terms, NAME_WEIGHT)
    _add(weights, about_terms, ABOUT_WEIGHT)
    counts = Counter(exact(about))
    _add(counts, exact(document.name), WORD_NAME_WEIGHT)
    # In a body only pairs that come again: a third of the index, and hardly a hit less.
    repeated = [pair for pair, count in Counter(pairs(body_terms)).items() if count > 1]
    neighbours = {*pairs(name_terms), *pairs(about_terms), *repeated}
    return tantivy.Document(
        key=document.key,
        stamp=document.stamp,
        name=_joined(document.name),
        stem=" ".join([_EVERY, *_planes(weights, SATURATION, USUAL_LENGTH, _STEM_BITS)]),
        word=" ".join(_planes(counts, WORD_SATURATION, WORD_USUAL_LENGTH, _WORD_BITS)),
        pair=" ".join(["0" + pair for pair in neighbours]),
    )


def _joined(name: str) -> str:
    """A name however it is written: `release-notes`, `Release Notes` and `ReleaseNotes` are one."""
    return _BETWEEN.sub("", name.lower())


def _add(counts: Counter[str], found: list[str], weight: int) -> None:
    for term in found:
        counts[term] += weight


def _planes(counts: Counter[str], saturation: float, usual_length: float, bits: int) -> list[str]:
    """Each term once as present, and once more for every bit of its weight, a BM25 weight in steps."""
    half = saturation * (1 - LENGTH_SHARE + LENGTH_SHARE * counts.total() / usual_length)
    steps = 1 << bits

    def planes(count: int) -> list[str]:
        level = max(0, round(steps * count / (count + half)) - 1)
        return ["0", *(str(1 << bit) for bit in range(bits) if level >> bit & 1)]

    of_count = {count: planes(count) for count in set(counts.values())}
    return [plane + term for term, count in counts.items() for plane in of_count[count]]


class _View(NamedTuple):
    """One state of the index, and what was learnt of it: both are let go when it is read anew."""

    searcher: tantivy.Searcher
    frequencies: dict[tuple[str, str], int]
    keys: dict[tuple[int, int], str]
    """Of documents by their place: where thousands are equal, looking them up is what a search costs."""

    @classmethod
    def of(cls, searcher: tantivy.Searcher) -> "_View":
        return cls(searcher, {}, {})

    def key(self, address: tantivy.DocAddress) -> str:
        place = (address.segment_ord, address.doc)
        known = self.keys.get(place)
        if known is None:
            known = self.keys[place] = str(self.searcher.doc(address).get_first("key"))
        return known


def _best(view: _View, query: Query, limit: int, allowed: Container[str] | None) -> list[tuple[int, str]]:
    """The first `limit` by points and then key. The engine orders equal points by chance, so it is asked for more
    until the points drop below those of the last one taken."""
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


def _matched(
    searcher: tantivy.Searcher, schema: tantivy.Schema, keys: Sequence[str], presence: list[tuple[str, Query]]
) -> dict[str, tuple[str, ...]]:
    """Which words each document contains: one search in which every word adds a power of two."""
    found: dict[str, list[str]] = {key: [] for key in keys}
    if not keys:
        return {}
    chosen = Query.boolean_query([(Occur.Should, Query.term_query(schema, "key", key, "basic")) for key in keys])
    for start in range(0, len(presence), 16):
        part = presence[start : start + 16]
        query = Query.boolean_query(
            [
                (Occur.Must, Query.const_score_query(chosen, 1.0)),
                *((Occur.Should, Query.const_score_query(q, float(2 << at))) for at, (_, q) in enumerate(part)),
            ]
        )
        for score, address in searcher.search(query, len(keys), count=False).hits:
            mask = int(score) >> 1
            words_found = found[str(searcher.doc(address).get_first("key"))]
            words_found.extend([word for at, (word, _) in enumerate(part) if mask >> at & 1])
    return {key: tuple(words_found) for key, words_found in found.items()}
