"""Turns a query into clauses for the engine. Each clause that a document matches adds a whole number of points.

The points of a clause come from how many documents have its term, so they depend on what is in the index and not on how
it is stored.
"""

import math
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from tantivy import Occur, Query

from metier.search.documents import LEVELS, SCHEMA, WORD_BITS, joined
from metier.search.words import Aliases, exact, pairs, terms, words

if TYPE_CHECKING:
    from metier.search.index import IndexView

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
LONGEST_QUERY: Final = 64
"""The number of terms from which on a longer query says nothing more."""
COMMON: Final = 0.5
COMMON_WEIGHT: Final = 0.6
"""For a word that more than this share of the documents has, only its presence counts, with this weight."""
ALIAS_SHARE: Final = 0.5
"""The weight of another word for a word of the query."""
CONTEXT_SHARE: Final = 0.05
CONTEXT_MOST: Final = 0.2
"""The weight of a word of the context, and the share of a full match that all of them together add at most."""
CONTEXT_DEPTH: Final = 50
"""The number of results of a query whose order a context can change."""
FEWEST: Final = 300
"""A smaller index is treated as this large, because a word in three of five documents is not a common word."""
FITS: Final = 0.5
"""The score below which a match is weak. Of the right answers, 1 in 100 is below it, and of small talk 2 % above."""

_EVEN: Final = 0.22
"""The share of a ten-word query that must be found for a score of 0.5."""
_LENGTH_POWER: Final = 0.75
"""How much more a share of a longer query says. Chosen so that queries of all lengths have one threshold."""
POINTS: Final = 1024
"""The points of a full match at an idf of one. Sums stay far below 2**24, up to which the engine's floats are exact."""

NO_ALIASES: Final[Aliases] = {}

Clauses = list[tuple[Occur, Query]]


def confidence(share: float, length: int) -> float:
    """Return the score from 0 to 1 of a share of a query of this length."""
    found = share * (length / 10) ** _LENGTH_POWER
    return found / (found + _EVEN)


def length_of(query: str, found: Collection[str]) -> int:
    """Return how much a query with these terms says. One or two words count as three, as in `excel`.

    In "no, not like that" most words are function words, so nobody has chosen the one that is left to search for it.
    """
    distinct = len(set(found))
    chosen = 2 * distinct > len(query.split())
    return min(max(distinct, 3 if chosen else 1), LONGEST_QUERY)


def term_query(field: str, term: str) -> Query:
    return Query.term_query(SCHEMA, field, term, "basic")


