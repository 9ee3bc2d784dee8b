"""A catalog made searchable: its skills become documents of an index, which is kept on disk and brought up to date.

The index belongs to one set of roots and rules. Only skills whose file changed are read again, body included: a body is
read for the index and never shown from it. Where the disk does not let an index be kept, it is made in memory.
"""

import contextlib
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from metier import limits
from metier.catalog.frontmatter import Fences, find_fences
from metier.catalog.search import EXACT_NAME, EXACT_PATH, OVERLAP, PREFIX, Hit, in_order
from metier.catalog.search.fusion import Ranker, fuse
from metier.catalog.search.index import FITS, IndexBusy, IndexedSkill, IndexUnavailable, Scored, TextIndex
from metier.errors import ResourceError
from metier.files.beneath import read_file
from metier.files.text import from_utf8
from metier.model import Skill

KEYWORD_FIELDS: Final = frozenset(
    ("keywords", "tags", "triggers", "trigger", "category", "categories", "aliases", "domain", "topics", "when_to_use")
)
"""Keys of a frontmatter, at any depth, whose text says what a skill is for."""

THRESHOLD: Final = OVERLAP + 100 * FITS
"""The score below which nothing fits, on the scale of a hit."""

TAIL: Final = 0.6
"""What scores below this share of the first hit is left out: in the benchmark, never a right answer among ten."""

_FUSED: Final = 100
"""How deep rankings are asked before they are blended."""

_BATCH: Final = 200

_Answer = TypeVar("_Answer")


