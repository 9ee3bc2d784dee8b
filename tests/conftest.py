"""Every test has a home, a project and an environment of its own; nothing of the machine's leaks in."""

import contextlib
import functools
import importlib
import os
import signal
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import lanes
import parts
from metier.running.sandbox.bubblewrap import BubblewrapRunner
from patience import PATIENCE
from worlds import World

# No test depends on the speed of the machine.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("patient")

# A shell lets what it starts in the background ignore Ctrl+C, and the processes that tests interrupt would inherit it.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of processes import Metier. Those that may keep what they compiled take half of the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Each client of HTTP reads the certificates of all authorities, which takes 50 ms. They are read once for all clients.
for library in ("httpx", "httpx2"):
    with contextlib.suppress(ImportError):
        transports: Any = importlib.import_module(f"{library}._transports.default")
        transports.create_ssl_context = functools.cache(transports.create_ssl_context)

parts.hide()

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*parts): the programs of others without which the test is skipped")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(lanes.lane_of(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, 3 * PATIENCE, PATIENCE)  # again, if what cleans up waits in vain as well
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"the test was ended after {3 * PATIENCE} seconds")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    for mark in item.iter_markers("needs"):
        parts.require(*mark.args)
    with lanes.guarded(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with lanes.guarded(item):
        return (yield)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """More workers than processors where tests wait for the processes that they start."""
    asked = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS")
    waits = 0 if config.getoption("markexpr") == lanes.IN_PROCESS else 2
    return int(asked) if asked else (os.cpu_count() or 1) + waits


@pytest.fixture(autouse=True)
def own_surroundings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for variable in list(os.environ):
        if variable.startswith(("METIER_", "XDG_", "CODELIA_", "SKILLS_")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NO_COLOR", "1")
    # To find the keyring of the machine, the library loads every backend, and one of them starts a program.
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    if request.node.get_closest_marker(lanes.IN_PROCESS) is not None:
        # Whether scripts can run is asked of no machine: here they can, as long as none does.
        monkeypatch.setattr(BubblewrapRunner, "problem", lambda _: None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    return World(tmp_path / "home", project)


@pytest.fixture
def corpus() -> Path:
    """The folder with the archives of real skills; tests that use it are skipped where it is not, but never in CI."""
    if not CORPUS.is_dir():
        if os.environ.get("CI"):
            pytest.fail("the corpus must be there in CI")
        pytest.skip("the corpus of real skills is not here")
    return CORPUS
