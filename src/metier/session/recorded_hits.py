"""The hits of a search as data, so that a replay shows what was found then without searching again."""

from collections.abc import Callable, Sequence
from typing import Any

from metier.model import Skill
from metier.results import Hit, LikeIt


def dump(hit: Hit, version: int) -> list[object]:
    """A hit for the record. Before version 6 a hit was only path, score, reason and words."""
    row: list[object] = [hit.skill.path, hit.score, hit.reason, list(hit.matched)]
    return [*row, hit.details()] if version > 5 else row


def restore(row: Sequence[Any], find: Callable[[str], Skill]) -> Hit:
    """The hit of such a row. `find` gives the skill at a path."""
    path, score, reason, matched, *more = row
    details: dict[str, Any] = more[0] if more else {}
    return Hit(
        find(path),
        score,
        reason,
        tuple(matched),
        fit=details.get("fit", ""),
        file=details.get("file", ""),
        shadowed_by=details.get("shadowed_by", ""),
        like=tuple(LikeIt(**one) for one in details.get("like", ())),
    )
