"""Holds the verdicts of all hosts until they can be told skill by skill.

Hosts are judged one after the other, because a large catalog fills the memory once for each host. What they say is
needed together. So the verdicts of many skills wait in a temporary file, which nobody else can open.
"""

import dataclasses
import marshal
import tempfile
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import attrgetter
from types import TracebackType
from typing import IO, Any, Final, Self

from metier.catalog.certainty import Assumption
from metier.catalog.verdict import HostVerdict
from metier.model import Diagnostic

_IN_MEMORY: Final = 40_000
"""The verdicts that are kept in memory, which takes some 40 MB."""
_PART: Final = 500
"""The verdicts that are read back at once."""

_NAMES: Final = tuple(field.name for field in dataclasses.fields(HostVerdict))
_values: Final = attrgetter(*_NAMES)
_DIAGNOSTICS: Final = _NAMES.index("diagnostics")
_ASSUMED: Final = _NAMES.index("assumed")


class HeldVerdicts:
    """The verdicts of some hosts, each sorted by path. Use it in a `with` block."""

    def __init__(self) -> None:
        self._hosts: list[Sequence[HostVerdict] | list[tuple[int, int]]] = []
        self._count = 0
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, verdicts: Sequence[HostVerdict]) -> None:
        """Hold the verdicts of one more host."""
        self._count += len(verdicts)
        self._hosts.append(verdicts if self._count <= _IN_MEMORY else self._write(verdicts))

    def by_skill(self) -> Iterator[list[HostVerdict]]:
        """Yield the verdicts on each skill, in the order of the hosts. Skills are sorted by path."""
        each = (self._numbered(number) for number in range(len(self._hosts)))
        for _, group in groupby(merge(*each), key=lambda entry: entry[0]):
            yield [verdict for _, _, verdict in group]

    def _numbered(self, number: int) -> Iterator[tuple[str, int, HostVerdict]]:
        return ((verdict.path, number, verdict) for verdict in self._of_host(number))

    def _of_host(self, number: int) -> Iterator[HostVerdict]:
        for one in self._hosts[number]:
            if isinstance(one, HostVerdict):
                yield one
            else:
                yield from map(_restored, self._read(*one))

    def _write(self, verdicts: Sequence[HostVerdict]) -> list[tuple[int, int]]:
        """Write verdicts to the file. Returns where the parts are: offset and size."""
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `__exit__` closes it
        self._file.seek(0, 2)
        parts: list[tuple[int, int]] = []
        for start in range(0, len(verdicts), _PART):
            data = marshal.dumps([_row(verdict) for verdict in verdicts[start : start + _PART]])
            parts.append((self._file.tell(), len(data)))
            self._file.write(data)
        return parts

    def _read(self, offset: int, size: int) -> list[tuple[Any, ...]]:
        if self._file is None:
            return []
        self._file.seek(offset)
        return marshal.loads(self._file.read(size))


def _row(verdict: HostVerdict) -> tuple[Any, ...]:
    row = list(_values(verdict))
    row[_DIAGNOSTICS] = tuple(
        (d.code, d.severity, d.message, d.path, d.line, d.column, d.hint, d.reason) for d in verdict.diagnostics
    )
    row[_ASSUMED] = tuple(map(tuple, verdict.assumed))
    return tuple(row)


def _restored(row: tuple[Any, ...]) -> HostVerdict:
    values = dict(zip(_NAMES, row, strict=True))
    values["diagnostics"] = tuple(Diagnostic(*one) for one in row[_DIAGNOSTICS])
    values["assumed"] = tuple(Assumption(*one) for one in row[_ASSUMED])
    return HostVerdict(**values)
