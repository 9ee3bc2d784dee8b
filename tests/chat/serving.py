"""The product as a server for tests: a real one on loopback, and a client that reads its streams as a page would."""

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import uvicorn

from metier.app import App
from metier.web.api import build
from worlds import World

PATIENCE = 30.0
Item = dict[str, Any]


def until(ready: Callable[[], Any], what: str = "it") -> Any:
    """What a condition gives once it gives something."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = ready()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen")


class Chatting:
    """One server, one chat after another."""

    def __init__(self, app: App, url: str) -> None:
        self.app = app
        self.http = httpx2.Client(base_url=url, timeout=PATIENCE, trust_env=False)

    def chat(self) -> str:
        return self.http.post("/api/chats").json()["id"]

    def say(self, chat: str, text: str) -> list[Item]:
        """The items of a turn as they were at its end."""
        return list(self.stream("POST", f"/api/chats/{chat}/messages", {"text": text}).values())

    def retry(self, chat: str) -> list[Item]:
        return list(self.stream("POST", f"/api/chats/{chat}/retry").values())

    def stream(self, method: str, path: str, body: Any = None) -> dict[str, Item]:
        shown: dict[str, Item] = {}
        for event, data in self.messages(method, path, body):
            if event == "item":
                shown[data["id"]] = data
            elif event == "delta":
                shown[data["id"]]["text"] += data["text"]
        return shown

    def messages(self, method: str, path: str, body: Any = None) -> Iterator[tuple[str, Any]]:
        with self.http.stream(method, path, json=body) as answer:
            assert answer.status_code == 200, answer.read()
            event = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    event = value
                elif name == "data":
                    yield event, json.loads(value)

    def read(self, chat: str) -> dict[str, Any]:
        return self.http.get(f"/api/chats/{chat}").json()

    def items(self, chat: str, kind: str | None = None) -> list[Item]:
        return [item for item in self.read(chat)["items"] if kind in (None, item["type"])]

    def waiting(self, chat: str) -> Item:
        """The question that waits for an answer."""
        return until(
            lambda: next((item for item in self.items(chat, "ask") if item["state"] == "waiting"), None), "a question"
        )

    def idle(self, chat: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            found = self.read(chat)
            return found if found["status"] == "idle" else None

        return until(ended, "the end of the turn")

    @contextmanager
    def saying(self, chat: str, text: str) -> Generator[list[Item]]:
        """A message whose turn goes on beside the test; its items are there when this is left."""
        shown: list[Item] = []
        thread = threading.Thread(target=lambda: shown.extend(self.say(chat, text)))
        thread.start()
        try:
            yield shown
        finally:
            thread.join(PATIENCE)
        assert not thread.is_alive(), "the turn does not end"


@contextmanager
def serving(app: App) -> Generator[Chatting]:
    """A server of an app, which is closed with it."""
    config = uvicorn.Config(
        build(app, watch=False), host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=3, ws="none"
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the start of the server")
        port = server.servers[0].sockets[0].getsockname()[1]
        chatting = Chatting(app, f"http://127.0.0.1:{port}")
        try:
            yield chatting
        finally:
            chatting.http.close()
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        app.close()
    assert not thread.is_alive(), "the server does not end"


def app_of(world: World, store: str = "memory:", profile: str | None = None, **model: Any) -> App:
    """An app on a world, with a model set up as in the user's own file."""
    settings: dict[str, Any] = {"model": model} if model else {}
    if profile == "remcochat":
        settings["enabled"] = True
    return App(world.project, home=world.home, profile=profile, settings=settings, store=store)


def kinds(items: list[Item]) -> list[str]:
    return [item["type"] for item in items]
