"""What the picker shows: the entries of a catalog in views, filtered by the query.

A view has all skills, those of one scope, those that are off or shadowed, or files with problems. An entry matches if
its name has the letters of every word of the query in their order, or if its name and description have the words. Names
come first, the best one at the top, then what ranked search finds, then descriptions, then names with the letters far
apart. The model draws nothing and never blocks: `rank` computes a ranking, and `narrow` merges it.

`preview` shows an entry as lines. A file that cannot be read gives a note, never an error. The invariant: no control
character of a skill is in a line.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from metier import Skills, limits
from metier.catalog.build import Catalog
from metier.catalog.frontmatter import Fences, find_fences
from metier.catalog.modes import Level
from metier.errors import ResourceError
from metier.files.beneath import list_files, read_file
from metier.files.text import blank_controls, from_utf8, printable
from metier.hosts.roots import Place
from metier.surfaces.tui import fuzzy
from metier.values.skill import SCOPE_ORDER, SKILL_FILE, Diagnostic, Mode, Shadowed, Skill

Kind = Literal["skill", "shadowed", "problem"]

_PLENTY: Final = 200
"""If so many names have the words as they are, those with the letters apart are not looked for."""

ALL: Final = "all"
OFF: Final = "off"
SHADOWED: Final = "shadowed"
PROBLEMS: Final = "problems"


@dataclass(frozen=True, slots=True, eq=False)
class PickerEntry:
    """One line of the picker. A problem has no skill if its file is not a valid skill."""

    kind: Kind
    name: str
    scope: str
    about: str
    path: str
    tag: str
    """One word that the user should see before choosing, such as `off`."""
    skill: Skill | None = None
    shadowed: Shadowed | None = None
    notes: tuple[Diagnostic, ...] = ()
    key: str = field(init=False)
    """The name in lower case, for matching."""
    text: str = field(init=False)
    """The name and the description in lower case, for matching."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.name.casefold())
        object.__setattr__(self, "text", f"{self.name}\n{self.about}".casefold())


@dataclass(frozen=True, slots=True)
class PickerView:
    """The name of a view, and the number of its entries."""

    name: str
    count: int


