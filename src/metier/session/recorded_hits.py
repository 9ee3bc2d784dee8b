"""The result of a search as data, so that a replay shows what was found then without searching again."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metier.values.results import Hit, IndexProgress, LikeIt, SearchResult
from metier.values.skill import JsonObject, Skill


def dump(result: SearchResult) -> JsonObject:
    """A result for the record."""
    found: JsonObject = {"truncated": result.truncated, "hits": [_row(hit) for hit in result.results]}
    return found | ({"indexing": list(result.indexing)} if result.indexing else {})


def restore(query: str, data: Mapping[str, Any], find: Callable[[str], Skill]) -> SearchResult:
    """The result of such data. `find` gives the skill at a path."""
    hits = tuple(_hit(row, find) for row in data["hits"])
    indexing = IndexProgress(*data["indexing"]) if "indexing" in data else None
    return SearchResult(query, len(hits), data["truncated"], hits, indexing)


def _row(hit: Hit) -> list[object]:
    return [hit.skill.path, hit.score, hit.reason, list(hit.matched), hit.details()]


def _hit(row: Sequence[Any], find: Callable[[str], Skill]) -> Hit:
    path, score, reason, matched, details = row
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
