"""Turns text into the words and terms that are indexed and searched for.

A text becomes a list of words without English function words; a term is an English stem. Identifiers count as a whole
and by their parts (`DataFrame`: dataframe, data, frame). Scripts without spaces count by pairs of characters. Documents
and queries go through the same functions, so their terms always agree.

Words for the same thing are data, in `aliases.toml`: a query that says `k8s` also finds what says Kubernetes. They are
looked up by the terms of a query and are not part of the index, so switching them off or adding some builds nothing
anew.
"""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final

from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

LONGEST_WORD: Final = 48
"""Longer runs are hashes and encoded data, which nobody searches for."""

_SPACELESS_RANGES: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
)
"""Thai, Lao, Burmese, Khmer, Kana and Han; also Hangul, whose particles are attached to words."""

_WORD: Final = re.compile(r"[^\W_]+")
_STOP_WORDS: Final = frozenset(
    _WORD.findall(
        "a about all also am an and any are as at be been being but by can could did do does doing for from had has"
        " have having he her here hers him his how i if in into is it its just me might must my no not of on or our"
        " ours out shall she should so some than that the their theirs them then there these they this those to too up"
        " us very was we were what when where which who whom why will with would you your yours"
    )
)
_RUN: Final = re.compile(f"[{_SPACELESS_RANGES}]+|[^{_SPACELESS_RANGES}]+")
_SPACELESS: Final = re.compile(f"[{_SPACELESS_RANGES}]")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?;。！？；])\s+|\n+")
_EXCLUSION: Final = re.compile(
    r"\b(?:not (?:for|when|to be used|intended for|suitable)"
    r"|(?:do|should) not (?:use|trigger|invoke|activate|load|apply|be used)"
    r"|don['’]t (?:use|trigger|invoke|activate)"
    r"|never use (?:for|when)|skip (?:when|for|if)|avoid (?:using )?(?:for|when))\b",
    re.IGNORECASE,
)


_ASCII_SIGNS: Final = bytes(code if code > 127 or chr(code).isalnum() else 32 for code in range(256))
"""Replaces all signs of ASCII by spaces. That splits a text into runs ten times as fast as an expression."""


class _Memo(dict[str, tuple[str, ...]]):
    """Caches a function of the text between two signs. It is a dict, because indexing mostly looks runs up."""

    LIMIT: Final = 1 << 17

    def __init__(self, compute: Callable[[str], Iterable[str]]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, raw: str) -> tuple[str, ...]:
        found = tuple(self._compute(raw))
        if len(raw) <= LONGEST_WORD:  # a longer run, such as a sentence in Chinese, hardly comes again
            if len(self) >= self.LIMIT:
                self.clear()
            self[raw] = found
        return found


def _split_run(run: str) -> Iterable[str]:
    return _split(run) if run.isascii() else chain.from_iterable(map(_split, _WORD.findall(run)))


def _split(raw: str) -> list[str]:
    if not raw.isascii() and _SPACELESS.search(raw):
        return [word for run in _RUN.findall(raw) for word in _pairs_or_word(run)]
    word = raw.lower()
    if (
        word in _STOP_WORDS
        or len(word) > LONGEST_WORD
        or (len(word) == 1 and word.isascii() and word not in "cr0123456789")
    ):
        return []  # of single characters, only digits and the languages C and R count
    if raw == word or raw.isupper() or raw.istitle():
        return [word]
    parts = [part.lower() for part in _PART.findall(raw) if len(part) > 1]
    return [word] if parts == [word] else [word, *(part for part in parts if part not in _STOP_WORDS)]


def _pairs_or_word(run: str) -> list[str]:
    if not _SPACELESS.match(run):
        return _split(run)
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


_stem: Final = TextAnalyzerBuilder(Tokenizer.raw()).filter(Filter.stemmer("english")).build().analyze
_words_of: Final = _Memo(_split_run)
_terms_of: Final = _Memo(lambda run: [_stem(word)[0] for word in _split_run(run)])


def _runs(text: str) -> list[str]:
    """Return what is between the signs of ASCII. Other signs may still be in it."""
    return text.encode("utf-8", "surrogatepass").translate(_ASCII_SIGNS).decode("utf-8", "surrogatepass").split()


