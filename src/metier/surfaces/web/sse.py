"""Server-sent events: the one place that formats, paces and ends streams.

One `EventFeed` reads what is new in the store and wakes the streams that it concerns, so a thousand open streams cost
one query, and none costs nothing. In a stream of frames the id of each message is the frame's number, so a client that
reconnects with `Last-Event-ID` misses nothing. A stream that has not received every number in order reads the store
itself.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from typing import Final, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from metier.files.text import utf8
from metier.record.store import Frame, Store, StoreError, canonical

EVENT_STREAM: Final = "text/event-stream"
HEARTBEAT_SECONDS: Final = 15.0
"""A silent stream sends a comment this often, so that proxies do not close it."""

HEARTBEAT: Final = b": still here\n\n"
PAGE: Final = 500
"""Frames that are read at once, and that a stream may have waiting before it reads the store instead."""

_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
_LOOK_SECONDS: Final = 1.0
_LOG: Final = logging.getLogger("metier")

T = TypeVar("T")

NumberedMessage = tuple[int, bytes]
"""The number of a frame, and the message that sends it."""


def message(event: str, data: bytes, number: int | None = None) -> bytes:
    """One message. `data` must be a single line, as compact JSON is."""
    head = "" if number is None else f"id: {number}\n"
    return b"".join((utf8(f"{head}event: {event}\ndata: "), data, b"\n\n"))


def respond(messages: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(messages, media_type=EVENT_STREAM, headers=_HEADERS)


class Subscriber:
    """One open stream. It is woken when there is something new, and when the server ends."""

    def __init__(self, feed: "EventFeed") -> None:
        self._feed, self._woken = feed, asyncio.Event()

    @property
    def ending(self) -> bool:
        """Whether the server ends. The stream sends what it has and stops."""
        return self._feed.ending

    def wake(self) -> None:
        self._woken.set()

    async def wait(self) -> bool:
        """Wait to be woken. Return false if a heartbeat is due first."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._woken.wait()
        woken = self._woken.is_set()
        self._woken.clear()
        return woken


class FrameSubscriber(Subscriber):
    """A stream of frames, with the messages that were handed to it and not yet sent."""

    def __init__(self, feed: "EventFeed") -> None:
        super().__init__(feed)
        self._waiting: list[NumberedMessage] = []

    def hand(self, messages: Iterable[NumberedMessage]) -> None:
        self._waiting += messages
        if len(self._waiting) > PAGE:
            self._waiting.clear()
        self.wake()

    def take(self, after: int) -> list[NumberedMessage]:
        """The waiting messages after that number, or none if one of them is missing. Nothing waits afterwards."""
        taken, self._waiting = [message for message in self._waiting if message[0] > after], []
        complete = all(number == after + place for place, (number, _) in enumerate(taken, 1))
        return taken if complete else []


class EventFeed:
    """Reads new frames from the store and wakes the subscribers of their streams."""

    def __init__(self, store: Store, show: Callable[[Mapping[str, object]], Mapping[str, object]]) -> None:
        self._store, self._show = store, show
        self._subscribers: dict[str, set[Subscriber]] = {}
        self._needed = asyncio.Event()
        """Whether a subscriber waits for what is new in the store."""
        self._task: asyncio.Task[None] | None = None
        self.ending = False

    async def start(self) -> None:
        self.ending = False
        self._task = asyncio.create_task(self._watch())

    def end(self) -> None:
        """Let every stream send what it has and end. New streams end at once."""
        self.ending = True
        self._wake_all()

    def _wake_all(self) -> None:
        for subscribers in self._subscribers.values():
            for subscriber in subscribers:
                subscriber.wake()

    async def stop(self) -> None:
        self.end()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        cursor: int | None = None
        while True:
            try:
                if not self._needed.is_set():
                    await self._needed.wait()
                    cursor = None
                if cursor is None:
                    cursor = await run_in_threadpool(self._store.cursor)
                    self._wake_all()  # for what was written after a stream read the store and before this
                if await run_in_threadpool(self._store.wait, cursor, _LOOK_SECONDS):
                    page = await run_in_threadpool(self._store.page, cursor)
                    cursor = page.cursor
                    self._hand_out(page.frames)
            except StoreError as error:
                _LOG.warning("the store cannot be watched; trying again: %s", error)
                await asyncio.sleep(_LOOK_SECONDS)

    def _hand_out(self, frames: Iterable[Frame]) -> None:
        found: dict[str, list[Frame]] = {}
        for frame in frames:
            if frame["stream_id"] in self._subscribers:
                found.setdefault(frame["stream_id"], []).append(frame)
        for stream_id, new in found.items():
            messages: list[NumberedMessage] = []
            for subscriber in self._subscribers[stream_id]:
                if isinstance(subscriber, FrameSubscriber):
                    messages = messages or [self.message(frame) for frame in new]
                    subscriber.hand(messages)
                else:
                    subscriber.wake()

    def message(self, frame: Frame) -> NumberedMessage:
        return frame["seq"], message(frame["type"], utf8(canonical(self._show(frame))), frame["seq"])

    @contextlib.contextmanager
    def _registered(self, stream_id: str, subscriber: Subscriber) -> Generator[None]:
        self._subscribers.setdefault(stream_id, set()).add(subscriber)
        if stream_id:
            self._needed.set()
        try:
            yield
        finally:
            self._subscribers[stream_id].discard(subscriber)
            if not self._subscribers[stream_id]:
                del self._subscribers[stream_id]
            if not any(self._subscribers):
                self._needed.clear()

    async def follow(
        self,
        stream_id: str,
        source: Callable[[Subscriber], AsyncGenerator[T | None]],
        write: Callable[[T], Awaitable[bytes]],
    ) -> AsyncGenerator[bytes]:
        """The messages of a source. The source waits on its subscriber and yields `None` when a heartbeat is due.

        Without a `stream_id`, the subscriber is not woken by what is new in the store, and the store is not asked.
        """
        subscriber = Subscriber(self)
        with self._registered(stream_id, subscriber):
            async with contextlib.aclosing(source(subscriber)) as items:
                try:
                    async for item in items:
                        yield HEARTBEAT if item is None else await write(item)
                except StoreError as error:
                    _LOG.warning("a stream of events ends: %s", error)

    async def frames(self, session_id: str, after: int) -> AsyncGenerator[bytes]:
        """The frames of a session after a number, then every new one.

        The stream ends when the server does or the store fails. The client reconnects with the last id.
        """
        yield b": the frames of a session\n\n"
        subscriber = FrameSubscriber(self)
        with self._registered(session_id, subscriber):  # the stream of a session has the id of the session
            messages: list[NumberedMessage] = []
            while True:
                try:
                    messages = messages or await self._read(session_id, after)
                except StoreError as error:
                    _LOG.warning("a stream of events ends: %s", error)
                    return
                for number, text in messages:
                    after = number
                    yield text
                if len(messages) < PAGE:
                    if self.ending:
                        return
                    if not await subscriber.wait():
                        yield HEARTBEAT
                messages = subscriber.take(after)

    async def _read(self, session_id: str, after: int) -> list[NumberedMessage]:
        frames = await run_in_threadpool(self._store.read, session_id, session_id, None, after, PAGE)
        return [self.message(frame) for frame in frames]
