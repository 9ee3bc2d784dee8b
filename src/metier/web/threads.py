"""Runs work that may block in threads, and hands results back to the event loop many at a time.

A call of a session waits for files and for its store, so it never runs on the event loop. What ends while the loop is
busy is handed over together: waking the loop costs a system call, and under load many calls end with one commit.
"""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

THREADS: Final = 40
"""Calls that run at once. Further ones wait for their turn."""

P = ParamSpec("P")
R = TypeVar("R")


class _Results:
    """What ended and is not handed to the event loop yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake_up = loop.call_soon_threadsafe
        self._ended: deque[tuple[asyncio.Future[Any], object, BaseException | None]] = deque()
        self._is_waking = False

    def add(self, future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
        """Called in a thread. The order matters: whoever finds the loop being woken has added its result before."""
        self._ended.append((future, result, error))
        if not self._is_waking:
            self._is_waking = True
            self._wake_up(self._hand_over)

    def _hand_over(self) -> None:
        self._is_waking = False
        while self._ended:
            future, result, error = self._ended.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


class Threads:
    """A pool of threads for all event loops of a process. Threads are started when they are needed first."""

    def __init__(self, most: int = THREADS) -> None:
        self._most = most
        self._begin()
        if hasattr(os, "register_at_fork"):  # a fork has none of the threads
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._count = self._idle = 0
        """The threads, and those that wait for work, less the work that waits for them."""
        self._lock = threading.Lock()
        self._work: SimpleQueue[tuple[_Results, asyncio.Future[Any], Callable[[], object]]] = SimpleQueue()
        self._results: WeakKeyDictionary[asyncio.AbstractEventLoop, _Results] = WeakKeyDictionary()

    def submit(self, work: Callable[[], R]) -> "asyncio.Future[R]":
        """Run something in a thread, with the context variables of the caller."""
        loop = asyncio.get_running_loop()
        results = self._results.get(loop)
        if results is None:
            results = self._results.setdefault(loop, _Results(loop))
        future: asyncio.Future[R] = loop.create_future()
        with self._lock:
            starts = self._idle <= 0 and self._count < self._most
            if starts:
                self._count += 1
            else:
                self._idle -= 1
        self._work.put((results, future, partial(contextvars.copy_context().run, work)))
        if starts:
            threading.Thread(target=self._run, name=f"metier-web-{self._count}", daemon=True).start()
        return future

    def _run(self) -> None:
        while True:
            results, future, work = self._work.get()
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - whoever waits for the result gets it
                error = raised
            if isinstance(error, StopIteration):  # a future cannot hold it
                error = RuntimeError("StopIteration was raised in a thread")
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                results.add(future, result, error)
            del results, future, work, result, error
            with self._lock:
                self._idle += 1


_THREADS: Final = Threads()


async def run_in_threadpool(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What a function returns, called in a thread."""
    return await _THREADS.submit(partial(function, *args, **kwargs))
