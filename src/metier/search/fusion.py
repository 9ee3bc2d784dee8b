"""Blends several rankings into one. To use your own ranking model, pass a `Ranker`.

Rankings are blended by score, not by position. Each is divided by its own best score, so scores of any size can be
added, and a ranking with one clear winner is not outvoted by one without.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from metier.values.skill import Skill


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
