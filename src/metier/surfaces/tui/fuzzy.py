"""Fuzzy matching of names, as fzf does it: the letters of a word in their order, with anything between them.

`csvprof` matches `csv-profile`. Letters at the beginning of a part of the name, letters that follow each other and
short gaps score more. A word without capitals matches both cases, a word with capitals only its own.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

_LETTER: Final = 16
_FIRST: Final = 12
"""For a letter that begins the name."""
_PART: Final = 9
"""For a letter that begins a part of the name, after a separator or as the first of some digits."""
_NEXT: Final = 11
"""For a letter that follows the one before it."""
_GAP: Final = 1
"""For each letter that is skipped."""
_SEPARATORS: Final = "-_ ./:"
_FEWEST: Final = 3
"""Fewer letters are far apart in nearly every name, so they must be close."""


class FuzzyMatch(NamedTuple):
    """How well a name matches, and at which letters."""

    score: int
    places: tuple[int, ...]
    close: bool
    """Whether each letter follows the one before it or begins a part of the name. Other matches are often chance."""


def pattern(words: Sequence[str]) -> "re.Pattern[str] | None":
    """A quick test, in any case, for the names that can match. `None` without words."""
    if not words:
        return None
    return re.compile("".join(f"(?={_loose(word.casefold())})" for word in words))


def _loose(word: str) -> str:
    # Each step takes the next such letter and never goes back, so that a long name takes no longer.
    return "".join(f"[^{re.escape(letter)}]*+{re.escape(letter)}" for letter in word)


def fold(word: str, name: str) -> str:
    """The name as the word is compared with it: in lower case, unless the word has capitals."""
    return name.lower() if word == word.lower() else name


def match(word: str, name: str) -> FuzzyMatch | None:
    """The best way in which a word matches a name. `None` if it does not."""
    name = fold(word, name)
    if (at := _whole(word, name)) >= 0:
        places = range(at, at + len(word))
        return FuzzyMatch(_score(name, places), tuple(places), close=True)
    best: FuzzyMatch | None = None
    first = start = name.find(word[0])
    while start >= 0:
        if start == first or _begins(name, start):
            found = _from(word, name, start)
            if found is None:
                break  # nor does the rest of the name fit
            best = found if best is None or found.score > best.score else best
        start = name.find(word[0], start + 1)
    return None if best is not None and len(word) < _FEWEST and not best.close else best


def _whole(word: str, name: str) -> int:
    """Where the name has the whole word, if possible where a part begins. -1 if it does not have it."""
    first = at = name.find(word)
    while at >= 0 and not _begins(name, at):
        at = name.find(word, at + 1)
    return at if at >= 0 else first


def _from(word: str, name: str, start: int) -> FuzzyMatch | None:
    """Match from a letter on. Each letter is taken where a part begins, if the rest still fits, or else at once."""
    places = [start]
    for number, letter in enumerate(word[1:], 2):
        at = name.find(letter, places[-1] + 1)
        if at < 0:
            return None
        if at != places[-1] + 1:
            at = _begin_of_part(word[number:], letter, name, at)
        places.append(at)
    pairs = pairwise(places)
    close = _begins(name, start) and all(at == before + 1 or _begins(name, at) for before, at in pairs)
    return FuzzyMatch(_score(name, places), tuple(places), close)


def _begin_of_part(rest: str, letter: str, name: str, at: int) -> int:
    later = at
    while later >= 0:
        if _begins(name, later):
            return later if _follows(rest, name, later + 1) else at
        later = name.find(letter, later + 1)
    return at


def _follows(rest: str, name: str, start: int) -> bool:
    for letter in rest:
        start = name.find(letter, start) + 1
        if not start:
            return False
    return True


def _begins(name: str, at: int) -> bool:
    return at == 0 or name[at - 1] in _SEPARATORS or (name[at].isdigit() and not name[at - 1].isdigit())


def _score(name: str, places: Sequence[int]) -> int:
    score = 0
    before = -2
    for at in places:
        score += _LETTER + (_FIRST if at == 0 else _PART if _begins(name, at) else 0)
        score += _NEXT if at == before + 1 else -_GAP * (at - before - 1) if before >= 0 else 0
        before = at
    return score
