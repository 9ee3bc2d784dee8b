"""What tests of live catalogs share: waiting for a condition, and a watcher that keeps what it told."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from metier import Skills
from metier.app import App
from metier.catalog import snapshot
from metier.catalog.watch import News, Watcher
from patience import PATIENCE


def wait_for(condition: Callable[[], bool], what: str = "") -> None:
    """Wait until it holds; a test that waits in vain fails with what it waited for."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"waited in vain: {what or condition}"
        time.sleep(0.01)


@contextmanager
def watched(target: App | Skills, **given: Any) -> Generator[tuple[Watcher, list[News]]]:
    """A watcher that has begun, and the news it told."""
    told: list[News] = []
    with Watcher(target, told.append, **given) as watcher:
        assert watcher.wait_ready(PATIENCE)
        yield watcher, told


def dumped(skills: Skills) -> str:
    return snapshot.dump(skills.catalog)