class Picker:
    """The state of a picker. Only `refresh` changes it."""

    def __init__(self, skills: Skills, level: Level = "user") -> None:
        self.skills = skills
        self.level: Level = level
        self._catalog: Catalog | None = None
        self._views: dict[str, list[PickerEntry]] = {}
        self._last: tuple[str, str, list[PickerEntry]] = ("", "", [])
        self._last_loose: tuple[str, str, list[PickerEntry]] = ("", "", [])
        self.refresh()

    def refresh(self) -> bool:
        """Take over the current catalog, and return whether it changed."""
        current = self.skills.catalog
        if current is self._catalog:
            return False
        self._catalog = current
        notes = _notes(current)
        switched_off: dict[str, list[Skill]] = {}
        for each in current.shadowed:
            if not each.skill.enabled:
                switched_off.setdefault(each.winner.path, []).append(each.skill)
        # A skill that was switched off stays in the list, next to the one that replaced it, to switch it on again.
        offered = (one for skill in current.skills for one in (skill, *switched_off.get(skill.path, ())))
        entries = [_entry("skill", skill, tag=_tag(skill), notes=notes.get(skill.path, ())) for skill in offered]
        views: dict[str, list[PickerEntry]] = {ALL: entries}
        for scope in sorted({entry.scope for entry in entries}, key=lambda scope: (SCOPE_ORDER.get(scope, 3), scope)):
            views[scope] = [entry for entry in entries if entry.scope == scope]
        views[OFF] = [entry for entry in entries if entry.skill is not None and not entry.skill.enabled]
        views[SHADOWED] = [
            _entry("shadowed", each.skill, tag=SHADOWED, notes=notes.get(each.skill.path, ()), shadowed=each)
            for each in current.shadowed
            if each.skill.enabled
        ]
        by_path = {skill.path: skill for skill in current.skills}
        views[PROBLEMS] = [_problem(path, found, by_path.get(path), current) for path, found in notes.items()]
        self._views = {name: found for name, found in views.items() if found or name == ALL}
        self._last = self._last_loose = ("", "", [])
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
        """Return the entries of a view that match a query. `ranked` lists the paths that `rank` found for it."""
        pool = self._views.get(view, [])
        words = query.casefold().split()
        if not words:
            return pool
        place = {path: number for number, path in enumerate(ranked)}
        first = sorted((entry for entry in pool if entry.path in place), key=lambda e: place[e.path]) if place else []
        fits = self._fitting(query.casefold(), view, words)
        near, far = self._named(query, view, place)
        # Each entry once, at its best position.
        return list(dict.fromkeys((*near, *first, *fits, *far)))

    def _named(
        self, query: str, view: str, place: Mapping[str, int]
    ) -> tuple[Sequence[PickerEntry], Sequence[PickerEntry]]:
        """The entries whose name has the letters of the query: together, and far apart. The best come first."""
        words = query.split()
        loose = self._loose(query, view, words)
        lower = [word.casefold() for word in words]
        if max(map(len, lower)) == 1:  # nearly every name has it
            return [entry for entry in loose if entry.key.startswith(lower[0])], ()
        whole = [entry for entry in loose if all(word in entry.key for word in lower)]
        near: list[_Row] = []
        far: list[_Row] = []
        for entry in loose if len(whole) < _PLENTY else whole:
            found = [fuzzy.match(word, entry.name) for word in words]
            good = [one for one in found if one is not None]
            if len(good) == len(words):
                score = sum(one.score for one in good)
                close = all(one.close for one in good)
                rank = place.get(entry.path, len(place))
                (near if close else far).append((-score, rank, len(entry.key), entry))
        return _in_order(near), _in_order(far)

    def _loose(self, query: str, view: str, words: Sequence[str]) -> list[PickerEntry]:
        """The entries that can match by their name. A longer query matches a subset, so the last result is searched."""
        wanted = fuzzy.pattern(words)
        if wanted is None:
            self._last_loose = ("", "", [])
            return []
        before, of_view, pool = self._last_loose
        if not before or of_view != view or not query.startswith(before):
            pool = self._views.get(view, [])
        found = [entry for entry in pool if wanted.match(entry.key)]
        self._last_loose = (query, view, found)
        return found

    def _fitting(self, query: str, view: str, words: Sequence[str]) -> list[PickerEntry]:
        """Return the entries with all words. A longer query matches a subset, so the last result is searched."""
        before, of_view, fits = self._last
        if of_view != view or not query.startswith(before):
            fits = self._views.get(view, [])
        for word in words:
            fits = [entry for entry in fits if word in entry.text]
        self._last = (query, view, fits)
        return fits

    def rank(self, query: str, view: str = ALL) -> list[str]:
        """Return the paths that ranked search finds, the best first. The first call may build the index.

        Weak matches count only if there are no others, because words in a description say more than they do.
        """
        if not query.strip() or view in (SHADOWED, PROBLEMS, OFF):
            return []
        scope = None if view == ALL else view
        result = self.skills.search(query, limit=self.skills.profile.search.max_limit, scope=scope)
        return [hit.skill.path for hit in result.results if hit.fit != "weak" or result.weak]

    # --- modes ---

    def switch(self, entry: PickerEntry) -> Mode:
        """Switch a skill off if it is on, and on if it is off."""
        return self.set(entry, "auto" if entry.skill is not None and entry.skill.mode == "off" else "off")

    def pin(self, entry: PickerEntry) -> Mode:
        """Pin a skill, or unpin it if it is pinned."""
        return self.set(entry, "auto" if entry.skill is not None and entry.skill.mode == "pinned" else "pinned")

    def set(self, entry: PickerEntry, mode: Mode) -> Mode:
        return self.skills.set_mode(entry.path, mode, level=self.level).mode

    def name_or_path(self, entry: PickerEntry) -> str:
        """How other commands refer to an entry: by its name, or by its path if another skill has the same name."""
        rivals = self.skills.catalog.by_name.get(entry.name, ())
        return entry.name if len(rivals) == 1 and rivals[0].path == entry.path else entry.path


_Row = tuple[int, int, int, PickerEntry]


def _in_order(rows: list[_Row]) -> list[PickerEntry]:
    return [row[3] for row in sorted(rows, key=lambda row: row[:3])]


def mode_message(entry: PickerEntry, mode: Mode) -> str:
    """A sentence about the new mode of a skill."""
    state = {"auto": "on", "off": "off", "pinned": "pinned: it comes first in every prompt"}.get(mode, mode)
    return f"{clean(entry.name)} is {state}"


@lru_cache(4096)
def clean(text: str, limit: int = 400) -> str:
    """Return text of a skill as one line without control characters, cut at a limit."""
    return printable(text[: limit * 4])[:limit]


def _tag(skill: Skill) -> str:
    return skill.mode if skill.mode != "auto" else "" if skill.trusted else "untrusted"


def _entry(
    kind: Kind, skill: Skill, *, tag: str, notes: tuple[Diagnostic, ...], shadowed: Shadowed | None = None
) -> PickerEntry:
    return PickerEntry(
        kind=kind,
        name=skill.name,
        scope=skill.scope,
        about=skill.description,
        path=skill.path,
        tag=tag,
        skill=skill,
        shadowed=shadowed,
        notes=notes,
    )


