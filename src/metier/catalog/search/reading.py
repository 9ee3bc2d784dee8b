"""Reads what is indexed of a skill: keywords of its frontmatter, its body, and its reference files.

What is needed for that is a `TextSource` of plain values, so that another process can do it.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Self

from metier import limits
from metier.catalog.frontmatter import Fences, find_fences
from metier.catalog.search import references
from metier.catalog.search.documents import IndexedSkill
from metier.catalog.search.references import Reference
from metier.errors import ResourceError
from metier.files.beneath import read_file
from metier.files.shapes import is_list, is_mapping
from metier.files.text import from_utf8
from metier.model import Skill

KEYWORD_FIELDS: Final = frozenset(
    ("keywords", "tags", "triggers", "trigger", "category", "categories", "aliases", "domain", "topics", "when_to_use")
)
"""Keys of a frontmatter, at any depth, whose text is indexed like the description."""

_BATCH: Final = 200


class TextSource(NamedTuple):
    """What of a skill is known from its scan and needed for the index."""

    path: str
    real_path: str
    name: str
    description: str
    keywords: tuple[str, ...]
    own_stamp: str
    """The version of SKILL.md. The stamp of the skill begins with it."""

    @classmethod
    def of(cls, skill: Skill) -> Self:
        keywords = tuple(_keywords(skill.frontmatter.items()))
        return cls(skill.path, skill.real_path, skill.name, skill.description, keywords, own_stamp(skill))


def own_stamp(skill: Skill) -> str:
    return f"{skill.mtime_ns}-{skill.size}-{skill.name}-"


def with_references(sources: Iterable[TextSource]) -> Iterator[tuple[TextSource, list[Reference]]]:
    """Yield each skill with its reference files."""
    return ((source, references.references(source.real_path)) for source in sources)


def stamp(source: TextSource, files: list[Reference]) -> str:
    """The version of a skill with its reference files."""
    return source.own_stamp + references.digest(files)


def changed_sources(
    sources: Iterable[TextSource], known: dict[str, str]
) -> Iterator[tuple[TextSource, list[Reference]]]:
    """Yield the skills, with their reference files, whose stamps are not the known ones."""
    return (one for one in with_references(sources) if known.get(one[0].path) != stamp(*one))


def indexed_skills(
    skills: Sequence[tuple[TextSource, list[Reference]]], progress: Callable[[int], None] | None = None
) -> Iterator[IndexedSkill]:
    """Yield what is indexed of each skill. Bodies and references are read as the iteration reaches them."""
    for number, (source, files) in enumerate(skills):
        if progress is not None and number % _BATCH == 0:
            progress(number)
        yield IndexedSkill(
            key=source.path,
            name=source.name,
            description=source.description,
            keywords=source.keywords,
            body=_body(source),
            references=references.texts(source.real_path, files),
            stamp=stamp(source, files),
        )


def _body(source: TextSource) -> str:
    with contextlib.suppress(ResourceError):
        folder, file = os.path.split(source.real_path)
        data = read_file(folder, file, limits.INDEXED_BYTES).data
        fences = find_fences(data, complete=True)
        return from_utf8(data[fences.body if isinstance(fences, Fences) else 0 :])
    return ""


def _keywords(fields: Iterable[tuple[object, object]]) -> Iterator[str]:
    for key, value in fields:
        if isinstance(key, str) and key.lower() in KEYWORD_FIELDS:
            yield from _strings(value)
        elif is_mapping(value):
            yield from _keywords(value.items())


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_list(value):
        for item in value:
            yield from _strings(item)
    elif is_mapping(value):
        for item in value.values():
            yield from _strings(item)
