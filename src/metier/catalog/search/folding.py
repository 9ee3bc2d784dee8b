"""Folds copies of a skill into one hit, so that eight results are eight different skills.

A shadowed skill with the same description is a copy, and so is a skill of another name with the same long one: a short
description, such as "Ships a version.", is too little to tell. One of them is the hit, and it lists the others.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from metier.model import Skill
from metier.results import Hit, LikeIt

LONG: Final = 80
"""The characters from which a description is so particular that two skills do not share it by chance."""


def fold(hits: Iterable[Hit]) -> list[Hit]:
    """One hit of each group of copies, with the others in `like`: the first that no other skill shadows."""
    first: dict[tuple[str, str], Hit] = {}
    for hit in hits:
        key = _key(hit.skill)
        known = first.get(key)
        if known is None:
            first[key] = hit
        elif hit.reason in ("exact_path", "exact_name") or _both_offered(known, hit):
            first[hit.skill.path, ""] = hit
        else:
            kept, other = (hit, known) if known.shadowed_by and not hit.shadowed_by else (known, hit)
            copy = LikeIt(other.skill.name, other.skill.path)
            first[key] = replace(kept, like=(*known.like, copy))
    return list(first.values())


def _both_offered(one: Hit, other: Hit) -> bool:
    """Whether both have one name and neither is shadowed. Then only path and scope tell them apart."""
    return one.skill.name == other.skill.name and not one.shadowed_by and not other.shadowed_by


def _key(skill: Skill) -> tuple[str, str]:
    about = " ".join(skill.description.lower().split())
    return ("" if len(about) >= LONG else skill.name, about)
