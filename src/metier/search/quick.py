"""Searches names and descriptions without an index, for the time until the index of a large catalog is built.

All descriptions are one text, in which the words of a query are looked up: that takes milliseconds for ten thousand
skills and needs no preparation. Weights are those of the index as far as names and descriptions go. A word that many
skills have is looked up only in those that the rarer words put first: finding it everywhere takes most of the time.
"""

import heapq
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from metier.search.documents import ABOUT_WEIGHT, LENGTH_SHARE, NAME_WEIGHT, SATURATION, USUAL_LENGTH, joined
from metier.search.index import Scored
from metier.search.plan import FEWEST, QUERY_LIMIT, confidence, length_of
from metier.search.words import terms, words
from metier.values.skill import Skill

_CHARACTERS: Final = 9
"""The characters of a description for one of its words that counts."""
_REST: Final = rb"[a-z0-9\x80-\xff]*"
_IRREGULAR: Final = 2
"""The last letters of a stem that the word itself may not have, as in `happi` of `happy`."""
_MANY: Final = 8
"""A word that more than one in this many skills have is a common one."""
_FEWEST_COMMON: Final = 64
_LOOKED_AT: Final = 256
"""The number of skills in which common words are looked up."""


class _Word(NamedTuple):
    """A term of a query, how many skills have it, and its weight in those that were looked at."""

    frequency: int
    weights: dict[int, float]
    common: bool


class QuickSearch:
    """Names and descriptions of skills as one text."""

    def __init__(self, skills: Iterable[Skill]) -> None:
        self._skills = list(skills)
        data = [f"{skill.name}\n{skill.description}\n".encode("utf-8", "replace") for skill in self._skills]
        self._text = b"".join(data).lower()
        self._starts = [0, *accumulate(map(len, data))]

    def search(self, query: str, limit: int, allowed: Callable[[str], bool]) -> list[Scored]:
        """Return the best skills first, equal ones in the order of their keys."""
        wanted = list(dict.fromkeys(terms(query)))[:QUERY_LIMIT]
        found = sorted(((term, self._word(term)) for term in wanted), key=lambda one: one[1].frequency)
        total = max(len(self._skills), FEWEST)
        points: dict[int, float] = {}
        refused: set[int] = set()
        potential = 0.0
        for term, word in found:
            idf = math.log(1 + (total - word.frequency + 0.5) / (word.frequency + 0.5))
            potential += idf
            weights = word.weights
            if word.common:
                among = heapq.nlargest(_LOOKED_AT, points, key=points.__getitem__) if len(points) >= limit else None
                weights = self._weights(self._places(term, among))
            for at, count in weights.items():
                if at not in points:
                    if at in refused or not allowed(self._skills[at].path):
                        refused.add(at)
                        continue
                    points[at] = 0.0
                points[at] += idf * count / (count + self._half(at))
        name, length = joined(query), length_of(query, wanted)
        for at in [at for at in points if joined(self._skills[at].name) == name]:
            points[at] += potential
        scored = (
            (-round(confidence(share / potential, length), 9), self._skills[at].path) for at, share in points.items()
        )
        return [Scored(key, -score) for score, key in heapq.nsmallest(limit, scored)]

    def matched(self, query: str, keys: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the words of the query that each of these skills has."""
        word_of = dict(zip(reversed(terms(query)), reversed(words(query)), strict=True))
        wanted = list(dict.fromkeys(terms(query)))[:QUERY_LIMIT]
        place = {skill.path: at for at, skill in enumerate(self._skills)}
        shown = [place[key] for key in keys if key in place]
        found = {term: self._weights(self._places(term, shown)) for term in wanted}
        return {key: tuple(word_of[term] for term in found if place.get(key, -1) in found[term]) for key in keys}

    def _half(self, at: int) -> float:
        length = ABOUT_WEIGHT * (self._starts[at + 1] - self._starts[at]) / _CHARACTERS
        return SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / USUAL_LENGTH)

    def _word(self, term: str) -> _Word:
        """Look a term up everywhere, or until it turns out to be a common one."""
        many = max(_FEWEST_COMMON, len(self._skills) // _MANY)
        places: list[int] = []
        for place in self._places(term):
            places.append(place)
            if len(places) > many:
                weights = self._weights(places)
                rest = self._text.count(_beginning(term), place)
                return _Word(min(len(self._skills), len(weights) + rest * len(weights) // len(places)), {}, True)
        weights = self._weights(places)
        return _Word(len(weights), weights, False)

    def _places(self, term: str, among: Collection[int] | None = None) -> Iterator[int]:
        """Return where the text, or that of some skills, has words of this term.

        In scripts without spaces, a pair of characters is a term.
        """
        text = self._text
        if among is None:
            spans = [(0, len(text))]
        else:
            spans = [(self._starts[at], self._starts[at + 1]) for at in sorted(among)]
        if not term.isascii():
            pattern = re.compile(re.escape(_beginning(term)))
            yield from (match.start() for span in spans for match in pattern.finditer(text, *span))
            return
        pattern = re.compile(re.escape(_beginning(term)) + _REST)
        known: dict[bytes, bool] = {}
        for span in spans:
            for match in pattern.finditer(text, *span):
                run, at = match[0], match.start()
                fits = known.get(run)
                if fits is None:
                    fits = known[run] = term in terms(run.decode("utf-8", "replace"))
                if fits and not self._inside(at):
                    yield at

    def _inside(self, at: int) -> bool:
        """Whether this is not the beginning of a word."""
        before = self._text[at - 1 : at] if at else b""
        if before < b"\x80":
            return before.isalnum()
        return self._text[max(0, at - 4) : at].decode("utf-8", "ignore")[-1:].isalnum()

    def _weights(self, places: Iterable[int]) -> dict[int, float]:
        starts, text = self._starts, self._text
        counts: Counter[int] = Counter()
        for place in places:
            skill = bisect_right(starts, place) - 1
            in_name = text.find(b"\n", starts[skill], place) < 0
            counts[skill] += NAME_WEIGHT if in_name else ABOUT_WEIGHT
        return dict(counts)


def _beginning(term: str) -> bytes:
    """What all words of a term begin with."""
    whole = not term.isascii() or len(term) <= 2 * _IRREGULAR
    return (term if whole else term[:-_IRREGULAR]).encode()
