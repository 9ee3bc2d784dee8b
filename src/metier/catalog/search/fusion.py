"""Several rankings made one: whoever has a better model than words plugs it in as a Ranker.

Rankings are blended by score, not by position: each is scaled by its own best score, so that scores of any size can
be added, and a ranking that is sure of its first answer is not outvoted by one that is sure of nothing.
"""

from collections.abc import Sequence
from typing import Protocol


class Ranker(Protocol):
    """Anything that ranks skills for a query, by the paths of their SKILL.md, best first, with scores above zero.

    The same query gets the same answer, and what does not fit is left out: whatever a ranker lists counts as fitting.
    """

    def rank(self, query: str, limit: int) -> list[tuple[str, float]]: ...


def fuse(rankings: Sequence[tuple[float, Sequence[tuple[str, float]]]], limit: int) -> list[tuple[str, float]]:
    """Weighted rankings into one, scores from 0 to 1, equal ones in the order of their keys.

    A key that a ranking leaves out counts there as half of the last one it lists: it may only just have missed the cut.
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
