"""Reads what is indexed of a skill: keywords of its frontmatter, its body, and its reference files.

What is needed for that is a `TextSource` of plain values, so that another process can do it. Reference files are
Markdown and plain text beneath the skill's folder. Tests, evaluations, licences, hidden folders and the folders of
inner skills are left out, and links are not followed. Everything is bounded, because a skill may be the root of a large
repository.
"""

import contextlib
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Self

from metier import limits
from metier.catalog.frontmatter import Fences, find_fences
from metier.errors import ResourceError
from metier.files.beneath import read_file
from metier.files.shapes import is_list, is_mapping
from metier.files.text import from_utf8
from metier.search.documents import IndexedSkill
from metier.values.skill import SKILL_FILE, Skill

KEYWORD_FIELDS: Final = frozenset(
    ("keywords", "tags", "triggers", "trigger", "category", "categories", "aliases", "domain", "topics", "when_to_use")
)
"""Keys of a frontmatter, at any depth, whose text is indexed like the description."""

_BATCH: Final = 200
SUFFIXES: Final = (".md", ".txt")
_LEFT_OUT: Final = re.compile(
    r"\.|__|node_modules$|dist$|build$|tests?$|evals?$|evaluations?$|fixtures?$|(?:license|licence|notice|copying|changelog)\b"
    r"|requirements[\w-]*\.txt$"
)
"""The beginnings of names, in lower case, of files and folders that do not describe what a skill is for."""


class Reference(NamedTuple):
    """A file by its path in the skill's folder, and what changes when it is written."""

    path: str
    mtime_ns: int
    size: int


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
    return ((source, references_of(source.real_path)) for source in sources)


def stamp(source: TextSource, files: list[Reference]) -> str:
    """The version of a skill with its reference files."""
    return source.own_stamp + _digest(files)


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
            references=_texts(source.real_path, files),
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


# --- reference files ---


def references_of(skill_file: str) -> list[Reference]:
    """The reference files of the skill with this SKILL.md, by path."""
    found = _within(os.path.dirname(skill_file), "", itertools.count(1))
    return sorted(found)[: limits.INDEXED_FILES]


def _texts(skill_file: str, files: list[Reference]) -> tuple[tuple[str, str], ...]:
    """The text of these files, in order, as far as it is indexed."""
    folder = os.path.dirname(skill_file)
    left = limits.INDEXED_CHARACTERS
    found: list[tuple[str, str]] = []
    for file in files:
        if left <= 0:
            break
        with contextlib.suppress(ResourceError):
            text = from_utf8(read_file(folder, file.path, 4 * left).data)[:left]
            left -= len(text)
            found.append((file.path, text))
    return tuple(found)


def _digest(files: list[Reference]) -> str:
    """What stands for the state of these files. Empty if there are none."""
    if not files:
        return ""
    return hashlib.blake2b(repr(files).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _within(folder: str, above: str, looked_at: Iterator[int], depth: int = 0) -> Iterator[Reference]:
    inner: list[str] = []
    try:
        with os.scandir(os.path.join(folder, above)) as listing:
            found = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return
    if depth and any(entry.name == SKILL_FILE for entry in found):
        return
    for entry in found:
        if next(looked_at) > limits.INDEXED_ENTRIES:
            return
        name = entry.name.lower()
        if _LEFT_OUT.match(name) or name == SKILL_FILE.lower():
            continue
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.name)
            elif name.endswith(SUFFIXES) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield Reference(above + entry.name, status.st_mtime_ns, status.st_size)
    if depth < limits.INDEXED_DEPTH:
        for name in inner:
            yield from _within(folder, f"{above}{name}/", looked_at, depth + 1)