class Finder:
    """Ranked search over one catalog at a time; `sync` makes it the given one."""

    def __init__(self, folder: str, rankers: Sequence[tuple[float, Ranker]] = ()) -> None:
        """`folder` may be empty, for an index in memory; `rankers` are blended with words, each by its weight."""
        self._folder = folder
        self._rankers = tuple(rankers)
        self._index = self._open()
        self._skills: Mapping[str, Skill] = {}
        self._names: list[tuple[str, str]] = []

    def _open(self) -> TextIndex:
        if self._folder:
            try:
                return TextIndex.open(self._folder)
            except IndexUnavailable:
                self._folder = ""
        return TextIndex.open(None)

    def sync(self, skills: Iterable[Skill], progress: Callable[[int], None] | None = None) -> int:
        """Bring the index up to date; the number of skills that were read for it."""
        self._skills = {skill.path: skill for skill in skills}
        self._names = sorted((skill.name, path) for path, skill in self._skills.items())
        try:
            return self._update(progress)
        except IndexBusy:
            return 0  # somebody else is writing; what is there is searched, and the next look is complete
        except IndexUnavailable:
            self._folder, self._index = "", TextIndex.open(None)
            return self._update(progress)

    def _update(self, progress: Callable[[int], None] | None) -> int:
        known = self._index.stamps()
        changed = [skill for path, skill in self._skills.items() if known.get(path) != _stamp(skill)]
        removed = known.keys() - self._skills.keys()
        if changed or removed:
            self._index.update(documents(changed, progress), removed)
        return len(changed)

    def search(self, query: str, limit: int, allowed: Callable[[Skill], bool], cwd: str) -> list[Hit]:
        """The best `limit` hits: a path, a name, names that begin so, then what fits; nothing where nothing does."""
        hits = in_order(hit for hit in self._exact(query, cwd) if allowed(hit.skill))
        taken = {hit.skill.path for hit in hits}
        if len(hits) < limit:
            hits += self._fitting(
                query, limit - len(hits), lambda path: path not in taken and self._allows(path, allowed)
            )
        return hits[:limit]

    def explain(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same hits, each with the words of the query that its skill has."""
        matched = self._asked(lambda index: index.matched(query, [hit.skill.path for hit in hits]))
        return [replace(hit, matched=matched[hit.skill.path]) for hit in hits]

    def rank(self, message: str, allowed: Callable[[Skill], bool], limit: int) -> list[Skill]:
        """The skills that share something with a message, the best first, however little it is."""
        scored = self._scored(message, limit, lambda path: self._allows(path, allowed))
        return [self._skills[one.key] for one in scored]

    def _allows(self, path: str, allowed: Callable[[Skill], bool]) -> bool:
        skill = self._skills.get(path)
        return skill is not None and allowed(skill)

    def _exact(self, query: str, cwd: str) -> Iterator[Hit]:
        place = os.path.normpath(os.path.join(cwd, query))
        for path in (place, os.path.join(place, "SKILL.md")):
            if path in self._skills and (path == place or os.sep in query):
                yield Hit(self._skills[path], EXACT_PATH, "exact_path")
        at = bisect_left(self._names, (query, ""))
        while at < len(self._names) and self._names[at][0].startswith(query):
            name, path = self._names[at]
            whole = name == query
            yield Hit(self._skills[path], EXACT_NAME if whole else PREFIX, "exact_name" if whole else "prefix")
            at += 1

    def _fitting(self, query: str, limit: int, allowed: Callable[[str], bool]) -> list[Hit]:
        scored = self._scored(query, limit, allowed, FITS)
        return [
            Hit(self._skills[one.key], round(OVERLAP + 100 * one.score, 2), "token_overlap")
            for one in scored
            if one.score >= TAIL * scored[0].score
        ]

    def _scored(self, query: str, limit: int, allowed: Callable[[str], bool], least: float = 0.0) -> list[Scored]:
        """What words and rankers say together. Words whose best score is below the least have no say."""
        depth = max(limit, _FUSED) if self._rankers else limit
        words = self._asked(lambda index: index.search(query, depth, allowed=_Allowed(allowed)))
        if words and words[0].score < least:
            words = []
        if not self._rankers:
            return words
        rankings = [(1.0, [(one.key, one.score) for one in words])]
        for weight, ranker in self._rankers:
            ranked = [(key, score) for key, score in ranker.rank(query, depth) if allowed(key)]
            rankings.append((weight, ranked))
        fused = fuse(rankings, limit)
        sure = words[0].score if words else FITS  # words know how well they fit; a ranker says it by what it lists
        return [Scored(key, sure * score / fused[0][1]) for key, score in fused]

    def _asked(self, ask: Callable[[TextIndex], _Answer]) -> _Answer:
        try:
            return ask(self._index)
        except IndexUnavailable:
            # A stored index that broke while in use is made anew, in memory: a search never fails for it.
            self._folder, self._index = "", TextIndex.open(None)
            self._update(None)
            return ask(self._index)


class _Allowed:
    """A question as a container, so that no set of all skills is built for a query."""

    def __init__(self, ask: Callable[[str], bool]) -> None:
        self._ask = ask

    def __contains__(self, key: object) -> bool:
        return self._ask(cast("str", key))


def _stamp(skill: Skill) -> str:
    return f"{skill.mtime_ns}-{skill.size}-{skill.name}"


def documents(skills: Sequence[Skill], progress: Callable[[int], None] | None = None) -> Iterator[IndexedSkill]:
    """What of a skill is indexed: its name, description and keywords, and its body, read now."""
    for number, skill in enumerate(skills):
        if progress is not None and number % _BATCH == 0:
            progress(number)
        yield IndexedSkill(
            skill.path,
            skill.name,
            skill.description,
            tuple(_keywords(skill.frontmatter)),
            _body(skill),
            _stamp(skill),
        )


def _body(skill: Skill) -> str:
    with contextlib.suppress(ResourceError):
        folder, file = os.path.split(skill.real_path)
        data = read_file(folder, file, limits.INDEXED_BYTES).data
        fences = find_fences(data, complete=True)
        return from_utf8(data[fences.body if isinstance(fences, Fences) else 0 :])
    return ""


def _keywords(fields: Mapping[str, Any]) -> Iterator[str]:
    for key, value in fields.items():
        if key.lower() in KEYWORD_FIELDS:
            yield from _strings(value)
        elif isinstance(value, Mapping):
            yield from _keywords(cast("Mapping[str, Any]", value))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _strings(item)
    elif isinstance(value, Mapping):
        for item in cast("Mapping[str, Any]", value).values():
            yield from _strings(item)
