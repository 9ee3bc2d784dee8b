"""What was found becomes what is offered: filters, switches, and one rule for names that several skills bear.

Nothing is lost on the way. A skill that a filter leaves out is among the skipped, one that loses its name to another is
shadowed and still loads by its path, and a skill that is switched off gives its name to the next in line.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from metier.catalog.discover import Found
from metier.catalog.modes import Modes
from metier.errors import AmbiguousSkill, InvalidSkill, SkillNotFound
from metier.hosts.profiles import Profile
from metier.hosts.roots import Place
from metier.model import SCOPE_ORDER, Counts, Diagnostic, Root, Shadowed, Skill, Skipped


@dataclass(frozen=True, slots=True)
class Catalog:
    """An immutable view of the skills of one place under one profile."""

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
        """The one skill of that name; ambiguity is an error with the paths that decide it."""
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
        """The skill at a path of the catalog, shadowed ones included; no other path is ever looked at."""
        wanted = os.path.normpath(os.path.join(self.place.cwd, path))
        everything = (*self.skills, *(entry.skill for entry in self.shadowed))
        for skill in everything:
            if wanted in (skill.path, skill.dir, skill.real_path):
                return skill
        if wanted in self.failed or os.path.join(wanted, "SKILL.md") in self.failed:
            file = wanted if wanted in self.failed else os.path.join(wanted, "SKILL.md")
            raise InvalidSkill(file, [d for d in self.diagnostics if d.path == file and d.severity == "error"])
        raise SkillNotFound(path, why="the path is not in the catalog")

    def not_found(self, name: str) -> SkillNotFound | InvalidSkill:
        """Why there is no such skill: it is broken, it was left out, or it was never there."""
        for file in self.failed:
            if os.path.basename(os.path.dirname(file)) == name:
                return InvalidSkill(file, [d for d in self.diagnostics if d.path == file and d.severity == "error"])
        left_out = next((skipped for skipped in self.skipped if skipped.name == name), None)
        why = f"{left_out.path} was left out: {left_out.detail or left_out.reason}" if left_out else ""
        reason = left_out.reason if left_out else ""
        names = list(self.by_name)
        import difflib  # costs as much as a whole scan of a small catalog, and only an error needs it

        return SkillNotFound(name, names, difflib.get_close_matches(name, names, 3), why, reason)


def build_catalog(
    profile: Profile,
    place: Place,
    roots: tuple[Root, ...],
    found: Found,
    state: Modes,
    diagnostics: Iterable[Diagnostic] = (),
) -> Catalog:
    """Apply filters, switches and the collision rule to what a scan found."""
    notes = [*diagnostics, *found.diagnostics, *state.diagnostics]
    skipped = list(found.skipped)
    skills = _switch(_filter(found.skills, profile, skipped), state)
    if profile.policy.trust == "required" and not state.trusted:
        skills = _distrust(skills, place, notes)
    winners, shadowed = _settle_names(skills, profile, notes)
    ordered = _order(winners, profile)
    truncated = bool(profile.catalog.max_skills) and len(ordered) > profile.catalog.max_skills
    if truncated:
        limit = profile.catalog.max_skills
        notes.append(
            Diagnostic(
                "too-many-skills", "warning", f"{len(ordered):,} skills, the limit is {limit:,}", place.project,
                hint="raise max_skills, or leave some out",
            )
        )  # fmt: skip
        skipped += (Skipped(s.path, "too-many", f"more than {limit} skills", s.name) for s in ordered[limit:])
        ordered = ordered[:limit]
    by_name = index_by_name(ordered)
    notes.sort(key=lambda d: (d.path, d.line, d.code))
    skipped.sort(key=lambda s: s.path)
    return Catalog(
        profile, place, roots, tuple(ordered), tuple(shadowed), tuple(skipped), tuple(sorted(found.failed)),
        tuple(notes), found.per_root, truncated, by_name,
    )  # fmt: skip


def index_by_name(skills: Iterable[Skill]) -> dict[str, tuple[Skill, ...]]:
    named: dict[str, tuple[Skill, ...]] = {}
    for skill in skills:
        named[skill.name] = (*named.get(skill.name, ()), skill)
    return named


def _filter(skills: list[Skill], profile: Profile, skipped: list[Skipped]) -> list[Skill]:
    include, ignore = profile.filters.include, profile.filters.ignore
    if not include and not ignore:
        return skills
    kept: list[Skill] = []
    for skill in skills:
        unwanted = next((glob for glob in ignore if fnmatchcase(skill.name, glob)), "")
        if unwanted:
            skipped.append(Skipped(skill.path, "ignored", f"the name matches {unwanted}", skill.name))
        elif include and not any(fnmatchcase(skill.name, glob) for glob in include):
            skipped.append(Skipped(skill.path, "not-included", "the name matches no glob to include", skill.name))
        else:
            kept.append(skill)
    return kept


def _switch(skills: list[Skill], state: Modes) -> list[Skill]:
    if not any(state.modes.values()):
        return skills
    return [skill if (mode := state.mode(skill)) == skill.mode else replace(skill, mode=mode) for skill in skills]


def _distrust(skills: list[Skill], place: Place, notes: list[Diagnostic]) -> list[Skill]:
    """Skills that came with the project are for people only until it is trusted; those of the user stay as they are."""
    inside = place.project.rstrip("/") + "/"
    judged = [
        skill if skill.scope == "user" or skill.root.explicit or not skill.path.startswith(inside)
        else replace(skill, trusted=False)
        for skill in skills
    ]  # fmt: skip
    count = sum(not skill.trusted for skill in judged)
    if count:
        message = f"{count:,} skills of this project are not shown to the model, because it is not trusted"
        notes.append(Diagnostic("untrusted", "warning", message, place.project, hint="run `metier trust` to trust it"))
    return judged


def _settle_names(skills: list[Skill], profile: Profile, notes: list[Diagnostic]) -> tuple[list[Skill], list[Shadowed]]:
    """One winner a name, by the profile's rule; those that are switched off or not trusted stand back."""
    rule = profile.collisions.rule
    if rule == "ambiguous":
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
        # "first" and "precedence" are the order of the roots, then of paths; "last" is the last path of all.
        winner = max(standing, key=lambda skill: skill.path) if rule == "last" else _foremost(standing)
        first[name] = winner
        for loser in sorted((s for s in candidates if s is not winner), key=lambda s: s.path):
            identical = profile.collisions.copies == "content" and _same_content(winner, loser)
            shadowed.append(Shadowed(loser, winner, identical))
            if not identical and loser.enabled:
                message = f"{name!r} is also the name of {winner.path}, which counts"
                hint = f"load it by its path, or rename one; {loser.path} is shadowed"
                notes.append(Diagnostic("collision", "warning", message, loser.path, hint=hint))
    shadowed.sort(key=lambda entry: (entry.skill.name, entry.skill.path))
    return list(first.values()), shadowed


def _foremost(skills: list[Skill]) -> Skill:
    """The best by precedence: skills come in the order of their roots, so only those of the first root compete."""
    root = skills[0].root
    return min((skill for skill in skills if skill.root is root), key=lambda skill: skill.path)


def _same_content(one: Skill, other: Skill) -> bool:
    """Bodies are compared only where name, size and frontmatter already agree."""
    if one.size != other.size or one.frontmatter != other.frontmatter:
        return False
    try:
        digests = {_digest(skill.real_path) for skill in (one, other)}
    except OSError:
        return False
    return len(digests) == 1


def _digest(path: str) -> str:
    import hashlib

    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _order(skills: list[Skill], profile: Profile) -> list[Skill]:
    if profile.catalog.order == "found":
        return skills
    if profile.catalog.order == "folded-name":
        return sorted(skills, key=lambda s: (s.name.lower(), s.name, s.path))
    return sorted(skills, key=lambda s: (s.name, SCOPE_ORDER.get(s.root.scope, 3), s.path))
