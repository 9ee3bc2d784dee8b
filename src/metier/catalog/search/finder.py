"""Searches a catalog through a text index that is kept on disk and brought up to date.

An index belongs to one set of roots and rules. Only changed skills are read again, with their bodies and references,
which are read for the index and never shown from it. If the disk cannot hold the index, it is built in memory.
"""

import contextlib
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from metier import limits
from metier.catalog.frontmatter import Fences, find_fences
from metier.catalog.search import EXACT_NAME, EXACT_PATH, OVERLAP, PREFIX, in_order, references
from metier.catalog.search.aliases import Aliases
from metier.catalog.search.documents import IndexedSkill
from metier.catalog.search.folding import fold
from metier.catalog.search.fusion import Ranker, fuse
from metier.catalog.search.index import Scored, TextIndex
from metier.catalog.search.parts import IndexBusy, IndexUnavailable
from metier.catalog.search.plan import FITS, NO_ALIASES
from metier.catalog.search.references import Reference
from metier.errors import ResourceError
from metier.files.beneath import read_file
from metier.files.shapes import is_list, is_mapping
from metier.files.text import from_utf8
from metier.model import Shadowed, Skill
from metier.results import Hit

KEYWORD_FIELDS: Final = frozenset(
    ("keywords", "tags", "triggers", "trigger", "category", "categories", "aliases", "domain", "topics", "when_to_use")
)
"""Keys of a frontmatter, at any depth, whose text is indexed like the description."""

THRESHOLD: Final = OVERLAP + 100 * FITS
"""The score below which a hit is weak. See `FITS`."""

TAIL: Final = 0.6
"""Hits below this share of the first hit's score are left out. In the benchmark that lost no right answer in ten."""

_FUSED: Final = 100
"""The number of results that each ranking gives before they are blended."""

_COPIES: Final = 24
"""The number of further results that are looked at, because copies are folded into one."""

_BATCH: Final = 200

_Answer = TypeVar("_Answer")


