"""What of a skill is written to the index: its own text and its references as weighted terms.

The weight of each term is computed here, in eight levels, and is part of what is written: `invoice:3`. A weight depends
on one skill alone. Each reference file also has a small document with the terms that SKILL.md lacks, so that a hit can
name the file to read.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

import tantivy

from metier.search.words import affirmative, counted, exact, pairs, repeated_pairs, terms
from metier.values.value import Value

FORMAT: Final = 5
"""Part of the folder's name. Increase it if the same text would be indexed differently."""

NAME_WEIGHT: Final = 20
ABOUT_WEIGHT: Final = 10
"""A term in the name, or in description and keywords, counts as much as this many occurrences in the body."""
SATURATION: Final = 4.0
LENGTH_SHARE: Final = 0.75
USUAL_LENGTH: Final = 1800.0
"""BM25's k1, b and average length. The length is a constant, so that weights do not depend on other documents."""
REFERENCE_SHARE: Final = 0.6
REFERENCE_USUAL_LENGTH: Final = 800.0
"""How much a term in a reference file adds to its weight in SKILL.md, of what is left up to one, and a file's length.

Of several files, the one in which the term has most weight counts, so a skill loses nothing by having more files.
"""
WORD_NAME_WEIGHT: Final = 2
WORD_SATURATION: Final = 2.0
WORD_USUAL_LENGTH: Final = 50.0
"""The weights of unstemmed words of name, description and keywords, which count in addition to their stems."""
BODY_LIMIT: Final = 32_000
"""Characters of a body that are indexed. Later text does not describe a skill any better."""
LEVELS: Final = 8
WORD_BITS: Final = 2

_BETWEEN: Final = re.compile(r"[\W_]+")


class IndexedSkill(Value, kw_only=True):
    """The text of a skill that is indexed."""

    key: str
    name: str
    description: str = ""
    keywords: tuple[str, ...] = ()
    body: str = ""
    references: tuple[tuple[str, str], ...] = ()
    """The path and the text of each further file."""
    stamp: str
    """The version of the skill. A document with another stamp is out of date."""


class PreparedSkill(NamedTuple):
    """What is written for a skill. One without a stamp says that the skill was removed."""

    key: str
    stamp: str
    name: str = ""
    stem: str = ""
    word: str = ""
    pair: str = ""
    files: tuple[tuple[str, str], ...] = ()
    """The path of each reference file, and the terms that it has and SKILL.md lacks."""

    def documents(self) -> list[tantivy.Document]:
        """The document of the skill and those of its files."""
        if not self.stamp:
            return []
        whole = tantivy.Document(key=self.key, name=self.name, stem=self.stem, word=self.word, pair=self.pair)
        return [whole, *(tantivy.Document(parent=self.key, file=file, has=has) for file, has in self.files)]


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("key", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("name", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("parent", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("file", stored=True, tokenizer_name="raw", index_option="basic")
    for field in ("stem", "word", "pair", "has"):
        builder.add_text_field(field, tokenizer_name="terms", index_option="basic")
    return builder.build()


SCHEMA: Final = _schema()
"""The fields of a skill (`key`, and `name` to `pair`) and of a file (`parent`, `file` and `has`)."""


def prepare(skill: IndexedSkill) -> PreparedSkill:
    """Analyse the text of a skill."""
    about = affirmative(skill.description) + "\n" + "\n".join(skill.keywords)
    name_terms, about_terms, body_terms = terms(skill.name), terms(about), terms(skill.body[:BODY_LIMIT])
    own = Counter(body_terms)
    _add(own, name_terms, NAME_WEIGHT)
    _add(own, about_terms, ABOUT_WEIGHT)
    counts = Counter(exact(about))
    _add(counts, exact(skill.name), WORD_NAME_WEIGHT)
    # Of a body, only pairs that occur more than once: a third of the size with hardly a hit lost.
    neighbours = {*pairs(name_terms), *pairs(about_terms), *repeated_pairs(body_terms)}
    referred: dict[str, float] = {}
    files: list[tuple[str, str]] = []
    for file, text in skill.references:
        found = counted(text)
        for term, weight in _saturated(found, SATURATION, REFERENCE_USUAL_LENGTH).items():
            if weight > referred.get(term, 0.0):
                referred[term] = weight
        files.append((file, " ".join([term for term in found if term not in own])))
    return PreparedSkill(
        key=skill.key,
        stamp=skill.stamp,
        name=joined(skill.name),
        stem=" ".join(_levelled(_with_references(own, referred))),
        word=" ".join(_planes(_saturated(counts, WORD_SATURATION, WORD_USUAL_LENGTH), WORD_BITS)),
        pair=" ".join(neighbours),
        files=tuple(one for one in files if one[1]),
    )


def joined(name: str) -> str:
    """Return a name without separators and case: `release-notes`, `Release Notes` and `ReleaseNotes` are equal."""
    return _BETWEEN.sub("", name.lower())


def _add(counts: Counter[str], found: list[str], weight: int) -> None:
    for term in found:
        counts[term] += weight


def _saturated(counts: Mapping[str, int], saturation: float, usual_length: float) -> dict[str, float]:
    """Return the weight of each term as in BM25, from 0 to 1."""
    half = saturation * (1 - LENGTH_SHARE + LENGTH_SHARE * sum(counts.values()) / usual_length)
    of_count = {count: count / (count + half) for count in set(counts.values())}
    return {term: of_count[count] for term, count in counts.items()}


def _with_references(own: Mapping[str, int], referred: Mapping[str, float]) -> dict[str, float]:
    weights = _saturated(own, SATURATION, USUAL_LENGTH)
    for term, weight in referred.items():
        known = weights.get(term, 0.0)
        weights[term] = known + REFERENCE_SHARE * weight * (1 - known)
    return weights


_SUFFIXES: Final = [f":{max(0, step - 1)}" for step in range(LEVELS + 1)]


def _levelled(weights: Mapping[str, float]) -> list[str]:
    """Return each term with the level of its weight."""
    suffix_of = {weight: _SUFFIXES[round(LEVELS * weight)] for weight in set(weights.values())}
    return [term + suffix_of[weight] for term, weight in weights.items()]


def _planes(weights: Mapping[str, float], bits: int) -> list[str]:
    """Return the postings of each term: one for its presence, and one for each bit of its weight in steps."""
    steps = 1 << bits
    of_level = [["0", *(str(1 << bit) for bit in range(bits) if level >> bit & 1)] for level in range(steps)]
    return [plane + term for term, weight in weights.items() for plane in of_level[max(0, round(steps * weight) - 1)]]
