"""The rules of a search that come before and after any ranking by words.

An exact path comes first, then an exact name, then names that start with the query, then skills that share words with
it. Equal scores put the project's skills before the user's and then go by path, so the order is always the same.
Copies of a skill are folded into one hit, so that eight results are eight different skills.

To use your own ranking model, pass a `Ranker`. Rankings are blended by score, not by position. Each is divided by its
own best score, so scores of any size can be added, and a ranking with one clear winner is not outvoted by one without.
"""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, runtime_checkable

from metier.values.results import Hit, IndexProgress, LikeIt, Reason, SearchResult
from metier.values.skill import SCOPE_ORDER, Skill
from metier.values.value import replace

EXACT_PATH: Final = 1000
EXACT_NAME: Final = 900
PREFIX: Final = 700
OVERLAP: Final = 100

LONG: Final = 80
"""The characters from which a description is so particular that two skills do not share it by chance."""

_WORDS: Final = re.compile(r"[^a-z0-9]+")


def exact(skill: Skill, query: str, cwd: str) -> tuple[int, Reason] | None:
    """Return the score and reason of a skill whose path or name matches the query, and `None` for any other."""
    place = os.path.normpath(os.path.join(cwd, query))
    if place == skill.path or (place == skill.dir and os.sep in query):  # a single word is a name, not a folder
        return EXACT_PATH, "exact_path"
    if query == skill.name:
        return EXACT_NAME, "exact_name"
    if skill.name.startswith(query):
        return PREFIX, "prefix"
    return None


def tokens(text: str) -> set[str]:
    """The words of a text for `overlap`: what stands between signs and spaces, in any script."""
    if not text.isascii():
        from metier.search.words import whole  # it imports an index, which a host that counts words does not need

        return whole(text)
    return {word for word in _WORDS.split(text.lower()) if word}


def overlap(skills: Iterable[Skill], query: str, cwd: str) -> list[Hit]:
    """Search without an index: count the words of the query in name and description, as Codelia does."""
    wanted = tokens(query)
    hits: list[Hit] = []
    for skill in skills:
        rule = exact(skill, query, cwd)
        if rule is not None:
            hits.append(Hit(skill, rule[0], rule[1]))
            continue
        shared = wanted & tokens(f"{skill.name} {skill.description}")
        if shared:
            hits.append(Hit(skill, OVERLAP + len(shared), "token_overlap", tuple(sorted(shared))))
    return in_order(hits)


def in_order(hits: Iterable[Hit]) -> list[Hit]:
    """Sort hits by score, then the project's before the user's, then by path."""
    return sorted(hits, key=lambda hit: (-hit.score, SCOPE_ORDER.get(hit.skill.scope, 3), hit.skill.path))


def cut(query: str, hits: Sequence[Hit], wanted: int, indexing: IndexProgress | None = None) -> SearchResult:
    """Return the first hits as a result. If there are more than `wanted`, it is truncated."""
    return SearchResult(query, min(len(hits), wanted), len(hits) > wanted, tuple(hits[:wanted]), indexing)


def fold(hits: Iterable[Hit]) -> list[Hit]:
    """One hit of each group of copies, with the others in `like`: the first that no other skill shadows.

    A shadowed skill with the same description is a copy, and so is a skill of another name with the same long one: a
    short description, such as "Ships a version.", is too little to tell.
    """
    first: dict[tuple[str, str], Hit] = {}
    for hit in hits:
        key = _fold_key(hit.skill)
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


def _fold_key(skill: Skill) -> tuple[str, str]:
    about = " ".join(skill.description.lower().split())
    return ("" if len(about) >= LONG else skill.name, about)


# --- several rankings ---


class Ranker(Protocol):
    """Ranks skills for a query. Pass it to `Skills.discover(rankers=[(weight, ranker)])`.

    This protocol is everything that an implementation needs:

    - `rank` returns pairs of the path of a SKILL.md and a score. Scores are finite and greater than zero, on any scale;
      higher is better. The order of the pairs does not matter, and no path appears twice.
    - Every skill that it returns counts as a match, so leave out those that do not fit. The list may be empty.
    - `limit` is how many results are useful. It is at least 100, because rankings are blended before they are cut.
    - Paths that are not in the catalog, skills that the caller must not see, and results far below the best one are
      dropped afterwards.
    - The same query gets the same result, as long as the catalog is the same.
    - It is called from any thread, also from several at once. An exception reaches the caller of the search.
    - One that has a method `sync(skills)` is told all skills of a catalog before it ranks them; see `CatalogRanker`.
    - One with an attribute `matches = False` always lists something. Then only words decide whether a hit is strong.
    """

    def rank(self, query: str, limit: int, /) -> Sequence[tuple[str, float]]: ...


@runtime_checkable
class CatalogRanker(Protocol):
    """A `Ranker` that prepares something for each skill, such as a vector. It is told before a changed catalog."""

    def sync(self, skills: Iterable[Skill], /) -> None: ...

    def rank(self, query: str, limit: int, /) -> Sequence[tuple[str, float]]: ...


class Reranker(Protocol):
    """Puts the best 20 results of a search into a better order. Pass it to `Skills.discover(reranker=...)`.

    `rerank` returns a number for each of the skills, in their order; higher is better. The hits keep their scores by
    position, so the first has the highest. Exact names and paths come before all of them.
    """

    def rerank(self, query: str, skills: Sequence[Skill], /) -> Sequence[float]: ...


def fuse(rankings: Sequence[tuple[float, Sequence[tuple[str, float]]]], limit: int) -> list[tuple[str, float]]:
    """Blend weighted rankings into one with scores from 0 to 1. Equal scores are in the order of their keys.

    A key that a ranking does not list gets half of that ranking's lowest score: it may only just have missed the cut.
    """
    used = [(weight, _scaled(ranking)) for weight, ranking in rankings if ranking and weight > 0]
    total = sum(weight for weight, _ in used)
    keys = {key for _, scores in used for key in scores}
    missing = [min(scores.values()) / 2 for _, scores in used]
    blended = {
        key: sum(weight * scores.get(key, floor) for (weight, scores), floor in zip(used, missing, strict=True)) / total
        for key in keys
    }
    return sorted(blended.items(), key=lambda item: (-item[1], item[0]))[:limit]


def _scaled(ranking: Sequence[tuple[str, float]]) -> dict[str, float]:
    best = max(score for _, score in ranking)
    return {key: max(0.0, score / best) if best > 0 else 0.0 for key, score in ranking}
