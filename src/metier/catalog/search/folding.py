"""Folds copies of a skill into one hit, so that eight results are eight different skills.

Skills of one name with the same description are copies, and so are skills of other names with the same long one: a
short description, such as "Ships a version.", is too little to tell. The best of them is the hit, and it lists the
others.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from metier.model import Skill
from metier.results import Hit, LikeIt

LONG: Final = 80
"""The characters from which a description is so particular that two skills do not share it by chance."""


def fold(hits: Iterable[Hit]) -> list[Hit]:
    """The first hit of each group of copies, with the others in `like`."""
    first: dict[tuple[str, str], Hit] = {}
    for hit in hits:
        key = _key(hit.skill)
        known = first.get(key)
        if known is None or hit.reason in ("exact_path", "exact_name"):
            first[key if known is None else (hit.skill.path, "")] = hit
        else:
            copy = LikeIt(hit.skill.name, hit.skill.path)
            first[key] = replace(known, like=(*known.like, copy))
    return list(first.values())


def _key(skill: Skill) -> tuple[str, str]:
    about = " ".join(skill.description.lower().split())
    return ("" if len(about) >= LONG else skill.name, about)
