"""Streams of events from the inside: no gaps, no duplicates at any speed, heartbeats, and cleanup."""

import asyncio
import contextlib
import json
import re
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import ParamSpec, TypeVar

import pytest
from processes import awaited, running

from metier.app import App
from metier.record.store import Draft, StoreError, open_store
from metier.record.store.memory import MemoryStore
from metier.surfaces.web import sse
from metier.surfaces.web.sse import EventFeed, FrameSubscriber, Subscriber
from patience import PATIENCE
from watching import wait_for
from worlds import World

NUMBER = re.compile(rb"^id: (\d+)$", re.MULTILINE)


P = ParamSpec("P")
T = TypeVar("T")


def drafts(first: int, count: int) -> list[Draft]:
    return [Draft(f"event-{number}", number, "noted", {"number": number}) for number in range(first, first + count)]


async def numbers(messages: AsyncIterator[bytes], last: int) -> list[int]:
    """The numbers of the frames in a stream, up to that one."""
    seen: list[int] = []
    while not seen or seen[-1] != last:
        seen += [int(found) for found in NUMBER.findall(await anext(messages))]
    return seen


def shown(frame: Mapping[str, object]) -> Mapping[str, object]:
    return frame


class _LateStore(MemoryStore):
    """A store that another process writes to just before the feed learns where it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.was_read = threading.Event()
        self.asked = False

    def cursor(self) -> int:
        if not self.asked:
            self.asked = True
            assert self.was_read.wait(PATIENCE)
            self.append("s", "session", "s", drafts(1, 1))
        return super().cursor()


@awaited
async def test_a_feed_reads_nothing_until_it_is_followed_and_then_misses_nothing() -> None:
    with _LateStore() as store:
        feed = EventFeed(store, shown)
        await feed.start()
        store.append("s", "session", "s", drafts(0, 1))
        await asyncio.sleep(0.05)  # a feed that reads would have begun; this one has no reason to
        assert not store.asked
        reading = feed.frames("s", -1)
        assert await numbers(reading, 0) == [0]
        store.was_read.set()
        following = await anext(reading)
        assert following != sse.HEARTBEAT
        assert NUMBER.findall(following) == [b"1"]
        await reading.aclose()
        await feed.stop()


@awaited
async def test_frames_that_come_faster_than_they_are_read_come_once_and_in_order() -> None:
    total = sse.PAGE * 4 + 7

    with open_store("memory:") as store:
        feed = EventFeed(store, shown)
        await feed.start()
        store.append("s", "session", "s", drafts(0, 3))
        reading = feed.frames("s", -1)
        assert await numbers(reading, 2) == [0, 1, 2]

        def write() -> None:
            for first in range(3, total, 50):
                store.append("s", "session", "s", drafts(first, min(50, total - first)))
                store.append("other", "session", "other", [Draft(f"other-{first}", 0, "noted")])

        writing = asyncio.to_thread(write)
        seen, _ = await asyncio.gather(numbers(reading, total - 1), writing)
        assert seen == list(range(3, total))
        later = feed.frames("s", total - 3)
        assert await numbers(later, total - 1) == [total - 2, total - 1]
        await feed.stop()


@awaited
async def test_a_store_that_fails_ends_the_stream_and_the_feed_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_LOOK_SECONDS", 0.01)

    with open_store("memory:") as store:
        feed = EventFeed(store, shown)
        await feed.start()
        failing = threading.Event()
        failing.set()
        read, page = store.read, store.page

        def refuse(work: Callable[P, T]) -> Callable[P, T]:
            def answer(*given: P.args, **named: P.kwargs) -> T:
                if failing.is_set():
                    raise StoreError("gone", reason="lost")
                return work(*given, **named)

            return answer

        monkeypatch.setattr(store, "read", refuse(read))
        monkeypatch.setattr(store, "page", refuse(page))
        store.append("s", "session", "s", drafts(0, 1))
        assert [message async for message in feed.frames("s", -1)] == [b": the frames of a session\n\n"]
        failing.clear()
        reading = feed.frames("s", -1)
        assert await numbers(reading, 0) == [0]
        store.append("s", "session", "s", drafts(1, 1))
        assert await numbers(reading, 1) == [1]
        await feed.stop()
        assert [message async for message in reading] == []


async def in_capitals(word: str) -> bytes:
    return sse.message("word", word.upper().encode())


@awaited
async def test_a_source_that_waits_sends_heartbeats_and_ends_with_the_server_or_its_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.01)

    async def source(subscriber: Subscriber) -> AsyncGenerator[str | None]:
        yield "first"
        while not subscriber.ending:
            if not await subscriber.wait():
                yield None

    async def failing(_: Subscriber) -> AsyncGenerator[str | None]:
        yield "first"
        raise StoreError("gone", reason="lost")

    with open_store("memory:") as store:
        feed = EventFeed(store, shown)
        assert len([message async for message in feed.follow("s", failing, in_capitals)]) == 1
        reading = feed.follow("s", source, in_capitals)
        assert await anext(reading) == b"event: word\ndata: FIRST\n\n"
        assert [await anext(reading) for _ in range(2)] == [sse.HEARTBEAT] * 2
        feed.end()
        assert [message async for message in reading if message != sse.HEARTBEAT] == []
        assert feed._subscribers == {}


@pytest.mark.system
def test_a_client_that_goes_away_leaves_nothing_behind(world: World) -> None:
    app = App(world.project, home=world.home, store="memory:", surface="http")
    with running(app) as (made, url):
        feed = made.application.site.feed
        session = app.session(surface="http")
        line = f"GET /api/sessions/{session.id}/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
        with contextlib.ExitStack() as clients:
            for _ in range(20):
                client = clients.enter_context(
                    socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=PATIENCE)
                )
                client.sendall(line.encode())
                said = b""
                while b"event: session_started" not in said:
                    said += client.recv(65536)
            assert len(feed._subscribers[session.id]) == 20
        wait_for(lambda: not feed._subscribers, "a feed without subscribers")


def test_a_message_is_one_line_of_json_whatever_a_frame_holds() -> None:
    with open_store("memory:") as store:
        text = "a\nb\r\nc\u2028d\x85e\n\nid: 99\n\n"
        (frame,) = store.append("s", "session", "s", [Draft("one", 1, "noted", {"text": text})])
        _, message = EventFeed(store, shown).message(frame)
    lines = message.decode().split("\n")
    assert lines[:2] == ["id: 0", "event: noted"]
    assert lines[3:] == ["", ""]
    assert json.loads(lines[2].removeprefix("data: "))["text"] == text


@awaited
async def test_frames_with_a_gap_are_read_again_and_a_silent_stream_sends_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.01)
    with open_store("memory:") as store:
        feed = EventFeed(store, shown)
        subscriber = FrameSubscriber(feed)
        subscriber.hand([(4, b"4"), (5, b"5")])
        assert subscriber.take(3) == [(4, b"4"), (5, b"5")]
        subscriber.hand([(3, b"3"), (5, b"5")])
        assert subscriber.take(3) == []
        subscriber.hand([(number, b"") for number in range(sse.PAGE + 1)])
        assert subscriber.take(-1) == [], "so many wait that they are read again"
        reading = feed.frames("s", -1)
        assert [await anext(reading) for _ in range(3)][1:] == [sse.HEARTBEAT] * 2
