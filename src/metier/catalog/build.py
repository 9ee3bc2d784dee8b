"""Builds the catalog from what a scan found: filters, modes, and the profile's rule for skills of the same name.

Every skill that was found is accounted for. A skill that a filter leaves out is skipped, a skill that loses its name to
another is shadowed and still loads by its path, and a skill that is off leaves its name to the next one.
"""

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Final

from metier import limits
from metier.catalog.discover import Found, scan
from metier.catalog.modes import Modes
from metier.errors import AmbiguousSkill, ConfigError, InvalidSkill, SkillNotFound
from metier.files.text import printable
from metier.hosts.profiles import Profile
from metier.hosts.roots import Place, in_project
from metier.hosts.roots import switched_off as switched_off_roots
from metier.values.skill import SCOPE_ORDER, SKILL_FILE, Counts, Diagnostic, Root, Shadowed, Skill, Skipped
from metier.values.value import Value, replace

_name_of: Final = attrgetter("name")
_path_of: Final = attrgetter("path")

_GLOB: Final = 1000
"""Characters of one glob, and its alternatives. Each pair of braces multiplies them."""
_OFF: Final = "source-off"
"""Why a file is left out: its root is switched off, or the one that takes its name."""
_CHOSEN: Final = frozenset(("ignored", "not-included", "ignored-folder", "same-file", _OFF))
"""The reasons for leaving a file out that somebody chose, and the one that leaves nothing out."""

Findings = dict[str, str]
"""What was logged about each file."""


class Catalog(Value):
    """The skills of one place under one profile. It never changes; a refresh builds a new one."""

    profile: Profile
    place: Place
    roots: tuple[Root, ...]
    skills: tuple[Skill, ...]
    shadowed: tuple[Shadowed, ...]
    skipped: tuple[Skipped, ...]
    failed: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
    per_root: dict[str, int]
    truncated: bool
    by_name: Mapping[str, tuple[Skill, ...]]

    @property
    def counts(self) -> Counts:
        return Counts(len(self.skills), len(self.shadowed), len(self.skipped), len(self.failed))

    @property
    def visible(self) -> Iterator[Skill]:
        """The skills that the model may see and load."""
        return (skill for skill in self.skills if skill.visible)

    def find(self, name: str) -> Skill:
        """Return the skill with this name. Raises `SkillNotFound`, `InvalidSkill` or `AmbiguousSkill`."""
        candidates = self.by_name.get(name, ())
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            enabled = [skill for skill in candidates if skill.enabled]
            if len(enabled) == 1:
                return enabled[0]
            raise AmbiguousSkill(name, [skill.path for skill in candidates])
        raise self.not_found(name)

    def find_path(self, path: str) -> Skill:
        """Return the skill whose SKILL.md or folder has this path, shadowed ones included.

        Raises `SkillNotFound` or `InvalidSkill`. A path outside of the catalog is never opened.
        """
        wanted = os.path.normpath(os.path.join(self.place.cwd, path))
        everything = (*self.skills, *(entry.skill for entry in self.shadowed))
        for skill in everything:
            if wanted in (skill.path, skill.dir, skill.real_path):
                return skill
        for file in (wanted, os.path.join(wanted, SKILL_FILE)):
            if file in self.failed:
                raise self._invalid(file)
        raise SkillNotFound(path, why="the path is not in the catalog")

    def not_found(self, name: str) -> SkillNotFound | InvalidSkill:
        """Return the error that says why there is no such skill: it is broken, it was left out, or it is unknown."""
        for file in self.failed:
            if os.path.basename(os.path.dirname(file)) == name:
                return self._invalid(file)
        left_out = next((skipped for skipped in self.skipped if skipped.name == name), None)
        why = f"{left_out.path} was left out: {left_out.detail or left_out.reason}" if left_out else ""
        reason = left_out.reason if left_out else ""
        names = list(self.by_name)
        import difflib  # as slow to import as a small catalog is to scan, and only this error needs it

        return SkillNotFound(name, names, difflib.get_close_matches(name, names, 3), why, reason)

    def _invalid(self, file: str) -> InvalidSkill:
        return InvalidSkill(file, [d for d in self.diagnostics if d.path == file and d.severity == "error"])


