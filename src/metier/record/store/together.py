"""Writes many rows with few statements.

Each statement costs: SQLite gives other threads the interpreter, which they keep a while, and a server plans it anew.
A statement with thousands of rows would have to be prepared for each number of them. So rows are written 64 or 16 at a
time, and what remains together.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

_SIZES: Final = (64, 16)

Row = TypeVar("Row", bound=tuple[str | int, ...])


def parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The rows in the parts that are written together."""
    start = 0
    while start < len(rows):
        left = len(rows) - start
        count = next((size for size in _SIZES if left >= size), left)
        yield rows[start : start + count]
        start += count


def with_rows(statement: str, rows: Sequence[tuple[str | int, ...]], *, numbered: bool = False) -> str:
    """A statement that has `{}` in place of its rows, with a `?`, or `$1` and so on, for each of their values."""
    return _with_rows(statement, len(rows[0]), len(rows), numbered)


def values_of(rows: Sequence[tuple[str | int, ...]]) -> list[str | int]:
    """The values of rows, one row after the other."""
    return [value for row in rows for value in row]


@functools.cache
def _with_rows(statement: str, width: int, count: int, numbered: bool) -> str:
    """There are few, so that a connection keeps them prepared."""
    marks = [f"${number}" if numbered else "?" for number in range(1, width * count + 1)]
    rows = [",".join(marks[start : start + width]) for start in range(0, len(marks), width)]
    return statement.format(",".join(f"({row})" for row in rows))
