"""Turns a catalog into JSON and back, and compares two catalogs.

`dump` writes everything that a replay needs to build an equal catalog without the disk. Each value is a row, and the
columns are its fields. Records keep what it wrote, so another field is another version of the record.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec.structs import astuple

from metier.catalog.build import Catalog, by_name
from metier.hosts import profiles
from metier.hosts.profiles import describe
from metier.hosts.roots import Place
from metier.values.skill import Changes, Diagnostic, JsonObject, Root, Shadowed, Skill, Skipped

Row = Sequence[Any]
"""The values of one struct in the order of its fields."""

_PLACE: Final = ("cwd", "home", "project")
_SKILL: Final = Skill.__struct_fields__


def dump(catalog: Catalog) -> str:
    """Write the whole catalog as one line of JSON."""
    skills = (*catalog.skills, *(entry.skill for entry in catalog.shadowed))
    roots = list(dict.fromkeys((*catalog.roots, *(skill.root for skill in skills))))  # a skill may have another one
    numbers = {root: number for number, root in enumerate(roots)}
    import json

    return json.dumps(
        {
            "profile": describe(catalog.profile),
            "place": attrgetter(*_PLACE)(catalog.place),
            "roots": [astuple(root) for root in roots],
            "skills": [_skill_row(skill, numbers) for skill in catalog.skills],
            "shadowed": [[_skill_row(e.skill, numbers), e.winner.path, e.identical] for e in catalog.shadowed],
            "skipped": [astuple(skipped) for skipped in catalog.skipped],
            "failed": list(catalog.failed),
            "diagnostics": [astuple(diagnostic) for diagnostic in catalog.diagnostics],
            "truncated": catalog.truncated,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def restore(text: str) -> Catalog:
    """Build the catalog that `dump` wrote."""
    import json

    data: JsonObject = json.loads(text)
    roots = [Root(*row) for row in data["roots"]]
    skills = tuple(_skill(row, roots) for row in data["skills"])
    by_path = {skill.path: skill for skill in skills}
    return Catalog(
        profile=profiles.build(data["profile"]),
        place=Place(*data["place"], env={}),
        roots=tuple(roots),
        skills=skills,
        shadowed=tuple(
            Shadowed(_skill(row, roots), by_path[winner], identical) for row, winner, identical in data["shadowed"]
        ),
        skipped=tuple(Skipped(*row) for row in data["skipped"]),
        failed=tuple(data["failed"]),
        diagnostics=tuple(Diagnostic(*row) for row in data["diagnostics"]),
        per_root={},
        truncated=data["truncated"],
        by_name=by_name(skills),
    )


def names_by_path(text: str) -> dict[str, str]:
    """The names of the skills in what `dump` wrote, by path, also of those that a name conflict leaves out."""
    import json

    data: JsonObject = json.loads(text)
    rows: list[Row] = [*data["skills"], *(row for row, _, _ in data["shadowed"])]
    name, path = _SKILL.index("name"), _SKILL.index("path")
    return {row[path]: row[name] for row in rows}


def _skill_row(skill: Skill, numbers: Mapping[Root, int]) -> Row:
    """A row in which the root is its number among the roots."""
    row = list(astuple(skill))
    row[_SKILL.index("root")] = numbers[skill.root]
    row[_SKILL.index("frontmatter")] = dict(skill.frontmatter)
    return row


def _skill(row: Row, roots: list[Root]) -> Skill:
    values: JsonObject = dict(zip(_SKILL, row, strict=True))
    values["root"], values["inner"] = roots[values["root"]], tuple(values["inner"])
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
        elif _compared(known) != _compared(skill):
            changed.append(skill.name)
    removed = [name for name, _ in gone]
    return Changes(tuple(sorted(added)), tuple(sorted(removed)), tuple(sorted(changed)))


_other_parts: Final = attrgetter("shadowed", "skipped", "failed", "diagnostics", "roots")
_compared: Final = attrgetter(
    *("mtime_ns", "size", "mode", "real_path", "linked_folder", "trusted", "description", "frontmatter")
)


def same(one: Catalog, other: Catalog) -> bool:
    """Whether two catalogs agree on everything except their skills, which `compare` compares."""
    return _other_parts(one) == _other_parts(other)
