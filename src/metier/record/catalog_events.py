"""The events of a new catalog: what it has, which skill won each shared name, and which skills it leaves out.

Every skill that was found and is not offered has a warning with the reason, so that a record explains why a model never
heard of it. Lists that would be long are cut, and say so: the artifact of the catalog has everything.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from metier import limits
from metier.catalog.build import Catalog
from metier.record.events import Event, SkillCatalogUpdated, SkillWarning
from metier.values.value import Value, replace

_LISTED_BYTES: Final = 256 * limits.KIB
"""The size of a list in the event of a catalog."""
_LOSERS: Final = 20
"""How many of the skills that lost a name the event of a catalog lists."""
_EXCLUDED: Final = 100
"""How many of the skills that are left out have a warning of their own."""

R = TypeVar("R")


class _Collision(Value):
    """A name that several skills have."""

    name: str
    winner: str
    losers: list[str]


def of(catalog: Catalog, snapshot: str) -> list[Event]:
    """The events of a catalog whose artifact is `snapshot`."""
    collisions = _collisions(catalog)
    shown = _fitting(replace(one, losers=one.losers[:_LOSERS]) for one in collisions)
    updated = SkillCatalogUpdated(
        len(catalog.skills),
        _fitting(root.path for root in catalog.roots),
        profile=catalog.profile.name,
        collisions=tuple(one.as_dict() for one in shown),
        snapshot=snapshot,
        collided=len(collisions) if len(shown) < len(collisions) else None,
    )
    warnings = (
        SkillWarning("collision", f"{one.winner} counts, {', '.join(one.losers)} not", one.name) for one in shown
    )
    return [updated, *warnings, *_bounded(_excluded(catalog))]


def outside(catalog: Catalog, only: Collection[str]) -> list[Event]:
    """The warnings of a session that is limited to some skills: one for each skill that it leaves out."""
    detail = "the session is limited to other skills"
    left_out = (skill for skill in catalog.skills if skill.name not in only)
    return [*_bounded(SkillWarning("excluded", f"{one.path}: {detail}", one.name) for one in left_out)]


def _collisions(catalog: Catalog) -> list[_Collision]:
    """The names that several skills have, in the order of the catalog."""
    found: dict[str, _Collision] = {}
    for entry in catalog.shadowed:
        name = entry.skill.name
        found.setdefault(name, _Collision(name, entry.winner.path, [])).losers.append(entry.skill.path)
    return list(found.values())


def _excluded(catalog: Catalog) -> Iterator[SkillWarning]:
    """A warning for each skill that is invalid, that a rule leaves out, or that a person switched off or distrusts."""
    why: dict[str, str] = {}
    for found in catalog.diagnostics:
        if found.severity == "error":
            why.setdefault(found.path, found.message)
    for path in catalog.failed:
        name = os.path.basename(os.path.dirname(path))
        yield SkillWarning("invalid", f"{path}: {why.get(path, 'it is no valid skill')}", name)
    for skipped in catalog.skipped:
        if skipped.reason == "same-file":
            continue  # the skill is there by its other path
        yield SkillWarning("excluded", f"{skipped.path}: {skipped.detail or skipped.reason}", skipped.name or None)
    for skill in (*catalog.skills, *(entry.skill for entry in catalog.shadowed)):
        if not skill.enabled:
            yield SkillWarning("excluded", f"{skill.path}: it is switched off", skill.name)
        elif not skill.trusted:
            yield SkillWarning("excluded", f"{skill.path}: its project is not trusted", skill.name)


def _bounded(warnings: Iterable[SkillWarning]) -> Iterator[SkillWarning]:
    """The first warnings, and one that counts the rest."""
    rest = iter(warnings)
    yield from islice(rest, _EXCLUDED)
    left = sum(1 for _ in rest)
    if left:
        yield SkillWarning("excluded", f"{left:,} more skills are left out")


def _fitting(items: Iterable[R]) -> tuple[R, ...]:
    """The first items that fit into an event."""
    chosen: list[R] = []
    size = 0
    for item in items:
        size += len(repr(item))
        if size > _LISTED_BYTES:
            break
        chosen.append(item)
    return tuple(chosen)
