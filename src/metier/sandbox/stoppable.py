"""A runner that ends the script of a chat when its turn is stopped.

Without it, the script of a stopped turn would keep its session busy until its time limit. Only scripts that a turn
started are stopped. Other users of the runner are not affected.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, ParamSpec, TypeVar

from metier.errors import ScriptRefused
from metier.sandbox import Job, OnOutput, Outcome, Runner

T = TypeVar("T")
P = ParamSpec("P")

_CHAT: Final[ContextVar[str]] = ContextVar("chat", default="")
"""The chat for which the current thread works."""


class StoppableRunner:
    """Wraps a runner and can stop the script that runs for a chat."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._lock = threading.Lock()
        self._running: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Task[Outcome]]] = {}
        self.name = runner.name

    def problem(self) -> str | None:
        return self._runner.problem()

    def run(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        chat_id = _CHAT.get()
        if not chat_id:
            return self._runner.run(job, on_output)
        with asyncio.Runner() as loop:
            return loop.run(self._run(chat_id, job, on_output))

    async def _run(self, chat_id: str, job: Job, on_output: OnOutput | None) -> Outcome:
        task = asyncio.create_task(self._runner.arun(job, on_output))
        with self._lock:
            self._running[chat_id] = (asyncio.get_running_loop(), task)
        try:
            return await task
        except asyncio.CancelledError as stopped:
            raise ScriptRefused(job.script, "stopped", "it was stopped") from stopped
        finally:
            with self._lock:
                del self._running[chat_id]

    async def arun(self, job: Job, on_output: OnOutput | None = None) -> Outcome:
        return await self._runner.arun(job, on_output)

    def stop(self, chat_id: str) -> None:
        """End the script that runs for a chat, if there is one."""
        with self._lock:
            loop, task = self._running.get(chat_id, (None, None))
            if loop is not None and task is not None:
                loop.call_soon_threadsafe(task.cancel)


def on_behalf_of(chat_id: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function for a chat. `stop` ends the scripts that it runs in this thread."""
    token = _CHAT.set(chat_id)
    try:
        return function(*args, **kwargs)
    finally:
        _CHAT.reset(token)
