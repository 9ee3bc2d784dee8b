"""What the picker shows: the skills of a catalog, of all scopes or of one, filtered by the query.

Names that match come first, the best at the top, then what ranked search finds, then descriptions with every word, then
names with the letters far apart. How well names match is up to the caller, because comparing letters needs Textual.

`preview` shows a skill as lines. The invariant: an entry and a line have no control character of a skill.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from metier import Skills, limits
from metier.catalog.build import Catalog
from metier.catalog.frontmatter import Fences, find_fences
from metier.catalog.modes import Level
from metier.errors import ResourceError
from metier.files.beneath import list_files, read_file
from metier.files.text import blank_controls, from_utf8, printable
from metier.values.skill import SCOPE_ORDER, Mode, Skill

ALL: Final = "all"

_FEWEST: Final = 3
"""Fewer letters are far apart in nearly every name, so they must stand together."""
_PLENTY: Final = 200
"""If so many names have the words as they are, those with the letters apart are not looked for."""
_MOST: Final = 500
"""How many names are compared for each letter that is typed, the shortest first."""

NameScore = Callable[[Sequence[str], str], float]
"""How well a name that has the letters matches the words of a query: 1 or more if well, less if by chance."""


@dataclass(frozen=True, slots=True, eq=False)
class PickerEntry:
    """One line of the picker."""

    skill: Skill
    name: str
    about: str
    scope: str
    tag: str
    """One word that the user should see before choosing, such as `off`."""
    text: str
    """The name and the description in lower case, for matching."""

    @classmethod
    def of(cls, skill: Skill) -> "PickerEntry":
        tag = skill.mode if skill.mode != "auto" else "" if skill.trusted else "untrusted"
        name, about = clean(skill.name), clean(skill.description, 2_000)
        return cls(skill, name, about, clean(skill.scope), tag, f"{name}\n{about}".casefold())


def whole_words(words: Sequence[str], name: str) -> float:
    return 1 if all(word in name.casefold() for word in words) else 0.5


def _with_letters(words: Sequence[str]) -> re.Pattern[str]:
    """Matches names that have the letters of each word in their order. It never goes back, so any name is quick."""
    apart = ("".join(f"[^{re.escape(letter)}]*+{re.escape(letter)}" for letter in word) for word in words)
    parts = (f".*{re.escape(word)}" if len(word) < _FEWEST else loose for word, loose in zip(words, apart, strict=True))
    return re.compile("".join(f"(?={part})" for part in parts))


class Picker:
    """The state of a picker. Only `refresh` changes it."""

    def __init__(self, skills: Skills, level: Level = "user") -> None:
        self.skills = skills
        self.level: Level = level
        self._catalog: Catalog | None = None
        self.scopes: dict[str, list[PickerEntry]] = {}
        """The entries of each scope, and of `all`."""
        self.refresh()

    def refresh(self) -> bool:
        """Take over the current catalog, and return whether it changed."""
        current = self.skills.catalog
        if current is self._catalog:
            return False
        self._catalog = current
        off: dict[str, list[Skill]] = {}
        for each in current.shadowed:
            if not each.skill.enabled:
                off.setdefault(each.winner.path, []).append(each.skill)
        # A skill that was switched off stays in the list, next to the one that replaced it, to switch it on again.
        entries = [PickerEntry.of(one) for skill in current.skills for one in (skill, *off.get(skill.path, ()))]
        scopes = sorted({entry.scope for entry in entries}, key=lambda scope: (SCOPE_ORDER.get(scope, 3), scope))
        self.scopes = {ALL: entries} | {name: [one for one in entries if one.scope == name] for name in scopes}
        return True

    def narrow(
        self, query: str, scope: str = ALL, ranked: Sequence[str] = (), score: NameScore = whole_words
    ) -> list[PickerEntry]:
        """Return the entries of a scope that match a query. `ranked` lists the paths that `rank` found for it."""
        pool = self.scopes.get(scope, [])
        words = query.casefold().split()
        if not words:
            return pool
        place = {path: number for number, path in enumerate(ranked)}
        named = [entry for entry in pool if all(word in entry.name.casefold() for word in words)]
        if max(map(len, words)) == 1:  # nearly every name has it
            named = [entry for entry in named if entry.text.startswith(words[0])]
        elif len(named) < _PLENTY:
            letters = _with_letters(words)
            named = [entry for entry in pool if letters.match(entry.name.casefold())]
        named.sort(key=lambda entry: len(entry.name))
        scored = [(score(words, entry.name), entry) for entry in named[:_MOST]]
        scored.sort(key=lambda one: (-one[0], place.get(one[1].skill.path, len(place))))
        near = [entry for found, entry in scored if found >= 1]
        far = [entry for found, entry in scored if found < 1]
        by_rank = sorted(
            (entry for entry in pool if entry.skill.path in place), key=lambda entry: place[entry.skill.path]
        )
        described = [entry for entry in pool if all(word in entry.text for word in words)]
        # Each entry once, at its best position.
        return list(dict.fromkeys((*near, *by_rank, *described, *far)))

    def rank(self, query: str, scope: str = ALL) -> list[str]:
        """Return the paths that ranked search finds, the best first. The first call may build the index.

        Weak matches count only if there are no others, because words in a description say more than they do.
        """
        limit = self.skills.profile.search.max_limit
        result = self.skills.search(query, limit=limit, scope=None if scope == ALL else scope)
        return [hit.skill.path for hit in result.results if hit.fit != "weak" or result.weak]

    def set(self, skill: Skill, mode: Mode) -> str:
        """Change the mode of a skill, and return a sentence about it."""
        mode = self.skills.set_mode(skill.path, mode, level=self.level).mode
        state = {"auto": "on", "pinned": "pinned: it comes first in every prompt"}.get(mode, mode)
        return f"{clean(skill.name)} is {state}"

    def name_or_path(self, skill: Skill) -> str:
        """How other commands refer to a skill: by its name, or by its path if another one has the same name."""
        rivals = self.skills.catalog.by_name.get(skill.name, ())
        return skill.name if len(rivals) == 1 and rivals[0].path == skill.path else skill.path


def clean(text: str, limit: int = 400) -> str:
    """Return text of a skill as one line without control characters, cut at a limit."""
    return printable(text[: limit * 4])[:limit]


# --- the preview ---

_BYTES: Final = 32 * 1024
"""How much of a file is read."""
_LINES: Final = 300
"""How much of it is shown."""
_FILES: Final = 40


def preview(skill: Skill) -> Iterator[tuple[str, str]]:
    """The lines for a skill, each with a label or `""`."""
    yield "", clean(skill.name)
    yield "", clean(skill.description, 2_000)
    yield "", ""
    yield "path", clean(skill.path, 2_000)
    yield "scope", clean(f"{skill.scope}, from {skill.source}")
    yield "mode", f"{skill.mode}{'' if skill.trusted else ', the project is not trusted'}"
    for label, value in (("version", skill.version), ("license", skill.license), ("needs", skill.compatibility)):
        if value:
            yield label, clean(value)
    if skill.allowed_tools is not None:
        yield "tools", clean(", ".join(skill.allowed_tools) or "none")
    listing = list_files(os.path.dirname(skill.path), _FILES, limits.SKILL_FILE_BYTES, skill.inner)
    if listing.files:
        yield "files", clean(", ".join(listing.files), 2_000) + (" and more" if listing.truncated else "")
    yield "", ""
    yield from _body(skill)


def _body(skill: Skill) -> Iterator[tuple[str, str]]:
    folder, file = os.path.split(skill.real_path)
    try:
        data = read_file(folder, file, _BYTES).data
    except ResourceError as error:
        yield "note", clean(f"the text cannot be shown: {error}")
        return
    fences = find_fences(data, complete=True)
    body = data[fences.body :] if isinstance(fences, Fences) else data
    lines = from_utf8(body).strip("\r\n").splitlines()
    for line in lines[:_LINES]:
        yield "", blank_controls(line.expandtabs(4)[:1_000])  # with its indentation
    if len(lines) > _LINES or len(data) >= _BYTES:
        yield "more", "the rest is not shown; `metier load` prints all of it"
