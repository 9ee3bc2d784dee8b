"""The order of a test run: slow tests are spread over the workers, and each begins with its own."""

import pytest

from ordering import slowest_first


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_each_worker_begins_with_its_part_of_the_slow_tests(workers: int) -> None:
    tests = list(range(40))
    ordered = slowest_first(tests, lambda test: test % 10 == 9, workers)
    assert sorted(ordered) == tests
    size, each = 40 // workers, 4 // workers
    shares = [ordered[start : start + size] for start in range(0, 40, size)]
    assert all([test % 10 == 9 for test in share] == [True] * each + [False] * (size - each) for share in shares)
    quick = [test for test in ordered if test % 10 != 9]
    assert quick == sorted(quick), "the tests of a module stay together"
