"""The fixtures of these tests. Without bubblewrap they skip, but they fail in CI.

This is not a `conftest.py`, because other tests import from the top-level `conftest`.
"""

from collections.abc import Generator

import pytest

import parts
from metier.sandbox.bubblewrap import BubblewrapRunner
from metier.sandbox.container import ContainerRunner
from metier.sandbox.unsandboxed import UnsandboxedRunner
from sandbox.boxes import IDENTITIES, Box, a_box, as_user
from sandbox.engines import a_podman


@pytest.fixture
def box() -> Generator[Box]:
    with a_box() as made:
        yield made


@pytest.fixture(params=IDENTITIES)
def identity(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sandbox(identity: str) -> BubblewrapRunner:
    """A bubblewrap runner that works for the identity that will use it."""
    runner = BubblewrapRunner()
    problem = as_user(identity, runner.problem)
    if problem is not None:
        parts.missing("bwrap", f"{identity}: {problem}")
    return runner


@pytest.fixture
def unprotected() -> UnsandboxedRunner:
    """A runner without a sandbox, which proves that an attempt can succeed."""
    return UnsandboxedRunner()


@pytest.fixture(scope="session")
def container() -> Generator[ContainerRunner]:
    """A runner at a Podman of its own, with an image that is made of files of this host."""
    with a_podman() as runner:
        yield runner
