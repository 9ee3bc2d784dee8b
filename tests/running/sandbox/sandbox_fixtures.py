"""The fixtures of these tests. Without bubblewrap they skip, but they fail in CI.

This is not a `conftest.py`, because other tests import from the top-level `conftest`.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Generator

import pytest

import parts
from bench.attack.boxes import Box, Case, a_box, as_user
from bench.attack.engines import ENGINES, a_shared_engine
from metier.running.sandbox.bubblewrap import BubblewrapRunner
from metier.running.sandbox.container import ContainerRunner
from metier.running.sandbox.unsandboxed import UnsandboxedRunner


@pytest.fixture
def box() -> Generator[Box]:
    with a_box() as made:
        yield made


@pytest.fixture
def identity() -> str:
    """The user that launches scripts: that of the tests. The files about getting out vary it."""
    return "self"


@pytest.fixture
def sandbox(identity: str) -> BubblewrapRunner:
    """A bubblewrap runner that works for the identity that will use it."""
    runner = BubblewrapRunner()
    problem = as_user(identity, runner.problem)
    if problem is not None:
        parts.missing("bwrap", f"{identity}: {problem}")
    return runner


@pytest.fixture
def case(sandbox: BubblewrapRunner, identity: str, box: Box) -> Generator[Case]:
    """A case of the sandbox. No process of a script is left when its run returns."""
    yield Case(sandbox, identity, box)
    assert box.survivors() == []


@pytest.fixture
def unprotected() -> UnsandboxedRunner:
    """A runner without a sandbox, which proves that an attempt can succeed."""
    return UnsandboxedRunner()


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Generator[Callable[[str], ContainerRunner]]:
    """The runner at a container engine by the name of the engine. It skips the test, or fails it in CI."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda name: stack.enter_context(a_shared_engine(name, shared)))


@pytest.fixture(params=ENGINES)
def container(request: pytest.FixtureRequest, engines: Callable[[str], ContainerRunner]) -> ContainerRunner:
    return engines(request.param)
