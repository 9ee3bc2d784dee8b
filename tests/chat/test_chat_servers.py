"""Several servers of one store: a chat continues, is followed, answered and stopped through any of them."""

import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from chat.openai_server import ModelServer, calls, text
from chat.serving import Chatting, app_of, serving
from metier.app import App
from metier.sandbox import Outcome
from metier.sandbox.fake import FakeRunner
from metier.web import sse
from worlds import World

RUN = ("skill_run", {"name": "notes", "script": "scripts/echo.sh", "arguments": ["one"]})
LOAD = ("skill_load", {"name": "notes"})
WAIT_SECONDS = 15.0


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(text("Hello.")) as server:
        yield server


@pytest.fixture
def skilled(world: World) -> World:
    world.skill(".agents/skills/notes", files={"scripts/echo.sh": "#!/bin/sh\necho ran\n"})
    return world


def app_with(world: World, model: ModelServer, store: str) -> App:
    app = app_of(world, store, provider="openai", name="scripted", base_url=model.url)
    app.runner = FakeRunner(default=Outcome(0, "exit", 5, b"ran\n", b"", protections=("fake",)))
    return app


class Follower:
    """A client that reads a stream of server-sent events in a thread."""

    def __init__(self, chatting: Chatting, path: str) -> None:
        self._messages: queue.Queue[tuple[str, dict[str, str]]] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(chatting, path), daemon=True)
        self._thread.start()

    def _read(self, chatting: Chatting, path: str) -> None:
        with contextlib.suppress(httpx2.TransportError):  # the server of a failed test is gone
            for message in chatting.messages("GET", path):
                self._messages.put(message)

    def until(self, event: str, words: str = "") -> None:
        """Read messages up to the first of this kind that contains the words."""
        while True:
            heard, data = self._messages.get(timeout=WAIT_SECONDS)
            if heard == event and words in json.dumps(data, ensure_ascii=False):
                return


@pytest.mark.parametrize("path", ["/api/chats/{chat}/stream", "/chat/{chat}/stream"])
def test_a_turn_is_followed_through_another_server_without_waiting_for_a_heartbeat(
    skilled: World, model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 600.0)
    store = f"sqlite://{tmp_path}/chats.db"
    with serving(app_with(skilled, model, store)) as one, serving(app_with(skilled, model, store)) as other:
        chat = one.chat()
        model.plays(calls(LOAD, RUN), text("All of it ran."))
        with one.saying(chat, "run it"):
            ask = one.waiting(chat)
            follower = Follower(other, path.format(chat=chat))
            follower.until("item", "scripts/echo.sh one")
            one.http.post(f"/api/chats/{chat}/answers/{ask['id']}", json={"answer": "once"})
            follower.until("item", "ran\\n")
            follower.until("item", "All of it ran.")
            follower.until("end")
