"""Which events a read returns, as one value that every store translates into its own query."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import LiteralString


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The filters of `Store.read` and `Store.page`, combined. `None` stands for no filter."""

    session_id: str | None = None
    stream_id: str | None = None
    types: Collection[str] | None = None
    cursor: int = 0
    """Only events after this position of the store."""
    after: int = -1
    """Only events after this seq of their stream."""
    since_ms: int | None = None
    limit: int | None = None
    newest: bool = False
    """Whether a limit keeps the last events instead of the first."""


def newest_first(query: LiteralString) -> LiteralString:
    """Return a query for events in the opposite order. Its ORDER BY must be followed by LIMIT on the same line."""
    return query.replace(" LIMIT", " DESC LIMIT")
