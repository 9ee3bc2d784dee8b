"""What a picker shows: the entries of a catalog in views, narrowed by what was typed.

A view is everything, one scope, what is switched off, what is shadowed by another, or what is wrong. What was typed
must occur in name or description, word by word, as far as it is typed; skills that ranked search finds stand before
those, the best first. The model draws nothing and waits for nothing: a ranking is asked for by `rank`, and merged by
`narrow`.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from metier import Skills
from metier.catalog.build import Catalog
from metier.catalog.modes import Level
from metier.files.text import printable
from metier.model import SCOPE_ORDER, Diagnostic, Mode, Shadowed, Skill

Kind = Literal["skill", "shadowed", "problem"]

ALL: Final = "all"
OFF: Final = "off"
SHADOWED: Final = "shadowed"
PROBLEMS: Final = "problems"


@dataclass(frozen=True, slots=True, eq=False)
class PickerEntry:
    """One line of a picker. A problem has no skill where its file is not one."""

    kind: Kind
    name: str
    scope: str
    about: str
    path: str
    tag: str
    """What is to be known before one chooses it, in a word."""
    key: str
    text: str
    """The name, and the name and the description, as typed words are looked for in them: in lower case."""
    skill: Skill | None = None
    shadowed: Shadowed | None = None
    notes: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class PickerView:
    """A part of the catalog, by name, and how much there is of it."""

    name: str
    count: int


class Picker:
    """See the module. `refresh` takes up a new catalog; everything else only reads."""

    def __init__(self, skills: Skills, level: Level = "user") -> None:
        self.skills = skills
        self.level: Level = level
        self._catalog: Catalog | None = None
        self._views: dict[str, list[PickerEntry]] = {}
        self._last: tuple[str, str, list[PickerEntry]] = ("", "", [])
        self.refresh()

    def refresh(self) -> bool:
        """Show the catalog of now; whether it is another one."""
        current = self.skills.catalog
        if current is self._catalog:
            return False
        self._catalog = current
        notes = _notes(current)
        switched_off: dict[str, list[Skill]] = {}
        for each in current.shadowed:
            if not each.skill.enabled:
                switched_off.setdefault(each.winner.path, []).append(each.skill)
        # A skill that was switched off stays in its place, so that it can be switched on again, beside its heir.
        offered = (one for skill in current.skills for one in (skill, *switched_off.get(skill.path, ())))
        entries = [_skill(skill, notes.get(skill.path, ())) for skill in offered]
        views: dict[str, list[PickerEntry]] = {ALL: entries}
        for scope in sorted({entry.scope for entry in entries}, key=lambda scope: (SCOPE_ORDER.get(scope, 3), scope)):
            views[scope] = [entry for entry in entries if entry.scope == scope]
        views[OFF] = [entry for entry in entries if entry.skill is not None and not entry.skill.enabled]
        views[SHADOWED] = [
            _shadowed(each, notes.get(each.skill.path, ())) for each in current.shadowed if each.skill.enabled
        ]
        by_path = {skill.path: skill for skill in current.skills}
        views[PROBLEMS] = [_problem(path, found, by_path.get(path), current) for path, found in notes.items()]
        self._views = {name: found for name, found in views.items() if found or name == ALL}
        self._last = ("", "", [])
        return True

    @property
    def views(self) -> list[PickerView]:
        return [PickerView(name, len(entries)) for name, entries in self._views.items()]

    def next_view(self, name: str, step: int = 1) -> str:
        names = list(self._views)
        return names[(names.index(name) + step) % len(names)] if name in names else ALL

    def total(self, view: str) -> int:
        return len(self._views.get(view, ()))

    def narrow(self, query: str, view: str = ALL, ranked: Sequence[str] = ()) -> list[PickerEntry]:
        """The entries of a view that fit what was typed; `ranked` are paths that `rank` found for it."""
        pool = self._views.get(view, [])
        words = query.casefold().split()
        if not words:
            return pool
        place = {path: number for number, path in enumerate(ranked)}
        first = sorted((entry for entry in pool if entry.path in place), key=lambda e: place[e.path]) if place else []
        fits = self._fitting(query.casefold(), view, words)
        named = fits
        for word in words:
            named = [entry for entry in named if word in entry.key]
        begin = " ".join(words)
        begins = [entry for entry in named if entry.key.startswith(begin)]
        # Each entry once, where it stands best.
        return list(dict.fromkeys((*first, *begins, *named, *fits)))

    def _fitting(self, query: str, view: str, words: Sequence[str]) -> list[PickerEntry]:
        """What has all words. A letter more can only leave less, so the last answer is the place to look."""
        before, of_view, fits = self._last
        if of_view != view or not query.startswith(before):
            fits = self._views.get(view, [])
        for word in words:
            fits = [entry for entry in fits if word in entry.text]
        self._last = (query, view, fits)
        return fits

    def rank(self, query: str, view: str = ALL) -> list[str]:
        """The paths that ranked search finds, the best first. The first call may have to make an index."""
        if not query.strip() or view in (SHADOWED, PROBLEMS, OFF):
            return []
        scope = None if view == ALL else view
        result = self.skills.search(query, limit=self.skills.profile.search.max_limit, scope=scope)
        return [hit.skill.path for hit in result.results]

    # --- switches that last ---

    def switch(self, entry: PickerEntry) -> Mode:
        """Off if it is on, on if it is off."""
        return self.set(entry, "auto" if entry.skill is not None and entry.skill.mode == "off" else "off")

    def pin(self, entry: PickerEntry) -> Mode:
        """Pinned, or no longer."""
        return self.set(entry, "auto" if entry.skill is not None and entry.skill.mode == "pinned" else "pinned")

    def set(self, entry: PickerEntry, mode: Mode) -> Mode:
        return self.skills.set_mode(entry.path, mode, level=self.level).mode

    def word(self, entry: PickerEntry) -> str:
        """What names it for other commands: its name, or its path where another skill bears the name."""
        rivals = self.skills.catalog.by_name.get(entry.name, ())
        return entry.name if len(rivals) == 1 and rivals[0].path == entry.path else entry.path


def said(entry: PickerEntry, mode: Mode) -> str:
    """What a switch did, in a sentence."""
    how = {"auto": "on", "off": "off", "pinned": "pinned, first in every prompt"}.get(mode, mode)
    return f"{clean(entry.name)} is {how}"


@lru_cache(4096)
def clean(text: str, limit: int = 400) -> str:
    """Text of a skill on one line with nothing in it that a terminal obeys, and not more than a line can show."""
    return printable(text[: limit * 4])[:limit]


def _skill(skill: Skill, notes: tuple[Diagnostic, ...]) -> PickerEntry:
    tag = skill.mode if skill.mode != "auto" else "" if skill.trusted else "untrusted"
    return _entry("skill", skill.name, skill.scope, skill.description, skill.path, tag, skill, None, notes)


def _shadowed(shadowed: Shadowed, notes: tuple[Diagnostic, ...]) -> PickerEntry:
    skill = shadowed.skill
    return _entry(
        "shadowed", skill.name, skill.scope, skill.description, skill.path, SHADOWED, skill, shadowed, notes
    )  # fmt: skip


def _problem(path: str, notes: tuple[Diagnostic, ...], skill: Skill | None, catalog: Catalog) -> PickerEntry:
    folder = os.path.dirname(path) if os.path.basename(path) == "SKILL.md" else path
    name = os.path.basename(folder) or folder
    scope = skill.scope if skill is not None else _scope(path, catalog)
    return _entry("problem", name, scope, notes[0].message, path, notes[0].severity, skill, None, notes)


def _entry(kind: Kind, name: str, scope: str, about: str, path: str, tag: str, *more: Any) -> PickerEntry:
    key = name.casefold()
    return PickerEntry(kind, name, scope, about, path, tag, key, f"{key}\n{about.casefold()}", *more)


def _scope(path: str, catalog: Catalog) -> str:
    within = [root for root in catalog.roots if path == root.path or path.startswith(root.path.rstrip("/") + "/")]
    return max(within, key=lambda root: len(root.path)).scope if within else ""


def _notes(catalog: Catalog) -> dict[str, tuple[Diagnostic, ...]]:
    """What is to be said of each file, errors first; remarks that ask for nothing are left out."""
    found: dict[str, list[Diagnostic]] = {}
    for note in _by_severity(catalog.diagnostics):
        found.setdefault(note.path, []).append(note)
    return {path: tuple(notes) for path, notes in found.items()}


def _by_severity(notes: Iterable[Diagnostic]) -> list[Diagnostic]:
    return sorted((note for note in notes if note.severity != "info"), key=lambda note: note.severity)
