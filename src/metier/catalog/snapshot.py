"""A catalog as data, and two catalogs compared.

`dump` writes everything that a replay needs to build an equal catalog without the disk; `compare` says what was added,
removed or changed between two.
"""

import json
from dataclasses import fields
from typing import Any, cast

from metier.catalog.build import Catalog, index_by_name
from metier.hosts import profiles
from metier.hosts.profiles import describe
from metier.hosts.roots import Place
from metier.model import Changes, Diagnostic, Root, Shadowed, Skill, Skipped


def dump(catalog: Catalog) -> str:
    """The whole catalog as one line of JSON, from which `restore` makes an equal one without the disk."""
    roots = list(catalog.roots)
    everything = [*catalog.skills, *(entry.skill for entry in catalog.shadowed)]
    for skill in everything:
        if skill.root not in roots:
            roots.append(skill.root)
    index = {root: number for number, root in enumerate(roots)}
    return json.dumps(
        {
            "profile": describe(catalog.profile),
            "place": [catalog.place.cwd, catalog.place.home, catalog.place.project],
            "roots": [[getattr(root, item.name) for item in fields(root)] for root in roots],
            "skills": [_row(skill, index) for skill in catalog.skills],
            "shadowed": [[_row(e.skill, index), e.winner.path, e.identical] for e in catalog.shadowed],
            "skipped": [[s.path, s.reason, s.detail, s.name] for s in catalog.skipped],
            "failed": list(catalog.failed),
            "diagnostics": [[getattr(d, item.name) for item in fields(d)] for d in catalog.diagnostics],
            "truncated": catalog.truncated,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def _row(skill: Skill, index: dict[Root, int]) -> list[Any]:
    return [
        skill.name, skill.description, skill.path, skill.real_path, index[skill.root], skill.mtime_ns, skill.size,
        dict(skill.frontmatter), skill.model_invocable, skill.user_invocable, skill.mode, skill.trusted,
    ]  # fmt: skip


def restore(text: str) -> Catalog:
    """The catalog that `dump` wrote down."""
    data = json.loads(text)
    profile = profiles.restore(data["profile"])
    roots = [Root(*values) for values in data["roots"]]
    cwd, home, project = cast("list[str]", data["place"])

    def skill(row: list[Any]) -> Skill:
        name, description, path, real_path, number, *rest = row
        return Skill(name, description, path, real_path, roots[cast("int", number)], *rest)

    skills = tuple(skill(row) for row in data["skills"])
    by_path = {one.path: one for one in skills}
    by_name = index_by_name(skills)
    return Catalog(
        profile, Place(cwd, home, project, {}), tuple(roots), skills,
        tuple(Shadowed(skill(row), by_path[winner], identical) for row, winner, identical in data["shadowed"]),
        tuple(Skipped(*values) for values in data["skipped"]), tuple(data["failed"]),
        tuple(Diagnostic(*values) for values in data["diagnostics"]), {}, data["truncated"], by_name,
    )  # fmt: skip


def compare(old: Catalog, new: Catalog) -> Changes:
    """What a refresh changed, by name."""
    before = {(skill.name, skill.path): skill for skill in old.skills}
    after = {(skill.name, skill.path): skill for skill in new.skills}
    return Changes(
        tuple(sorted(name for name, _ in after.keys() - before.keys())),
        tuple(sorted(name for name, _ in before.keys() - after.keys())),
        tuple(sorted(key[0] for key in after.keys() & before.keys() if _differs(before[key], after[key]))),
    )


def same(one: Catalog, other: Catalog) -> bool:
    """Whether two catalogs with equal skills also agree on everything else."""
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
    if one.trusted != other.trusted:
        return True
    return one.description != other.description or one.frontmatter != other.frontmatter