def _problem(path: str, notes: tuple[Diagnostic, ...], skill: Skill | None, catalog: Catalog) -> PickerEntry:
    folder = os.path.dirname(path) if os.path.basename(path) == SKILL_FILE else path
    name = os.path.basename(folder) or folder
    return PickerEntry(
        kind="problem",
        name=name,
        scope=skill.scope if skill is not None else _scope(path, catalog),
        about=notes[0].message,
        path=path,
        tag=notes[0].severity,
        skill=skill,
        notes=notes,
    )


def _scope(path: str, catalog: Catalog) -> str:
    within = [root for root in catalog.roots if path == root.path or path.startswith(root.path.rstrip("/") + "/")]
    return max(within, key=lambda root: len(root.path)).scope if within else ""


def _notes(catalog: Catalog) -> dict[str, tuple[Diagnostic, ...]]:
    """The diagnostics of each file, errors first, without those of severity `info`."""
    found: dict[str, list[Diagnostic]] = {}
    for note in sorted(catalog.diagnostics, key=lambda note: note.severity):
        if note.severity != "info":
            found.setdefault(note.path, []).append(note)
    return {path: tuple(notes) for path, notes in found.items()}


# --- the preview ---

Role = Literal["title", "about", "fact", "note", "file", "heading", "code", "text", "blank"]

BYTES: Final = 32 * 1024
"""How much of a file is read."""
LINES: Final = 300
"""How much of it is shown."""
FILES: Final = 40


@dataclass(frozen=True, slots=True)
class PreviewLine:
    """A line of a preview. The role decides its style."""

    role: Role
    text: str
    label: str = ""


def preview(entry: PickerEntry, place: Place) -> Iterator[PreviewLine]:
    """The lines for an entry. Paths are relative to the working directory or the home folder."""
    skill = entry.skill
    yield PreviewLine("title", clean(entry.name))
    if skill is not None:
        yield PreviewLine("about", clean(skill.description, 2_000))
    yield PreviewLine("blank", "")
    yield PreviewLine("fact", clean(short(entry.path, place), 2_000), "path")
    if entry.shadowed is not None:
        yield PreviewLine("fact", clean(short(entry.shadowed.winner.path, place), 2_000), "shadowed by")
    if skill is not None:
        yield PreviewLine("fact", clean(f"{skill.scope}, from {skill.source}"), "scope")
        yield PreviewLine("fact", f"{skill.mode}{'' if skill.trusted else ', the project is not trusted'}", "mode")
        for label, value in (("version", skill.version), ("license", skill.license), ("needs", skill.compatibility)):
            if value:
                yield PreviewLine("fact", clean(value), label)
        if skill.allowed_tools is not None:
            yield PreviewLine("fact", clean(", ".join(skill.allowed_tools) or "none"), "tools")
    for note in entry.notes:
        line = f" (line {note.line})" if note.line else ""
        yield PreviewLine(
            "note", clean(f"{note.message}{line}{f'; {note.hint}' if note.hint else ''}", 2_000), note.severity
        )
    if os.path.basename(entry.path) != SKILL_FILE:
        return
    yield from _files(os.path.dirname(entry.path), entry.skill.inner if entry.skill is not None else ())
    yield PreviewLine("blank", "")
    yield from _body(entry)


def short(path: str, place: Place) -> str:
    """Shorten a path below the working directory, or below the home folder with `~`."""
    for folder, instead in ((place.cwd, ""), (place.home, "~/")):
        if folder and path.startswith(folder.rstrip("/") + "/"):
            return instead + path[len(folder.rstrip("/")) + 1 :]
    return path


def _files(folder: str, inner: Collection[str]) -> Iterator[PreviewLine]:
    listing = list_files(folder, FILES, limits.SKILL_FILE_BYTES, inner)
    more = " and more" if listing.truncated else ""
    if listing.files:
        yield PreviewLine("file", clean(", ".join(listing.files), 2_000) + more, "files")


def _body(entry: PickerEntry) -> Iterator[PreviewLine]:
    real = entry.skill.real_path if entry.skill is not None else entry.path
    folder, file = os.path.split(real)
    try:
        data = read_file(folder, file, BYTES).data
    except ResourceError as error:
        yield PreviewLine("note", clean(f"the text cannot be shown: {error}"), "note")
        return
    fences = find_fences(data, complete=True)
    whole = data[fences.body if isinstance(fences, Fences) and entry.skill is not None else 0 :]
    lines = from_utf8(whole).strip("\r\n").splitlines()
    in_code = False
    for line in lines[:LINES]:
        text = blank_controls(line.expandtabs(4)[:1_000])  # with its indentation
        fence = text.lstrip().startswith(("```", "~~~"))
        role: Role = "code" if in_code or fence else "heading" if text.startswith("#") else "text"
        in_code = in_code != fence
        yield PreviewLine(role, text)
    if len(lines) > LINES or len(data) >= BYTES:
        yield PreviewLine("note", "the rest is not shown; `metier load` prints all of it", "more")
