"""Searches names and descriptions without an index, for the time until the index of a large catalog is built.

All descriptions are one text, in which the words of a query are looked up: that takes milliseconds for ten thousand
skills and needs no preparation. Weights are those of the index as far as names and descriptions go.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import accumulate
from typing import Final

from metier.catalog.search.documents import ABOUT_WEIGHT, LENGTH_SHARE, NAME_WEIGHT, SATURATION, USUAL_LENGTH, joined
from metier.catalog.search.index import Scored
from metier.catalog.search.plan import FEWEST, QUERY_LIMIT, confidence, length_of
from metier.catalog.search.words import terms, words
from metier.model import Skill

_CHARACTERS: Final = 9
"""The characters of a description for one of its words that counts."""
_REST: Final = rb"[a-z0-9\x80-\xff]*"
_IRREGULAR: Final = 2
"""The last letters of a stem that the word itself may not have, as in `happi` of `happy`."""


class QuickSearch:
    """Names and descriptions of skills as one text."""

    def __init__(self, skills: Iterable[Skill]) -> None:
        self._skills = list(skills)
        data = [f"{skill.name}\n{skill.description}\n".encode("utf-8", "replace") for skill in self._skills]
        self._text = b"".join(data).lower()
        self._starts = [0, *accumulate(map(len, data))]

    def search(self, query: str, limit: int, allowed: Container[str]) -> list[Scored]:
        """Return the best skills first, equal ones in the order of their keys."""
        found = self._occurrences(query)
        total = max(len(self._skills), FEWEST)
        points: dict[int, float] = {}
        potential = 0.0
        for occurrences in found.values():
            idf = math.log(1 + (total - len(occurrences) + 0.5) / (len(occurrences) + 0.5))
            potential += idf
            for at, count in occurrences.items():
                points[at] = points.get(at, 0.0) + idf * count / (count + self._half(at))
        name, length = joined(query), length_of(query, found)
        for at in [at for at in points if joined(self._skills[at].name) == name]:
            points[at] += potential
        scored = (
            (-round(confidence(share / potential, length), 9), self._skills[at].path) for at, share in points.items()
        )
        best = sorted(one for one in scored if one[1] in allowed)[:limit]
        return [Scored(key, -score) for score, key in best]

    def matched(self, query: str, keys: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the words of the query that each of these skills has."""
        word_of = dict(zip(reversed(terms(query)), reversed(words(query)), strict=True))
        found = self._occurrences(query)
        place = {skill.path: at for at, skill in enumerate(self._skills)}
        return {key: tuple(word_of[term] for term in found if place.get(key, -1) in found[term]) for key in keys}

    def _half(self, at: int) -> float:
        length = ABOUT_WEIGHT * (self._starts[at + 1] - self._starts[at]) / _CHARACTERS
        return SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / USUAL_LENGTH)

    def _occurrences(self, query: str) -> dict[str, dict[int, float]]:
        """Return for each term of the query the skills that have it, with the weight that it has in them."""
        wanted = list(dict.fromkeys(terms(query)))[:QUERY_LIMIT]
        return {term: self._weights(self._places(term)) for term in wanted}

    def _places(self, term: str) -> Iterator[int]:
        """Return where the text has words of this term. In scripts without spaces, a pair of characters is a term."""
        text = self._text
        if not term.isascii():
            yield from (match.start() for match in re.finditer(re.escape(term.encode()), text))
            return
        start = term if len(term) <= 2 * _IRREGULAR else term[:-_IRREGULAR]
        known: dict[bytes, bool] = {}
        for match in re.finditer(re.escape(start.encode()) + _REST, text):
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
