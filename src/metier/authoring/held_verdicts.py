"""Holds the verdicts of all hosts until they can be told skill by skill.

Hosts are judged one after the other, because a large catalog fills the memory once for each host. What they say is
needed together. So the verdicts of many skills wait in a temporary file, which nobody else can open.
"""

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby
from types import TracebackType
from typing import IO, Final, Self

from metier.authoring.verdict import HostVerdict

_IN_MEMORY: Final = 40_000
"""The verdicts that are kept in memory, which takes some 40 MB."""
_PART: Final = 500
"""The verdicts that are read back at once."""


class HeldVerdicts:
    """The verdicts of some hosts, each sorted by path. Use it in a `with` block."""

    def __init__(self) -> None:
        self._hosts: list[Sequence[HostVerdict | int]] = []
        """Of each host, the verdicts, or where in the file some of them are."""
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
            if isinstance(one, int) and self._file is not None:
                self._file.seek(one)
                yield from pickle.load(self._file)  # noqa: S301 - nobody else can open the file
            elif not isinstance(one, int):
                yield one

    def _write(self, verdicts: Sequence[HostVerdict]) -> list[int]:
        """Write verdicts to the file. Returns where the parts are."""
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `__exit__` closes it
        places: list[int] = []
        for start in range(0, len(verdicts), _PART):
            places.append(self._file.seek(0, 2))
            pickle.dump(verdicts[start : start + _PART], self._file)
        return places