class Finder:
    """Ranked search over one catalog at a time; `sync` sets the catalog."""

    def __init__(
        self, folder: str, rankers: Sequence[tuple[float, Ranker]] = (), aliases: Aliases = NO_ALIASES
    ) -> None:
        """An empty `folder` means an index in memory. `rankers` have a weight each; the ranking by words has 1.0."""
        self._folder = folder
        self._rankers = tuple(rankers)
        self._aliases = aliases
        self._index = self._open()
        self._skills: Mapping[str, Skill] = {}
        self._names: list[tuple[str, str]] = []
        self._winners: Mapping[str, str] = {}

    def _open(self) -> TextIndex:
        if self._folder:
            try:
                return TextIndex.open(self._folder)
            except IndexUnavailable:
                self._folder = ""
        return TextIndex.open(None)

    def sync(
        self,
        skills: Iterable[Skill],
        progress: Callable[[int], None] | None = None,
        shadowed: Iterable[Shadowed] = (),
    ) -> int:
        """Bring the index up to date. Returns the number of skills that were read for it.

        A name finds the skill that is offered. Words and paths also find those that it shadows.
        """
        offered = {skill.path: skill for skill in skills}
        hidden = [entry for entry in shadowed if entry.skill.path not in offered]
        self._winners = {entry.skill.path: entry.winner.path for entry in hidden}
        self._skills = offered | {entry.skill.path: entry.skill for entry in hidden}
        self._names = sorted((skill.name, path) for path, skill in offered.items())
        try:
            return self._update(progress)
        except IndexBusy:
            return 0  # another process is writing: search what is there, and be complete after the next scan
        except IndexUnavailable:
            self._folder, self._index = "", TextIndex.open(None)
            return self._update(progress)

    def _update(self, progress: Callable[[int], None] | None) -> int:
        known = self._index.stamps()
        stamped = [(skill, files, _stamp(skill, files)) for skill, files in with_references(self._skills.values())]
        changed = [(skill, files) for skill, files, stamp in stamped if known.get(skill.path) != stamp]
        removed = known.keys() - self._skills.keys()
        if changed or removed:
            self._index.update(indexed_skills(changed, progress), removed)
        return len(changed)

    def search(self, query: str, limit: int, allowed: Callable[[Skill], bool], cwd: str) -> list[Hit]:
        """Return the best `limit` hits: an exact path, an exact name, names that start with the query, then matches."""
        hits = in_order(hit for hit in self._exact(query, cwd) if allowed(hit.skill))
        taken = {hit.skill.path for hit in hits}
        if len(hits) < limit:
            hits += self._matching(
                query, limit - len(hits) + _COPIES, lambda path: path not in taken and self._allows(path, allowed)
            )
        marked = [replace(hit, shadowed_by=self._winners.get(hit.skill.path, "")) for hit in hits]
        return self._with_files(query, fold(marked)[:limit])

    def _with_files(self, query: str, hits: list[Hit]) -> list[Hit]:
        """The same hits. Those of words name the reference file that has more of the query than SKILL.md."""
        keys = [hit.skill.path for hit in hits if hit.reason == "token_overlap"]
        files = self._with_index(lambda index: index.files(query, keys))
        return [replace(hit, file=files.get(hit.skill.path, "")) for hit in hits] if files else hits

    def explain(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits, each with the words of the query that its skill has."""
        matched = self._with_index(
            lambda index: index.matched(query, [hit.skill.path for hit in hits], aliases=self._aliases)
        )
        return [replace(hit, matched=matched[hit.skill.path]) for hit in hits]

    def rank(self, message: str, allowed: Callable[[Skill], bool], limit: int, least: float = 0.0) -> list[Skill]:
        """Return the skills that share any word with a message, the best first; none if its score is below `least`."""
        scored = self._scored(message, limit, lambda path: self._allows(path, allowed), least)
        return [self._skills[one.key] for one in scored]

    def _allows(self, path: str, allowed: Callable[[Skill], bool]) -> bool:
        skill = self._skills.get(path)
        return skill is not None and allowed(skill)

    def _exact(self, query: str, cwd: str) -> Iterator[Hit]:
        place = os.path.normpath(os.path.join(cwd, query))
        for path in (place, os.path.join(place, "SKILL.md")):
            if path in self._skills and (path == place or os.sep in query):
                yield Hit(self._skills[path], EXACT_PATH, "exact_path", fit="strong")
        at = bisect_left(self._names, (query, ""))
        while at < len(self._names) and self._names[at][0].startswith(query):
            name, path = self._names[at]
            whole = name == query
            score, reason = (EXACT_NAME, "exact_name") if whole else (PREFIX, "prefix")
            yield Hit(self._skills[path], score, reason, fit="strong")
            at += 1

    def _matching(self, query: str, limit: int, allowed: Callable[[str], bool]) -> list[Hit]:
        scored = self._scored(query, limit, allowed)
        return [
            Hit(
                self._skills[one.key],
                round(OVERLAP + 100 * one.score, 2),
                "token_overlap",
                fit="strong" if one.score >= FITS else "weak",
            )
            for one in scored
            if one.score >= TAIL * scored[0].score
        ]

    def _scored(self, query: str, limit: int, allowed: Callable[[str], bool], least: float = 0.0) -> list[Scored]:
        """Blend the ranking by words with the rankers. The words are left out if their best score is below `least`."""
        depth = max(limit, _FUSED) if self._rankers else limit
        words = self._with_index(
            lambda index: index.search(query, depth, allowed=_Allowed(allowed), aliases=self._aliases)
        )
        if words and words[0].score < least:
            words = []
        if not self._rankers:
            return words
        rankings = [(1.0, [(one.key, one.score) for one in words])]
        for weight, ranker in self._rankers:
            ranked = [(key, score) for key, score in ranker.rank(query, depth) if allowed(key)]
            rankings.append((weight, ranked))
        fused = fuse(rankings, limit)
        # Only the ranking by words knows how well its best result fits. What a ranker lists counts as a match.
        best = words[0].score if words else 0.0
        if any(ranking for _, ranking in rankings[1:]):
            best = max(best, FITS)
        return [Scored(key, best * score / fused[0][1]) for key, score in fused]

    def _with_index(self, use: Callable[[TextIndex], _Answer]) -> _Answer:
        try:
            return use(self._index)
        except IndexUnavailable:
            # A stored index that breaks while it is used is rebuilt in memory, so that a search never fails for it.
            self._folder, self._index = "", TextIndex.open(None)
            self._update(None)
            return use(self._index)


class _Allowed:
    """A predicate as a container, so that no set of all skills is built for a query."""

    def __init__(self, predicate: Callable[[str], bool]) -> None:
        self._predicate = predicate

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._predicate(key)


def with_references(skills: Iterable[Skill]) -> Iterator[tuple[Skill, list[Reference]]]:
    """Yield each skill with its reference files."""
    return ((skill, references.references(skill)) for skill in skills)


def _stamp(skill: Skill, files: list[Reference]) -> str:
    return f"{skill.mtime_ns}-{skill.size}-{skill.name}-{references.digest(files)}"


def indexed_skills(
    skills: Sequence[tuple[Skill, list[Reference]]], progress: Callable[[int], None] | None = None
) -> Iterator[IndexedSkill]:
    """Yield what is indexed of each skill. Bodies and references are read as the iteration reaches them."""
    for number, (skill, files) in enumerate(skills):
        if progress is not None and number % _BATCH == 0:
            progress(number)
        yield IndexedSkill(
            key=skill.path,
            name=skill.name,
            description=skill.description,
            keywords=tuple(_keywords(skill.frontmatter.items())),
            body=_body(skill),
            references=references.texts(skill, files),
            stamp=_stamp(skill, files),
        )


def _body(skill: Skill) -> str:
    with contextlib.suppress(ResourceError):
        folder, file = os.path.split(skill.real_path)
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
