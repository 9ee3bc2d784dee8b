"""The result of a search as data, so that a replay shows what was found then without searching again."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metier.model import JsonObject, Skill
from metier.results import Hit, IndexProgress, LikeIt, SearchResult


def dump(result: SearchResult, version: int) -> JsonObject:
    """A result for the record. Before version 6 a hit was only path, score, reason and words."""
    found: JsonObject = {"truncated": result.truncated, "hits": [_row(hit, version) for hit in result.results]}
    return found | ({"indexing": list(result.indexing)} if result.indexing and version > 5 else {})


def restore(query: str, data: Mapping[str, Any], find: Callable[[str], Skill]) -> SearchResult:
    """The result of such data. `find` gives the skill at a path."""
    hits = tuple(_hit(row, find) for row in data["hits"])
    indexing = IndexProgress(*data["indexing"]) if "indexing" in data else None
    return SearchResult(query, len(hits), data["truncated"], hits, indexing)


def _row(hit: Hit, version: int) -> list[object]:
    row: list[object] = [hit.skill.path, hit.score, hit.reason, list(hit.matched)]
    return [*row, hit.details()] if version > 5 else row


def _hit(row: Sequence[Any], find: Callable[[str], Skill]) -> Hit:
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
