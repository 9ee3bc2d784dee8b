"""Turns a catalog into JSON and back, and compares two catalogs.

`dump` writes everything that a replay needs to build an equal catalog without the disk. Records keep what it wrote, so
its format never changes: each value is a row, and the tuples below name the columns. A new column goes to the end.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from metier.catalog.build import Catalog, Names
from metier.hosts import profiles
from metier.hosts.profiles import describe
from metier.hosts.roots import Place
from metier.model import Changes, Diagnostic, JsonObject, Root, Shadowed, Skill, Skipped

Row = list[Any]
"""The values of one dataclass in a fixed order."""

_PLACE: Final = ("cwd", "home", "project")
_ROOT: Final = ("path", "scope", "source", "priority", "require_description", "depth", "explicit", "foreign")
_SKILL: Final = (
    "name",
    "description",
    "path",
    "real_path",
    "root",
    "mtime_ns",
    "size",
    "frontmatter",
    "model_invocable",
    "user_invocable",
    "mode",
    "trusted",
    "linked_folder",
    "inner",
)
_skill_values: Final = attrgetter(*_SKILL)
_SKIPPED: Final = ("path", "reason", "detail", "name")
_DIAGNOSTIC: Final = ("code", "severity", "message", "path", "line", "column", "hint")
_REASON: Final = (*_DIAGNOSTIC, "reason")
"""The columns of a diagnostic that has a reason. Older records have none."""


def dump(catalog: Catalog) -> str:
    """Write the whole catalog as one line of JSON."""
    roots = _all_roots(catalog)
    numbers = {root: number for number, root in enumerate(roots)}
    import json

    return json.dumps(
        {
            "profile": describe(catalog.profile),
            "place": _row(catalog.place, _PLACE),
            "roots": [_trimmed(_row(root, _ROOT), _ROOT.index("foreign")) for root in roots],
            "skills": [_skill_row(skill, numbers) for skill in catalog.skills],
            "shadowed": [[_skill_row(e.skill, numbers), e.winner.path, e.identical] for e in catalog.shadowed],
            "skipped": [_row(skipped, _SKIPPED) for skipped in catalog.skipped],
            "failed": list(catalog.failed),
            "diagnostics": [_row(d, _REASON if d.reason else _DIAGNOSTIC) for d in catalog.diagnostics],
            "truncated": catalog.truncated,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def restore(text: str) -> Catalog:
    """Build the catalog that `dump` wrote."""
    import json

    data: JsonObject = json.loads(text)
    roots = [Root(**_named(row, _ROOT)) for row in data["roots"]]
    skills = tuple(_skill(row, roots) for row in data["skills"])
    by_path = {skill.path: skill for skill in skills}
    return Catalog(
        profile=profiles.restore(data["profile"]),
        place=Place(env={}, **_named(data["place"], _PLACE)),
        roots=tuple(roots),
        skills=skills,
        shadowed=tuple(
            Shadowed(_skill(row, roots), by_path[winner], identical) for row, winner, identical in data["shadowed"]
        ),
        skipped=tuple(Skipped(**_named(row, _SKIPPED)) for row in data["skipped"]),
        failed=tuple(data["failed"]),
        diagnostics=tuple(Diagnostic(**_named(row, _REASON)) for row in data["diagnostics"]),
        per_root={},
        truncated=data["truncated"],
        by_name=Names(skills),
    )


def names_by_path(text: str) -> dict[str, str]:
    """The names of the skills in what `dump` wrote, by path, also of those that a name conflict leaves out."""
    import json

    data: JsonObject = json.loads(text)
    rows: list[Row] = [*data["skills"], *(row for row, _, _ in data["shadowed"])]
    name, path = _SKILL.index("name"), _SKILL.index("path")
    return {row[path]: row[name] for row in rows}


def _all_roots(catalog: Catalog) -> list[Root]:
    """The roots of the catalog, then those that only a skill has."""
    known = set(catalog.roots)
    skills = (*catalog.skills, *(entry.skill for entry in catalog.shadowed))
    others = dict.fromkeys(skill.root for skill in skills if skill.root not in known)
    return [*catalog.roots, *others]


def _row(value: object, columns: Iterable[str]) -> Row:
    return [getattr(value, name) for name in columns]


def _skill_row(skill: Skill, numbers: Mapping[Root, int]) -> Row:
    """A row in which the root is its number among the roots."""
    row: Row = list(_skill_values(skill))
    row[_SKILL.index("root")] = numbers[skill.root]
    row[_SKILL.index("frontmatter")] = dict(skill.frontmatter)
    return _trimmed(row, _SKILL.index("linked_folder"))


def _trimmed(row: Row, least: int) -> Row:
    """The row without the empty columns at its end that came after the first version, which did not have them."""
    while len(row) > least and not row[-1]:
        row.pop()
    return row


def _named(row: Row, columns: Iterable[str]) -> JsonObject:
    # An older record has no value for the last columns, which then have their defaults.
    return dict(zip(columns, row, strict=False))


def _skill(row: Row, roots: list[Root]) -> Skill:
    values = _named(row, _SKILL)
    values["root"] = roots[values["root"]]
    values["inner"] = tuple(values.get("inner", ()))
    return Skill(**values)


def compare(old: Catalog, new: Catalog) -> Changes:
    """Return the names of the skills that were added, removed or changed."""
    # A scan keeps the objects of what did not change: nearly all of a large catalog.
    before, after = ({id(skill) for skill in catalog.skills} for catalog in (old, new))
    gone = {(skill.name, skill.path): skill for skill in old.skills if id(skill) not in after}
    added: list[str] = []
    changed: list[str] = []
    for skill in (skill for skill in new.skills if id(skill) not in before):
        known = gone.pop((skill.name, skill.path), None)
        if known is None:
            added.append(skill.name)
        elif _differs(known, skill):
            changed.append(skill.name)
    removed = [name for name, _ in gone]
    return Changes(tuple(sorted(added)), tuple(sorted(removed)), tuple(sorted(changed)))


def same(one: Catalog, other: Catalog) -> bool:
    """Whether two catalogs agree on everything except their skills, which `compare` compares."""
    return (one.shadowed, one.skipped, one.failed, one.diagnostics, one.roots) == (
        other.shadowed,
        other.skipped,
        other.failed,
        other.diagnostics,
        other.roots,
    )


def _differs(one: Skill, other: Skill) -> bool:
    if (one.mtime_ns, one.size, one.mode, one.real_path) != (other.mtime_ns, other.size, other.mode, other.real_path):
        return True
    if one.linked_folder != other.linked_folder:
        return True
    if one.trusted != other.trusted:
        return True
    return one.description != other.description or one.frontmatter != other.frontmatter
