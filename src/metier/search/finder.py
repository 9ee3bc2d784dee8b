"""Searches a catalog through a text index that is kept on disk and brought up to date.

An index belongs to one set of roots and rules. Only changed skills are read again, with their bodies and references,
which are read for the index and never shown from it. If the disk cannot hold the index, it is built in memory. The
index of a large catalog is built in the background, and until then names and descriptions are searched.
"""

import contextlib
import os
import shutil
import threading
import time
import weakref
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from metier import limits
from metier.search import (
    EXACT_NAME,
    EXACT_PATH,
    OVERLAP,
    PREFIX,
    CatalogRanker,
    Ranker,
    Reranker,
    background,
    fold,
    fuse,
    in_order,
)
from metier.search.index import Scored, TextIndex
from metier.search.parts import SMALL, IndexBusy, IndexUnavailable
from metier.search.plan import FITS, NO_ALIASES
from metier.search.quick import QuickSearch
from metier.search.reading import TextSource, changed_sources, indexed_skills, own_stamp
from metier.search.words import Aliases
from metier.values.results import Hit, IndexProgress
from metier.values.skill import Shadowed, Skill

THRESHOLD: Final = OVERLAP + 100 * FITS
"""The score below which a hit is weak. See `FITS`."""

TAIL: Final = 0.6
"""Hits below this share of the first hit's score are left out. In the benchmark that lost no right answer in ten."""

_FUSED: Final = 100
"""The number of results that each ranking gives before they are blended."""

RERANKED: Final = 20
"""The number of results that a reranker puts into order."""

UNJUDGED: Final = 0.25
"""The score of the best result that only a ranker found which does not judge whether it fits."""

_COPIES: Final = 24
"""The number of further results that are looked at, because copies are folded into one."""

_MANY_PARTS: Final = 12
"""Parts of an index are written together in the background once there are more."""

_ATTEMPTS: Final = 3
"""How often a build is started that does not bring all skills into the index. The last one is in this process."""

_Answer = TypeVar("_Answer")


class _Start(NamedTuple):
    """A build that is to be started."""

    progress: Callable[[int], None] | None
    paths: Collection[str]


