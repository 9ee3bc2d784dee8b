"""The product as a server for tests: a real one on loopback, and a client that reads its streams as a page would."""

import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx2

from metier.app import App
from metier.surfaces.web.guard import Gate
from patience import PATIENCE
from surfaces.web.processes import running
from worlds import World

TOKEN = "the-token-of-the-tests"
JsonItem = dict[str, Any]
"""An item as the API sends it."""

T = TypeVar("T")


def until(ready: Callable[[], T | None], what: str = "it") -> T:
    """The first true value of a condition."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = ready()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen")


class Chatting:
    """A client of one server."""

    def __init__(self, app: App, url: str) -> None:
        self.app = app
        headers = {"authorization": f"Bearer {TOKEN}"}
        self.http = httpx2.Client(base_url=url, headers=headers, timeout=PATIENCE, trust_env=False)

    def chat(self) -> str:
        return self.http.post("/api/chats").json()["id"]

    def say(self, chat: str, text: str) -> list[JsonItem]:
        """The items of a turn as they were at its end."""
        return list(self.stream("POST", f"/api/chats/{chat}/messages", {"text": text}).values())

    def retry(self, chat: str) -> list[JsonItem]:
        return list(self.stream("POST", f"/api/chats/{chat}/retry").values())

    def stream(self, method: str, path: str, body: object = None) -> dict[str, JsonItem]:
        shown: dict[str, JsonItem] = {}
        for event, data in self.messages(method, path, body):
            if event == "item":
                shown[data["id"]] = data
            elif event == "delta":
                shown[data["id"]]["text"] += data["text"]
        return shown

    def messages(self, method: str, path: str, body: object = None) -> Generator[tuple[str, JsonItem]]:
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

    def items(self, chat: str, kind: str | None = None) -> list[JsonItem]:
        return [item for item in self.read(chat)["items"] if kind in (None, item["type"])]

    def waiting(self, chat: str) -> JsonItem:
        """The question that waits for an answer."""
        return until(
            lambda: next((item for item in self.items(chat, "ask") if item["state"] == "waiting"), None), "a question"
        )

    @contextmanager
    def saying(self, chat: str, text: str) -> Generator[list[JsonItem]]:
        """Send a message and do not wait for its turn. The list has the items of the turn afterwards."""
        shown: list[JsonItem] = []
        thread = threading.Thread(target=lambda: shown.extend(self.say(chat, text)))
        thread.start()
        try:
            yield shown
        finally:
            thread.join()
        assert not thread.is_alive(), "the turn does not end"


@contextmanager
def serving(app: App) -> Generator[Chatting]:
    """A server for an app. The app is closed with the server."""
    with running(app, Gate(token=TOKEN)) as (_, url):
        chatting = Chatting(app, url)
        try:
            yield chatting
        finally:
            chatting.http.close()


def app_of(world: World, store: str = "memory:", profile: str | None = None, **model: object) -> App:
    """An app for a world, with a model as the user's own file sets it up."""
    settings: dict[str, object] = {"model": model} if model else {}
    if profile == "remcochat":
        settings["enabled"] = True
    return App(world.project, home=world.home, profile=profile, settings=settings, store=store)


def kinds(items: list[JsonItem]) -> list[str]:
    return [item["type"] for item in items]
