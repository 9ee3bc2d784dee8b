"""The order of a test run: what takes longest begins first, so that no worker has it left when all others end."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def slowest_first(tests: Sequence[T], is_slow: Callable[[T], bool], workers: int) -> list[T]:
    """The tests with the slow ones at the beginning of each worker's share. xdist gives each an equal part in order."""
    slow = [test for test in tests if is_slow(test)]
    others = [test for test in tests if not is_slow(test)]
    ordered: list[T] = []
    for worker in range(workers):
        first = slow[worker::workers]
        share = (len(tests) - len(ordered)) // (workers - worker) - len(first)
        ordered += first + others[:share]
        del others[:share]
    return ordered
