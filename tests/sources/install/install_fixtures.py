"""The fixtures of these tests, for `pytest_plugins`."""

from collections.abc import Iterator

import pytest

from sources.install.skillsite import Site, serving


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as made:
        yield made