def build_catalog(
    profile: Profile,
    place: Place,
    roots: tuple[Root, ...],
    found: Found,
    modes: Modes,
    diagnostics: Iterable[Diagnostic] = (),
) -> Catalog:
    """Build the catalog of what a scan found. `diagnostics` are those of the settings and the roots."""
    notes = [*diagnostics, *found.diagnostics, *modes.diagnostics]
    skipped = list(found.skipped)
    located = _locate_linked(_separate(found, roots, profile.discovery.nested))
    skills = _filter(located, profile, skipped)
    if any(modes.by_level.values()):
        skills = [skill if (mode := modes.mode(skill)) == skill.mode else replace(skill, mode=mode) for skill in skills]
    if profile.policy.trust == "required" and not modes.trusted:
        skills = _distrust(skills, place, notes)
    winners, shadowed = _settle_names(skills, profile, notes)
    ordered = _order(winners, profile)
    limit = profile.catalog.max_skills
    truncated = bool(limit) and len(ordered) > limit
    if truncated:
        message = f"there are {len(ordered):,} skills; only the first {limit:,} are used"
        hint = "raise `catalog.max_skills`, or leave some out with `filters.ignore`"
        notes.append(Diagnostic("too-many-skills", "warning", message, path=place.project, hint=hint))
        skipped += (Skipped(s.path, "too-many", f"more than {limit} skills", s.name) for s in ordered[limit:])
        ordered = ordered[:limit]
    notes.sort(key=lambda d: (d.path, d.line, d.code))
    skipped.sort(key=lambda s: s.path)
    return Catalog(
        profile=profile,
        place=place,
        roots=roots,
        skills=tuple(ordered),
        shadowed=tuple(shadowed),
        skipped=tuple(skipped),
        failed=tuple(sorted(found.failed)),
        diagnostics=tuple(notes),
        per_root=found.per_root,
        truncated=truncated,
        by_name=by_name(ordered),
    )


def by_name(skills: Sequence[Skill]) -> Mapping[str, tuple[Skill, ...]]:
    """Skills by name, in the order in which they come."""
    named = {skill.name: (skill,) for skill in skills}
    if len(named) == len(skills):
        return named
    several: dict[str, tuple[Skill, ...]] = {}
    for skill in skills:
        several[skill.name] = (*several.get(skill.name, ()), skill)
    return several


def _separate(found: Found, roots: tuple[Root, ...], nested: bool) -> list[Skill]:
    """The skills, each with the folders inside it that are other skills, so that no file belongs to two of them.

    There are such folders below a root that is itself a skill, and where hosts let skills nest. A broken skill below
    such a root is another skill, too; inside of a skill it may as well be a template that belongs to it.
    """
    tops = {f"{root.path}/" for root in roots}
    if not nested and _around(tops).isdisjoint(map(_path_of, found.skills)):
        return found.skills  # almost always, and at a fraction of the cost of looking for them
    inner: dict[str, list[str]] = {}
    folders = {f"{os.path.dirname(path)}/" for skill in found.skills for path in (skill.path, skill.real_path)}
    broken = {f"{os.path.dirname(file)}/" for file in found.failed} - folders
    above: list[str] = []
    for folder in sorted(folders | broken):
        while above and not folder.startswith(above[-1]):
            above.pop()
        if folder in broken and (not above or above[-1] not in tops):
            continue
        if above:
            inner.setdefault(above[-1], []).append(folder[len(above[-1]) : -1])
        above.append(folder)
    if not inner:
        return found.skills

    def inside(skill: Skill) -> tuple[str, ...]:
        places = dict.fromkeys(f"{os.path.dirname(path)}/" for path in (skill.path, skill.real_path))
        return tuple(folder for place in places for folder in inner.get(place, ()))

    return [replace(skill, inner=others) if (others := inside(skill)) else skill for skill in found.skills]


def _around(roots: Iterable[str]) -> set[str]:
    """The paths that the SKILL.md of a skill has if there is a root in its folder, or its folder is one."""
    parts = (root.split("/") for root in roots)
    return {"/".join((*folders[:depth], SKILL_FILE)) for folders in parts for depth in range(1, len(folders))}


def _locate_linked(skills: list[Skill]) -> list[Skill]:
    """Note the folders of the skills whose SKILL.md is a link: their other files are not where that link leads."""
    linked = {
        number: folder
        for number, skill in enumerate(skills)
        if skill.path != skill.real_path and (folder := os.path.realpath(skill.dir)) != os.path.dirname(skill.real_path)
    }
    if not linked:
        return skills
    return [
        replace(skill, linked_folder=linked[number]) if number in linked else skill
        for number, skill in enumerate(skills)
    ]


