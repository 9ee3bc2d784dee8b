"""The catalog as one list of every file that was found, each with its state and the reason for it.

An overview is built once per catalog. Searching and paging use only the overview and the search index, so a page of a
catalog of ten thousand skills costs as much as one of ten.
"""

import contextlib
import hashlib
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from metier import limits
from metier.catalog.build import Catalog
from metier.files.beneath import read_regular
from metier.files.text import from_utf8
from metier.skills import Skills
from metier.values.skill import Diagnostic, Skill

Kind = Literal["offered", "hidden", "off", "shadowed", "left-out", "broken"]
KINDS: Final[tuple[tuple[Kind, str], ...]] = (
    ("offered", "Offered"),
    ("hidden", "Hidden"),
    ("off", "Off"),
    ("shadowed", "Shadowed"),
    ("left-out", "Left out"),
    ("broken", "Broken"),
)
PER_PAGE: Final = 50


@dataclass(frozen=True, slots=True)
class OverviewEntry:
    """One SKILL.md: its state, and the reason."""

    kind: Kind
    name: str
    path: str
    why: str
    description: str = ""
    scope: str = ""
    skill: Skill | None = None
    winner: Skill | None = None
    problem: Diagnostic | None = None

    @property
    def key(self) -> str:
        """Identifies the entry in addresses and forms without revealing its path."""
        return key_of(self.path)


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """One page of the entries that match."""

    entries: Sequence[OverviewEntry]
    total: int
    number: int
    weak: frozenset[str] = frozenset()
    """The keys of the entries that match a search only weakly."""

    @property
    def last(self) -> int:
        return max(1, -(-self.total // PER_PAGE))

    @property
    def first_shown(self) -> int:
        return (self.number - 1) * PER_PAGE + 1 if self.total else 0

    @property
    def last_shown(self) -> int:
        return (self.number - 1) * PER_PAGE + len(self.entries)


class Overview:
    """All entries of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        problems = _problems(catalog)
        entries = [_entry(skill, *_state(skill)) for skill in catalog.skills]
        for loser in catalog.shadowed:
            why = "an identical file is offered" if loser.identical else "another skill with this name is used"
            entries.append(_entry(loser.skill, "shadowed", why, loser.winner))
        for skipped in catalog.skipped:
            name, why = skipped.name or _folder(skipped.path), skipped.detail or skipped.reason
            entries.append(OverviewEntry(kind="left-out", name=name, path=skipped.path, why=why))
        for path in catalog.failed:
            problem = problems.get(path)
            why = problem.message if problem else "not valid"
            entries.append(OverviewEntry(kind="broken", name=_folder(path), path=path, why=why, problem=problem))
        self.entries: Sequence[OverviewEntry] = entries
        self.by_path = {entry.path: number for number, entry in enumerate(entries)}
        self.kinds = Counter(entry.kind for entry in entries)
        self.scopes = Counter(entry.scope for entry in entries if entry.scope)

    @cached_property
    def _haystacks(self) -> list[str]:
        return [f"{entry.name}\n{entry.description}\n{entry.path}".lower() for entry in self.entries]

    @cached_property
    def by_key(self) -> dict[str, OverviewEntry]:
        return {entry.key: entry for entry in self.entries}

    def needs_key(self, entry: OverviewEntry) -> bool:
        """Whether the name alone does not identify the entry."""
        return entry.kind in ("shadowed", "broken") or len(self.catalog.by_name.get(entry.name, ())) > 1

    def page(self, skills: Skills, text: str, kind: str, scope: str, number: int) -> OverviewPage:
        """The entries that match: strong hits, then entries that contain the text literally, then weak hits."""
        found, weak = self._matching(skills, text.strip()) if text.strip() else (self.entries, frozenset[str]())
        if kind or scope:
            found = [entry for entry in found if kind in ("", entry.kind) and scope in ("", entry.scope)]
        number = min(number, max(1, -(-len(found) // PER_PAGE)))
        return OverviewPage(found[(number - 1) * PER_PAGE : number * PER_PAGE], len(found), number, weak)

    def _matching(self, skills: Skills, text: str) -> tuple[list[OverviewEntry], frozenset[str]]:
        ranked = skills.search(text, limit=skills.profile.search.max_limit).results
        hits = [(self.by_path[hit.skill.path], hit.fit) for hit in ranked if hit.skill.path in self.by_path]
        wanted = text.lower()
        numbers = dict.fromkeys(number for number, fit in hits if fit != "weak")
        numbers |= dict.fromkeys(number for number, hay in enumerate(self._haystacks) if wanted in hay)
        weak = [number for number, fit in hits if fit == "weak" and number not in numbers]
        found = [self.entries[number] for number in (*numbers, *weak)]
        return found, frozenset(self.entries[number].key for number in weak)


class Overviews:
    """The overview of the latest catalog, built on first use. Only one search at a time reads the index."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._searching = threading.Lock()
        self._latest: Overview | None = None
        self._warmed: Overview | None = None

    def of(self, skills: Skills) -> Overview:
        with self._lock:
            catalog = skills.catalog
            if self._latest is None or self._latest.catalog is not catalog:
                self._latest = Overview(catalog)
            return self._latest

    def page(self, skills: Skills, text: str, kind: str, scope: str, number: int) -> OverviewPage:
        overview = self.of(skills)
        with self._searching if text else contextlib.nullcontext():
            return overview.page(skills, text, kind, scope, number)

    def warm(self, skills: Skills) -> None:
        """Update the search index before it is needed."""
        overview = self.of(skills)
        if self._warmed is not overview:
            self._warmed = overview
            self.page(skills, "a", "", "", 1)


def key_of(path: str) -> str:
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:20]


def _entry(skill: Skill, kind: Kind, why: str, winner: Skill | None = None) -> OverviewEntry:
    return OverviewEntry(kind, skill.name, skill.path, why, skill.description, skill.scope, skill=skill, winner=winner)


def _state(skill: Skill) -> tuple[Kind, str]:
    if not skill.enabled:
        return "off", "switched off; neither people nor the model can use it"
    if not skill.trusted:
        return "hidden", "its project is not trusted; run `metier trust` to show it to the model"
    if skill.mode == "manual":
        return "hidden", "for people only; the model does not see it"
    if not skill.model_invocable:
        return "hidden", "its frontmatter hides it from the model; people can call it by name"
    return "offered", ""


def _problems(catalog: Catalog) -> dict[str, Diagnostic]:
    failed = set(catalog.failed)
    first: dict[str, Diagnostic] = {}
    for diagnostic in catalog.diagnostics:
        if diagnostic.severity == "error" and diagnostic.path in failed:
            first.setdefault(diagnostic.path, diagnostic)
    return first


def _folder(path: str) -> str:
    """The name of the folder that contains a SKILL.md."""
    return path.rstrip("/").split("/")[-2] if path.count("/") > 1 else path


def source_line(diagnostic: Diagnostic) -> str | None:
    """The line of the file that a diagnostic points to. Its path was found by a scan."""
    if not diagnostic.line:
        return None
    try:
        lines = read_regular(diagnostic.path, limits.REGISTRY_BYTES).split(b"\n")
    except OSError:
        return None
    return from_utf8(lines[diagnostic.line - 1][:400]) if diagnostic.line <= len(lines) else None