def words(text: str) -> list[str]:
    """Return the words of a text in order, in lower case."""
    return list(chain.from_iterable(map(_words_of.__getitem__, _runs(text))))


def terms(text: str) -> list[str]:
    """Return the term of each word of a text."""
    return list(chain.from_iterable(map(_terms_of.__getitem__, _runs(text))))


def counted(text: str) -> dict[str, int]:
    """Return how often a text has each term. Counting runs before they become terms takes a third of the time."""
    found: dict[str, int] = {}
    for run, count in Counter(_runs(text)).items():
        for term in _terms_of[run]:
            found[term] = found.get(term, 0) + count
    return found


def exact(text: str) -> list[str]:
    """Return the words between spaces or signs, without parts of identifiers and pairs of characters."""
    return [found[0] for raw in _WORD.findall(text) if (found := _words_of[raw]) and found[0] == raw.lower()]


def whole(text: str) -> set[str]:
    """Return all words of a text as they are written, in lower case; in scripts without spaces, pairs of characters."""
    found = set[str]()
    for run in chain.from_iterable(map(_RUN.findall, _WORD.findall(unicodedata.normalize("NFKC", text).lower()))):
        found.update(_pairs_or_word(run) if _SPACELESS.match(run) else (run,))
    return found


def spans(text: str, wanted: Collection[str]) -> list[tuple[int, int]]:
    """Return where a text has words with a wanted term, in order; in scripts without spaces, the wanted pairs."""
    found: list[tuple[int, int]] = []
    for match in _WORD.finditer(text):
        for run in _RUN.finditer(text, *match.span()):
            first, last = run.span()
            if _SPACELESS.match(run[0]):
                places = [(at, min(at + 2, last)) for at in range(first, max(last - 1, first + 1))]
                parts = [(begin, end) for begin, end in places if text[begin:end] in wanted]
            else:
                parts = [(first, last)] if any(term in wanted for term in _terms_of[run[0]]) else []
            for begin, end in parts:
                if found and begin < found[-1][1]:
                    found[-1] = (found[-1][0], end)
                else:
                    found.append((begin, end))
    return found


def pairs(of: list[str]) -> list[str]:
    """Return each pair of neighbouring terms, joined by a character that no word contains."""
    return [f"{first}_{second}" for first, second in pairwise(of) if first != second]


def repeated_pairs(of: list[str]) -> Iterator[str]:
    """Return each pair that occurs more than once."""
    seen: set[tuple[str, str]] = set()
    again = {pair for pair in pairwise(of) if pair in seen or seen.add(pair)}
    return (f"{first}_{second}" for first, second in again if first != second)


def affirmative(description: str) -> str:
    """Return a description without the parts that say what the skill is not for ("NOT for X", "do not use when Y")."""
    kept: list[str] = []
    for sentence in _SENTENCE_END.split(description):
        exclusion = _EXCLUSION.search(sentence)
        kept.append(sentence[: exclusion.start()] if exclusion else sentence)
    return " ".join(kept)


# --- words for the same thing ---

GROUP: Final = 8
"""The most words of a group."""
GROUPS: Final = 500
"""The most groups that a user may add."""

Aliases = Mapping[str, Mapping[str, str]]
"""For a term, the other terms of its groups, each with the word that it stands for."""

FILE: Final = os.path.join(os.path.dirname(__file__), "aliases.toml")


@lru_cache(maxsize=8)
def aliases(shipped: bool, own: tuple[str, ...]) -> Aliases:
    """The shipped groups, if they are wanted, and a user's own: the words of each separated by commas."""
    groups = [[word.strip() for word in group.split(",")] for group in own[:GROUPS]]
    return _by_term([*(_shipped() if shipped else ()), *groups])


def _shipped() -> Sequence[Sequence[str]]:
    import tomllib

    with open(FILE, "rb") as file:
        return [group["words"] for group in tomllib.load(file)["group"]]


def _by_term(groups: Iterable[Sequence[str]]) -> Aliases:
    found: dict[str, dict[str, str]] = {}
    for group in groups:
        # A word that is split into several, such as `front-end`, cannot stand for one term.
        known = {term[0]: word for word in group[:GROUP] if len(term := terms(word)) == 1}
        for term in known:
            others = {other: word for other, word in known.items() if other != term}
            found[term] = dict([*(found.get(term, {}) | others).items()][:GROUP])
    return found