def _filter(skills: list[Skill], profile: Profile, skipped: list[Skipped]) -> list[Skill]:
    include, ignore = profile.filters.include, profile.filters.ignore
    if not include and not ignore:
        return skills
    kept: list[Skill] = []
    for skill in skills:
        unwanted = next((glob for glob in ignore if _matches(skill.name, glob)), "")
        if unwanted:
            skipped.append(Skipped(skill.path, "ignored", f"the name matches {unwanted}", skill.name))
        elif include and not any(_matches(skill.name, glob) for glob in include):
            skipped.append(Skipped(skill.path, "not-included", "the name matches no glob to include", skill.name))
        else:
            kept.append(skill)
    return kept


def _distrust(skills: list[Skill], place: Place, notes: list[Diagnostic]) -> list[Skill]:
    """Hide the skills of an untrusted project from the model. The user's own skills stay as they are."""

    def trusted(skill: Skill) -> bool:
        return skill.root.explicit or not in_project(skill.path, skill.root, place)

    judged = [skill if trusted(skill) else replace(skill, trusted=False) for skill in skills]
    count = sum(not skill.trusted for skill in judged)
    if count:
        message = f"{count:,} skills of this project are hidden from the model, because the project is not trusted"
        hint = "run `metier trust` to trust it"
        notes.append(Diagnostic("untrusted", "warning", message, path=place.project, hint=hint))
    return judged


def _settle_names(skills: list[Skill], profile: Profile, notes: list[Diagnostic]) -> tuple[list[Skill], list[Shadowed]]:
    """Choose one skill per name by the profile's rule. A skill that is off or untrusted loses to any other."""
    rule = profile.collisions.rule
    if rule == "ambiguous" or len(set(map(_name_of, skills))) == len(skills):
        return skills, []
    first: dict[str, Skill] = {}
    rivals: dict[str, list[Skill]] = {}
    for skill in skills:
        if first.setdefault(skill.name, skill) is not skill:
            rivals.setdefault(skill.name, [first[skill.name]]).append(skill)
    shadowed: list[Shadowed] = []
    for name, candidates in rivals.items():
        standing = [skill for skill in candidates if skill.enabled] or candidates
        standing = [skill for skill in standing if skill.trusted] or standing
        # "first" and "precedence" go by the order of the roots, then by path; "last" takes the last path of all.
        winner = max(standing, key=lambda skill: skill.path) if rule == "last" else _foremost(standing)
        first[name] = winner
        for loser in sorted((s for s in candidates if s is not winner), key=lambda s: s.path):
            identical = profile.collisions.copies == "content" and _same_content(winner, loser)
            shadowed.append(Shadowed(loser, winner, identical))
            if not identical and loser.enabled:
                message = f"{winner.path} has the same name, {name!r}, and is used instead"
                hint = f"rename one of the two, or load this one by its path: {loser.path}"
                notes.append(Diagnostic("collision", "warning", message, path=loser.path, hint=hint))
    shadowed.sort(key=lambda entry: (entry.skill.name, entry.skill.path))
    return list(first.values()), shadowed


def _foremost(skills: list[Skill]) -> Skill:
    """Return the first skill by path of the first root. Skills come in the order of their roots."""
    root = skills[0].root
    return min((skill for skill in skills if skill.root is root), key=lambda skill: skill.path)


def _same_content(one: Skill, other: Skill) -> bool:
    """Whether two files are equal. They are read only if their sizes and frontmatters are equal."""
    if one.size != other.size or one.size > limits.SKILL_FILE_BYTES or one.frontmatter != other.frontmatter:
        return False
    try:
        with open(one.real_path, "rb") as first, open(other.real_path, "rb") as second:
            return first.read() == second.read()
    except OSError:
        return False


def _order(skills: list[Skill], profile: Profile) -> list[Skill]:
    if profile.catalog.order == "found":
        return skills
    if profile.catalog.order == "folded-name":
        return sorted(skills, key=lambda s: (s.name.lower(), s.name, s.path))
    if profile.collisions.rule != "ambiguous":
        return sorted(skills, key=_name_of)  # no two are the same
    return sorted(skills, key=lambda s: (s.name, SCOPE_ORDER.get(s.root.scope, 3), s.path))


# --- globs on names ---


def _matches(name: str, glob: str) -> bool:
    """Whether a name matches a glob. Case matters. Raises `ConfigError` for a glob with too many alternatives."""
    return any(fnmatchcase(name, one) for one in _alternatives(glob))


