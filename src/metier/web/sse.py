"""Events as they happen, over server-sent events: a stream that can be left and taken up again without a gap.

The id of each message is the frame's number in its stream, so that `Last-Event-ID` says where to go on. One watcher
reads what is new in the store and hands it to the streams whose session it concerns, so that a thousand open streams
cost one question. A stream that did not hear everything, in order, reads the store itself: the numbers tell.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from metier.files.text import utf8
from metier.record.store import Frame, Store, StoreError, canonical

HEARTBEAT_SECONDS: Final = 15.0
"""A comment is sent after this long, so that whatever lies between does not close a silent stream."""

PAGE: Final = 500
"""Frames that are read in one go, and that a stream may be behind before it reads them itself."""

_LOOK_SECONDS: Final = 1.0
_LOG: Final = logging.getLogger("metier")

Message = tuple[int, bytes]
"""The number of a frame, and the frame as it is sent."""


class Ear:
    """What one stream has heard of and not yet sent."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._heard: list[Message] = []

    def tell(self, messages: Iterable[Message]) -> None:
        self._heard += messages
        if len(self._heard) > PAGE:
            self._heard.clear()
        self._event.set()

    async def news(self) -> bool:
        """Wait for something; false after a heartbeat's time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._event.wait()
        heard = self._event.is_set()
        self._event.clear()
        return heard

    def following(self, after: int) -> list[Message]:
        """What was heard behind that number, if nothing between is missing; it is forgotten in any case."""
        heard, self._heard = [message for message in self._heard if message[0] > after], []
        whole = all(number == after + place for place, (number, _) in enumerate(heard, 1))
        return heard if whole else []


class Watcher:
    """Hands new frames to open streams, and wakes all of them when the server ends."""

    def __init__(self, store: Store, shown: Callable[[Any], Any]) -> None:
        self._store, self._shown = store, shown
        self._ears: dict[str, set[Ear]] = {}
        self._task: asyncio.Task[None] | None = None
        self.ending = False

    async def start(self) -> None:
        self.ending = False
        cursor = await run_in_threadpool(self._store.cursor)
        self._task = asyncio.create_task(self._watch(cursor))

    def end(self) -> None:
        """Let every stream send what there is and end; new ones end at once."""
        self.ending = True
        for session_id in self._ears:
            self._tell(session_id, ())

    async def stop(self) -> None:
        self.end()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self, cursor: int) -> None:
        while True:
            try:
                if await run_in_threadpool(self._store.wait, cursor, _LOOK_SECONDS):
                    page = await run_in_threadpool(self._store.page, cursor)
                    cursor = page.cursor
                    self._hand_out(page.frames)
            except StoreError as error:
                _LOG.warning("the store cannot be watched, and is tried again: %s", error)
                await asyncio.sleep(_LOOK_SECONDS)

    def _hand_out(self, frames: Iterable[Frame]) -> None:
        found: dict[str, list[Message]] = {}
        for frame in frames:
            if frame["stream_id"] in self._ears:  # a session's own stream bears its id
                found.setdefault(frame["stream_id"], []).append(self.message(frame))
        for stream_id, messages in found.items():
            self._tell(stream_id, messages)

    def _tell(self, session_id: str, messages: Iterable[Message]) -> None:
        for ear in self._ears.get(session_id, ()):
            ear.tell(messages)

    def message(self, frame: Frame) -> Message:
        text = f"id: {frame['seq']}\nevent: {frame['type']}\ndata: {canonical(self._shown(frame))}\n\n"
        return frame["seq"], utf8(text)

    @contextlib.contextmanager
    def listening(self, session_id: str) -> Generator[Ear, None, None]:
        ear = Ear()
        self._ears.setdefault(session_id, set()).add(ear)
        try:
            yield ear
        finally:
            self._ears[session_id].discard(ear)
            if not self._ears[session_id]:
                del self._ears[session_id]

    @contextlib.asynccontextmanager
    async def watching(self, session_id: str) -> AsyncGenerator[Callable[[], Awaitable[bool]], None]:
        """While this is entered: a function to wait for news of a session with, or for a heartbeat's time (false)."""
        with self.listening(session_id) as ear:
            yield ear.news

    async def read(self, session_id: str, after: int) -> list[Message]:
        frames = await run_in_threadpool(self._store.read, session_id, session_id, None, after, PAGE)
        return [self.message(frame) for frame in frames]


async def events(watcher: Watcher, session_id: str, after: int) -> AsyncIterator[bytes]:
    """The frames of a session behind `after`, then every new one, as messages of server-sent events.

    The stream ends when the server does or the store fails; whoever reads it comes back with the last id.
    """
    yield b": the frames of a session\n\n"
    with watcher.listening(session_id) as ear:
        messages: list[Message] = []
        while True:
            try:
                messages = messages or await watcher.read(session_id, after)
            except StoreError as error:
                _LOG.warning("a stream of events ends: %s", error)
                return
            for number, text in messages:
                after = number
                yield text
            if len(messages) < PAGE:
                if watcher.ending:
                    return
                if not await ear.news():
                    yield b": still here\n\n"
            messages = ear.following(after)