class QueryPlan:
    """A query as clauses for the engine: each clause that a document matches adds points."""

    def __init__(self, view: "IndexView", query: str, aliases: Aliases = NO_ALIASES) -> None:
        self.clauses: Clauses = []
        self.wanted: list[tuple[str, float]] = []
        """The terms of the query that some document has, each with its inverse document frequency."""
        self.potential = 0
        """The points of a document that has all terms with full weight."""
        self.length = 0
        """The number of terms that count for a score."""
        self._present: list[tuple[str, Callable[[], Query]]] = []
        self._view = view
        self.aliases = aliases
        self._total = max(view.total, FEWEST)
        found = terms(query)
        self.length = length_of(query, found)
        self._add_stems(found, words(query))
        self._add_words(exact(query))
        self._add_pairs(pairs(found))
        self._add_name(joined(query), found)

    def confidence(self, points: int) -> float:
        """Return the share of the query that was found. Half of a long query counts more than all of two words."""
        return confidence(points / self.potential, self.length)

    def presence(self) -> list[tuple[str, Query]]:
        """Return the words of the query, each with a clause that matches the documents that have it."""
        return [(word, made()) for word, made in self._present]

    def context_clauses(self, context: str) -> tuple[Clauses, int]:
        """Return clauses for the words of a context that the query lacks, and the most points that they may add."""
        own = {term for term, _ in self.wanted}
        known = [one for one in self._rarest(terms(context), self._view.occurrences) if one[0] not in own]
        rare = [(term, idf) for term, count, idf in known if 0 < count <= COMMON * self._total]
        clauses = [clause for term, idf in rare for clause in self._levels(term, idf * CONTEXT_SHARE)]
        return clauses, round(self.potential * CONTEXT_MOST)

    def _add_stems(self, found: list[str], spelled: list[str]) -> None:
        word_of = dict(zip(reversed(found), reversed(spelled), strict=True))
        for term, count, idf in self._rarest(found, self._view.occurrences):
            self.potential += round(POINTS * idf)
            word = word_of[term]
            if count:
                self.wanted.append((term, idf))
            if count > COMMON * self._total:
                self.clauses += self._presence(term, idf * COMMON_WEIGHT)
                self._present.append((word, partial(self._any_level, term)))
            elif count:
                self.clauses += self._levels(term, idf)
                self._present.append((word, partial(self._any_level, term)))
            elif len(term) >= TYPO_LENGTH and term.isascii() and term.isalpha():
                near = Query.fuzzy_term_query(SCHEMA, "word", "0" + word, 1)
                self._score(near, round(POINTS * TYPO_SHARE * idf))
                self._present.append((word, lambda near=near: near))
            self._add_aliases(term, idf)

    def _add_aliases(self, term: str, most: float) -> None:
        """Match other words for a term, which count less than the term itself."""
        for other, word in self.aliases.get(term, {}).items():
            count = self._view.occurrences(other)
            if 0 < count <= COMMON * self._total:
                idf = min(self._idf(count), most)
                self.clauses += self._levels(other, idf * ALIAS_SHARE)
                self._present.append((word, partial(self._any_level, other)))

    def _add_words(self, found: list[str]) -> None:
        for term, count, idf in self._rarest(found, lambda word: self._view.frequency("word", "0" + word)):
            self.potential += round(POINTS * WORD_SHARE * idf)
            if count:
                self.clauses += self._word(term, idf * WORD_SHARE)

    def _add_pairs(self, found: list[str]) -> None:
        for term, count, idf in self._rarest(found, lambda pair: self._view.frequency("pair", pair)):
            if count:
                worth = idf * PAIR_SHARE
                self.clauses += self._made(
                    "pair", ("pair", term, worth), lambda term=term, worth=worth: [(term, POINTS * worth)]
                )

    def _add_name(self, name: str, found: list[str]) -> None:
        """Match the whole query as a name, which is worth as many points as all of its words."""
        if not self.potential or len(name) > NAME_LENGTH:
            return
        # Typing errors are allowed only if one of the words is unknown.
        known = all(self._view.occurrences(term) for term in found)
        errors = 0 if known or not name.isascii() else min(len(name) // 4, 2)
        fuzzy = Query.fuzzy_term_query(SCHEMA, "name", name, errors) if errors else None
        self._score(fuzzy or term_query("name", name), self.potential)

    def _rarest(self, found: Iterable[str], frequency: Callable[[str], int]) -> list[tuple[str, int, float]]:
        """The rarest terms, each with the number of documents that have it and its inverse document frequency."""
        counts = ((term, frequency(term)) for term in dict.fromkeys(found))
        rated = [(term, count, self._idf(count)) for term, count in counts]
        return sorted(rated, key=lambda item: item[1])[:QUERY_LIMIT]

    def _idf(self, count: int) -> float:
        return math.log(1 + (self._total - count + 0.5) / (count + 0.5))

    def _levels(self, term: str, worth: float) -> Clauses:
        """A clause for each level of weight that the term has in some document."""
        step = POINTS * worth / LEVELS
        known = self._view.levels(term)
        return self._made("stem", ("levels", term, worth), lambda: [(f"{term}:{at}", step * (at + 1)) for at in known])

    def _presence(self, term: str, worth: float) -> Clauses:
        """Clauses that give the same points at every level, of which a document has one."""
        known = self._view.levels(term)
        return self._made("stem", ("common", term, worth), lambda: [(f"{term}:{at}", POINTS * worth) for at in known])

    def _any_level(self, term: str) -> Query:
        levels = [(Occur.Should, term_query("stem", f"{term}:{level}")) for level in self._view.levels(term)]
        return Query.boolean_query(levels)

    def _word(self, word: str, worth: float) -> Clauses:
        """The clauses of an unstemmed word: one for its presence, and one for each bit of its weight."""
        step = POINTS * worth / (1 << WORD_BITS)
        planes = [(f"{1 << bit}{word}", step * (1 << bit)) for bit in range(WORD_BITS)]
        return self._made("word", ("word", word, worth), lambda: [("0" + word, step), *planes])

    def _made(self, field: str, key: tuple[str, str, float], made: Callable[[], list[tuple[str, float]]]) -> Clauses:
        """Clauses for terms with points. A view keeps them, since making them takes as long as half of a search."""
        known = self._view.clauses.get(key)
        if known is None:
            known = [clause(term_query(field, term), round(points) or 1) for term, points in made()]
            self._view.clauses[key] = known
        return known

    def _score(self, query: Query, points: int) -> None:
        self.clauses.append(clause(query, points))


def clause(query: Query, points: int) -> tuple[Occur, Query]:
    """A clause that adds points to the documents that match a query."""
    return Occur.Should, Query.const_score_query(query, points)