@functools.lru_cache(maxsize=256)
def _alternatives(glob: str) -> tuple[str, ...]:
    """The globs without braces that a glob stands for. Braces without a comma or a partner are ordinary characters."""
    if len(glob) > _GLOB:
        raise ConfigError(f"the glob {glob[:60]!r} has more than {_GLOB:,} characters", key="filters")
    done: list[str] = []
    waiting = [glob]
    while waiting:
        one = waiting.pop()
        group = _first_group(one)
        if group is None:
            done.append(one)
            continue
        start, end, parts = group
        waiting += (one[:start] + part + one[end:] for part in reversed(parts))
        if len(done) + len(waiting) > _GLOB:
            raise ConfigError(f"the glob {glob[:60]!r} has more than {_GLOB:,} alternatives", key="filters")
    return tuple(done)


def _first_group(glob: str) -> tuple[int, int, list[str]] | None:
    """The first braces with a comma: where they start and end, and what is between the commas."""
    start = glob.find("{")
    while start >= 0:
        depth, parts, begin = 0, list[str](), start + 1
        for at in range(start, len(glob)):
            depth += (glob[at] == "{") - (glob[at] == "}")
            if depth == 0 or (depth == 1 and glob[at] == ","):
                parts.append(glob[begin:at])
                begin = at + 1
            if depth == 0:
                break
        if depth == 0 and len(parts) > 1:
            return start, begin, parts
        start = glob.find("{", start + 1)
    return None


# --- switched-off roots ---


def hide_switched_off(found: Found, profile: Profile, place: Place, trusted: bool) -> None:
    """Move the skills that a switched-off root hides to the skipped ones, and add its own skills there, too.

    This is for hosts that settle names first and look at the switches then: the first root that has a name takes it, on
    or off. Folders that the caller named and custom directories come after that and are not hidden.
    """
    left_out, order = switched_off_roots(profile, place)
    if not left_out:
        return
    off, _ = scan(profile, place, left_out, trusted=trusted)
    ranks = {path: rank for rank, path in enumerate(order)}
    first: dict[str, Skill] = {}
    for skill in sorted(filter(_takes_part, (*found.skills, *off.skills)), key=lambda one: ranks[one.root.path]):
        first.setdefault(skill.name, skill)
    unused = {skill.path for skill in off.skills}
    kept: list[Skill] = []
    for skill in found.skills:
        winner = first[skill.name] if _takes_part(skill) else skill
        if winner.path not in unused or winner is skill:
            kept.append(skill)
            continue
        message = f"{winner.path} has the same name, {skill.name!r}, and comes first, but its source is switched off"
        found.skipped.append(Skipped(skill.path, _OFF, message, skill.name))
        hint = "switch its source on, or rename one of the two"
        found.diagnostics.append(Diagnostic("collision", "warning", message, path=skill.path, hint=hint))
    found.skills = kept
    known = {skill.real_path for skill in kept} | {entry.path for entry in found.skipped}
    for skill in off.skills:
        if not {skill.path, skill.real_path} & known:
            found.skipped.append(Skipped(skill.path, _OFF, f"the source {skill.source} is switched off", skill.name))


def _takes_part(skill: Skill) -> bool:
    return not skill.root.explicit and skill.source != "custom"


# --- the log ---


def log_left_out(catalog: Catalog, known: Findings) -> Findings:
    """Log the files that a scan left out and `known` lacks, one warning for each. Returns what the next scan knows.

    The log is for programs that use the library. The command line shows the same findings itself, so nothing is printed
    unless the program sets logging up.
    """
    found = _findings(catalog)
    fresh = [(path, message) for path, message in found.items() if known.get(path) != message]
    if fresh:
        import logging  # as slow to import as a small catalog is to scan, and most have nothing to log

        log = logging.getLogger("metier.catalog")
        if not log.handlers:
            log.addHandler(logging.NullHandler())
        for path, message in fresh:
            log.warning("%s: %s", printable(path), printable(message))
    return found


def _findings(catalog: Catalog) -> Findings:
    found = {entry.path: f"skipped: {entry.detail}" for entry in catalog.skipped if entry.reason not in _CHOSEN}
    failed = set(catalog.failed)
    for note in catalog.diagnostics:
        if note.code == "collision" or (note.severity == "error" and note.path in failed):
            found.setdefault(note.path, f"skipped: {note.message}")
    return found