class Finder:
    """Ranked search over one catalog at a time; `sync` sets the catalog."""

    def __init__(
        self,
        folder: str,
        rankers: Sequence[tuple[float, Ranker]] = (),
        aliases: Aliases = NO_ALIASES,
        reranker: Reranker | None = None,
    ) -> None:
        """An empty `folder` means an index in memory. `rankers` have a weight each; the ranking by words has 1.0."""
        self._folder = folder
        self._rankers = tuple(rankers)
        self._reranker = reranker
        self._aliases = aliases
        self._index = self._open()
        self._skills: Mapping[str, Skill] = {}
        self._names: list[tuple[str, str]] = []
        self._winners: Mapping[str, str] = {}
        self._missing: dict[str, str] = {}
        """The skills whose text is not in the index yet, with the beginning of their stamps."""
        self._gone: set[str] = set()
        """The keys that are in the index and not in the catalog."""
        self._quick: QuickSearch | None = None
        self._build: background.Build | None = None
        self._next: _Start | None = None
        self._attempts = 0
        self._temporary: object = None
        self._lock = threading.Lock()

    def _open(self) -> TextIndex:
        if self._folder:
            try:
                return TextIndex.open(self._folder)
            except IndexUnavailable:
                self._folder = ""
        return TextIndex.open(None)

    # --- keeping the index up to date ---

    def sync(
        self,
        skills: Iterable[Skill],
        progress: Callable[[int], None] | None = None,
        shadowed: Iterable[Shadowed] = (),
    ) -> int:
        """Bring the index up to date. Returns the number of skills that were read for it.

        A name finds the skill that is offered. Words and paths also find those that it shadows. For a large catalog,
        only a few changed skills are read here, and more of them in the background; see `waiting_for`.
        """
        offered = {skill.path: skill for skill in skills}
        hidden = [entry for entry in shadowed if entry.skill.path not in offered]
        self._winners = {entry.skill.path: entry.winner.path for entry in hidden}
        self._skills = offered | {entry.skill.path: entry.skill for entry in hidden}
        self._names = sorted((skill.name, path) for path, skill in offered.items())
        self._quick, self._next, self._missing, self._attempts = None, None, {}, 0
        for _, ranker in self._rankers:
            if isinstance(ranker, CatalogRanker):
                ranker.sync(self._skills.values())
        try:
            return self._update(progress)
        except IndexBusy:
            return 0  # another process is writing: search what is there, and be complete after the next scan
        except IndexUnavailable:
            self._folder, self._index = "", TextIndex.open(None)
            return self._update(progress)

    def _update(self, progress: Callable[[int], None] | None = None) -> int:
        if len(self._skills) > limits.INDEXED_AT_ONCE and not self._folder:
            self._use_temporary_folder()
        known = self._index.stamps()
        self._gone = known.keys() - self._skills.keys()
        if len(self._skills) > limits.INDEXED_AT_ONCE and self._folder:
            return self._update_many(known, progress)
        changed = list(changed_sources(self._sources(self._skills), known))
        if changed or self._gone:
            self._index.update(indexed_skills(changed, progress), self._gone)
            self._write_together()
        return len(changed)

    def _use_temporary_folder(self) -> None:
        """Keep the index of a large catalog in a folder, since other processes build it."""
        import tempfile

        if self._temporary is None:
            with contextlib.suppress(OSError, IndexUnavailable):
                folder = tempfile.mkdtemp(prefix="metier-index-")
                self._temporary = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                self._folder, self._index = folder, TextIndex.open(folder)

    def _update_many(self, known: Mapping[str, str], progress: Callable[[int], None] | None) -> int:
        """Read a few changed skills here. More of them, and changes of references, are left to the background."""
        stamps = {path: own_stamp(skill) for path, skill in self._skills.items()}
        changed = {path: stamp for path, stamp in stamps.items() if not known.get(path, "").startswith(stamp)}
        if len(changed) + len(self._gone) > SMALL:
            self._missing = changed
            self._quick = QuickSearch(self._skills.values())
            self._next = _Start(progress, changed)
            return 0
        if changed or self._gone:
            few = list(changed_sources(self._sources(changed), {}))
            self._index.update(indexed_skills(few, progress), self._gone)
            self._write_together()
        if background.check_is_due(self._folder):
            self._next = _Start(progress, self._skills)
        return len(changed)

    def start_waiting_build(self) -> None:
        """Start the build that `sync` has found necessary. It comes after the first answer, which it would delay."""
        with self._lock:
            wanted, self._next = self._next, None
            if wanted is None:
                return
            self._attempts += 1
            with contextlib.suppress(OSError):
                sources, removed = self._sources(wanted.paths), frozenset(self._gone)
                here = self._attempts == _ATTEMPTS
                build = background.start(self._folder, sources, removed, told=wanted.progress, here=here)
                self._build = build or self._build

    def _write_together(self) -> None:
        """Write the parts together in the background, except for the largest, if there are many."""
        if not self._folder:
            return
        parts = self._index.parts()
        if len(parts) > _MANY_PARTS:
            largest = max(SMALL, *(len(keys) for keys, _ in parts.values()))
            kept = {name for name, (keys, hid) in parts.items() if len(keys) * 4 > largest and hid * 10 < len(keys)}
            paths = [key for name in parts.keys() - kept for key in parts[name][0] if key in self._skills]
            with contextlib.suppress(OSError):
                background.start(self._folder, self._sources(paths), replacing=parts.keys() - kept)

    def _sources(self, paths: Iterable[str]) -> list[TextSource]:
        return [TextSource.of(self._skills[path]) for path in paths]

    def progress(self) -> IndexProgress | None:
        """How far the index is. `None` if all skills are in it."""
        if not self._waits():
            return None
        total = len(self._skills)
        done = self._build.done if self._build is not None else 0
        return IndexProgress(min(total, max(total - len(self._missing), done)), total)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all skills are in the index. Returns false if they are not after so many seconds."""
        give_up = None if timeout is None else time.monotonic() + timeout
        while self._waits():
            self.start_waiting_build()
            if give_up is not None and time.monotonic() >= give_up:
                return False
            if self._build is not None and self._build.running:
                self._build.wait(0.2 if give_up is None else min(0.2, max(0.0, give_up - time.monotonic())))
            else:
                time.sleep(0.05)  # another process builds it
        return True

    def _waits(self) -> bool:
        """Whether the index is still being built. What was published meanwhile is read."""
        if self._quick is None:
            return False
        if self._next is not None:
            return True
        with self._lock:
            # This comes first: what a build published before its end is then certainly read.
            running = background.is_running(self._folder)
            if self._index.refresh() or not running:
                known = self._index.stamps()
                missing = self._missing.items()
                self._missing = {path: stamp for path, stamp in missing if not known.get(path, "").startswith(stamp)}
            if not running and self._missing and self._attempts < _ATTEMPTS:
                self._next = _Start(None, self._missing)  # its processes were killed, or it was for other skills
                return True
            if not running and not self._missing:
                self._quick = None
            return running

    # --- searching ---

    def search(
        self, query: str, limit: int, allowed: Callable[[Skill], bool], cwd: str, context: str = ""
    ) -> list[Hit]:
        """Return the best `limit` hits: an exact path, an exact name, names that start with the query, then matches."""
        hits = in_order(hit for hit in self._exact(query, cwd) if allowed(hit.skill))
        taken = {hit.skill.path for hit in hits}
        if len(hits) < limit:
            rest = limit - len(hits) + _COPIES
            hits += self._matching(query, rest, lambda path: path not in taken and self._allows(path, allowed), context)
        winners = self._winners
        marked = [replace(hit, shadowed_by=by) if (by := winners.get(hit.skill.path)) else hit for hit in hits]
        return self._with_files(query, fold(marked)[:limit])

    def build_soon(self) -> None:
        """Start the build that `sync` has found necessary, in a thread: preparing it takes longer than an answer."""
        if self._next is not None:
            threading.Thread(target=self.start_waiting_build, name="metier-index-start").start()

    def _with_files(self, query: str, hits: list[Hit]) -> list[Hit]:
        """The same hits. Those of words name the reference file that has more of the query than SKILL.md."""
        if self._quick is not None:
            return hits
        keys = [hit.skill.path for hit in hits if hit.reason == "token_overlap"]
        files = self._with_index(lambda index: index.files(query, keys))
        return [replace(hit, file=files.get(hit.skill.path, "")) for hit in hits] if files else hits

    def explain(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits, each with the words of the query that its skill has."""
        keys, quick = [hit.skill.path for hit in hits], self._quick
        if quick is not None:
            matched = quick.matched(query, keys)
        else:
            matched = self._with_index(lambda index: index.matched(query, keys, aliases=self._aliases))
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

    def _matching(self, query: str, limit: int, allowed: Callable[[str], bool], context: str) -> list[Hit]:
        depth = limit if self._reranker is None else max(limit, RERANKED)
        scored = self._scored(query, depth, allowed, context=context[: limits.CONTEXT_CHARACTERS])
        scored = self._reranked(query, scored)[:limit]
        return [
            Hit(
                self._skills[one.key],
                round(OVERLAP + 100 * one.score, 2),
                "token_overlap",
                fit="strong" if one.fits else "weak",
            )
            for one in scored
            if one.score >= TAIL * scored[0].score
        ]

    def _scored(
        self, query: str, limit: int, allowed: Callable[[str], bool], least: float = 0.0, context: str = ""
    ) -> list[Scored]:
        """Blend the ranking by words with the rankers. The words are left out if their best score is below `least`."""
        depth = max(limit, _FUSED) if self._rankers else limit
        self._waits()
        quick = self._quick
        if quick is not None:
            words = quick.search(query, depth, allowed)
        else:
            words = self._with_index(
                lambda index: index.search(query, depth, allowed=allowed, aliases=self._aliases, context=context)
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
        judges = [getattr(ranker, "matches", True) for _, ranker in self._rankers]
        if any(ranking and judge for (_, ranking), judge in zip(rankings[1:], judges, strict=True)):
            best = max(best, FITS)
        best = best or UNJUDGED
        return [Scored(key, best * score / fused[0][1]) for key, score in fused]

    def _reranked(self, query: str, scored: list[Scored]) -> list[Scored]:
        if self._reranker is None or not scored:
            return scored
        top = scored[:RERANKED]
        marks = self._reranker.rerank(query, [self._skills[one.key] for one in top])
        order = sorted(zip(marks, range(len(top)), strict=True), key=lambda pair: (-pair[0], pair[1]))
        return [replace(place, key=top[at].key) for place, (_, at) in zip(top, order, strict=True)] + scored[RERANKED:]

    def _with_index(self, use: Callable[[TextIndex], _Answer]) -> _Answer:
        try:
            return use(self._index)
        except IndexUnavailable:
            # A stored index that breaks while it is used is rebuilt in memory, so that a search never fails for it.
            self._folder, self._index = "", TextIndex.open(None)
            self._update(None)
            return use(self._index)
