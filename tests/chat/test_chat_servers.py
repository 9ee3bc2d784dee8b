"""Several servers of one store: a chat is continued, followed, answered and stopped through any of them."""

import contextlib
import json
import queue
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import parts
from chat.openai_server import ModelServer, calls, held, text
from chat.serving import Chatting, JsonItem, serving, until
from chat.turns import LOAD, RUN, answer, app_with
from metier.sandbox.fake import FakeRunner
from metier.web import sse
from record.store.server import PostgresServer, programs
from worlds import World

FOLLOW_SECONDS = 120.0
LONG_SECONDS = 600.0
"""A heartbeat that no test waits for."""


class Follower:
    """A client that reads a stream of server-sent events in a thread."""

    def __init__(self, chatting: Chatting, path: str) -> None:
        self._messages: queue.Queue[tuple[str, JsonItem]] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(chatting, path), daemon=True)
        self._ended = False
        self._thread.start()

    def _read(self, chatting: Chatting, path: str) -> None:
        with contextlib.suppress(httpx2.TransportError):
            for message in chatting.messages("GET", path):
                self._messages.put(message)
            self._ended = True

    def until(self, event: str, words: str = "") -> None:
        """Read messages up to the first of this kind that contains the words."""
        while True:
            name, data = self._messages.get(timeout=FOLLOW_SECONDS)
            if name == event and words in json.dumps(data, ensure_ascii=False):
                return

    def ended(self) -> bool:
        """Whether the server ended the stream in an orderly way."""
        self._thread.join(FOLLOW_SECONDS)
        return self._ended


@pytest.mark.parametrize("path", ["/api/chats/{chat}/stream", "/chat/{chat}/stream"])
def test_a_turn_is_followed_through_another_server_without_waiting_for_a_heartbeat(
    skilled: World, model: ModelServer, runner: FakeRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", LONG_SECONDS)
    store = f"sqlite://{tmp_path}/chats.db"
    with (
        serving(app_with(skilled, model, runner, store)) as one,
        serving(app_with(skilled, model, runner, store)) as other,
    ):
        chat = one.chat()
        model.plays(calls(LOAD, RUN), text("All of it ran."))
        with one.saying(chat, "run it"):
            ask = one.waiting(chat)
            follower = Follower(other, path.format(chat=chat))
            follower.until("item", "scripts/echo.sh one")
            answer(one, chat, ask["id"], "once")
            follower.until("item", "ran\\n")
            follower.until("item", "All of it ran.")
            follower.until("end")
        if path.startswith("/api"):
            assert follower.ended()
        else:  # a page follows the next turn, too
            model.plays(text("And again."))
            one.say(chat, "once more")
            follower.until("item", "And again.")
            follower.until("end")


@pytest.mark.parametrize("path", ["/api/chats/{chat}/stream", "/chat/{chat}/stream"])
def test_a_server_that_ends_ends_the_streams_that_follow_turns_of_another(
    skilled: World, model: ModelServer, runner: FakeRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", LONG_SECONDS)
    store = f"sqlite://{tmp_path}/chats.db"
    with serving(app_with(skilled, model, runner, store)) as one:
        chat = one.chat()
        model.plays(calls(LOAD, RUN), text("All of it ran."))
        with one.saying(chat, "run it"):
            ask = one.waiting(chat)
            with serving(app_with(skilled, model, runner, store)) as other:
                client = Chatting(other.app, str(other.http.base_url))  # one that is still open when the server ends
                follower = Follower(client, path.format(chat=chat))
                follower.until("item", "scripts/echo.sh one")
            assert follower.ended()
            client.http.close()
            answer(one, chat, ask["id"], "once")


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if not programs():
        parts.missing("postgres")
    with PostgresServer(durable=False) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/chats.db"
    import psycopg

    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"chat_{uuid.uuid4().hex}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server.url}?options=-csearch_path%3D{name}"


def test_a_chat_goes_on_through_another_server_of_the_store(
    skilled: World, model: ModelServer, runner: FakeRunner, shared: str
) -> None:
    with (
        serving(app_with(skilled, model, runner, shared)) as one,
        serving(app_with(skilled, model, runner, shared)) as other,
    ):
        chat = one.chat()
        model.plays(calls(LOAD), text("Loaded."))
        one.say(chat, "load it")
        assert other.read(chat) == one.read(chat)
        model.plays(calls(LOAD), text("Known."))
        assert other.say(chat, "again")[1]["already_loaded"] is True
        model.plays(text("Back."))
        one.say(chat, "and here?")
        assert [item["text"] for item in other.items(chat, "text")] == ["Loaded.", "Known.", "Back."]


def test_a_turn_is_watched_asked_and_stopped_through_another_server(
    skilled: World, model: ModelServer, runner: FakeRunner, shared: str
) -> None:
    with (
        serving(app_with(skilled, model, runner, shared)) as one,
        serving(app_with(skilled, model, runner, shared)) as other,
    ):
        chat = one.chat()
        model.plays(calls(LOAD, RUN), held(threading.Event(), "Now for the"))
        with one.saying(chat, "run it") as shown:
            ask = other.waiting(chat)
            busy = other.http.post(f"/api/chats/{chat}/messages", json={"text": "me too"})
            assert busy.status_code == 409
            watched: list[tuple[str, JsonItem]] = []
            watching = threading.Thread(
                target=lambda: watched.extend(other.messages("GET", f"/api/chats/{chat}/stream"))
            )
            watching.start()
            assert answer(other, chat, ask["id"], "once") == 204
            until(lambda: runner.jobs, "the run")
            until(lambda: len(model.requests) == 2)
            assert other.http.post(f"/api/chats/{chat}/stop").status_code == 204
        watching.join(30)
        assert shown[-1]["text"] == "Stopped."
        last = {data["id"]: data for event, data in watched if event == "item"}
        assert [item["type"] for item in last.values()][-1] == "notice"
        assert watched[-1][0] == "end"
