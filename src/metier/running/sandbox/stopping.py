"""The event that stops a script, for work that somebody may end: a turn of a chat, or an operation of asyncio.

A run takes the event of the work that it is part of (`stop_event`) into its job. Without one, a script runs to its end.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_STOP: Final[ContextVar[threading.Event | None]] = ContextVar("stop", default=None)


def stop_event() -> threading.Event | None:
    """The event that ends a script which the current thread or task starts."""
    return _STOP.get()


@contextmanager
def stopped_by(stop: threading.Event) -> Generator[None]:
    """End the scripts that are started in this context, also in a thread of `asyncio.to_thread`, when `stop` is set."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)
