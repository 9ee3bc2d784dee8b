"""Events as they happen, over server-sent events: a stream that can be left and taken up again without a gap.

The id of each message is the frame's number in its stream, so that `Last-Event-ID` says where to go on. One watcher for
all streams asks the store whether there is anything new, so that a thousand open streams cost one question.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.concurrency import run_in_threadpool

from metier.store import Store, canonical

HEARTBEAT_SECONDS: Final = 15.0
"""A comment is sent after this long, so that whatever lies between does not close a silent stream."""

_LOOK_SECONDS: Final = 1.0


class Watcher:
    """Wakes every open stream when the store has something new."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._news = asyncio.Condition()
        self._version = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        cursor = await run_in_threadpool(self._store.cursor)
        while True:
            if await run_in_threadpool(self._store.wait, cursor, _LOOK_SECONDS):
                cursor = await run_in_threadpool(self._store.cursor)
                async with self._news:
                    self._version += 1
                    self._news.notify_all()

    async def wait(self, seen: int) -> int:
        """The version of the news once it is not the one already seen, or after a heartbeat's time."""
        async with self._news:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._news.wait_for(lambda: self._version != seen)
            return self._version


async def events(store: Store, watcher: Watcher, session_id: str, after: int) -> AsyncIterator[str]:
    """The frames of a session behind `after`, then every new one, as messages of server-sent events."""
    version = -1
    while True:
        frames = await run_in_threadpool(store.read, session_id, session_id, None, after)
        for frame in frames:
            after = frame["seq"]
            yield f"id: {after}\nevent: {frame['type']}\ndata: {canonical(frame)}\n\n"
        if not frames:
            yield ": still here\n\n"
        version = await watcher.wait(version)
