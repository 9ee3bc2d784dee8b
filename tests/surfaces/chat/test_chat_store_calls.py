"""How often a turn of a chat calls its store: on a database server, each call is a round trip."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from metier.app import App
from metier.record.store import Draft, Store, open_store
from metier.running.sandbox.fake import FakeRunner
from metier.surfaces.chat import live
from surfaces.chat.openai_server import ModelServer, calls, text
from surfaces.chat.serving import serving
from surfaces.chat.turns import LOAD, answer
from worlds import World

pytestmark = pytest.mark.system

READ = ("skill_read", {"name": "notes", "path": "scripts/echo.sh"})
RUN = ("skill_run", {"name": "notes", "script": "scripts/echo.sh"})
MOST = 15


class CountedStore:
    """A store, with the calls of its methods and the events of each append."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: list[str] = []
        self.appended: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def counted(*args: Any, **named: Any) -> Any:
            self.calls.append(name)
            if name == "append":
                drafts: Iterable[Draft] = args[3]
                self.appended.append([draft.type for draft in drafts])
            return method(*args, **named)

        return counted

    def clear(self) -> None:
        self.calls, self.appended = [], []


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountedStore:
    monkeypatch.setattr(live, "KEEP_SECONDS", 600.0)  # else the count depends on how fast the machine is
    return CountedStore(open_store(str(tmp_path / "chats.db")))


def app_on(store: CountedStore, world: World, model: ModelServer, runner: FakeRunner) -> App:
    settings = {"model": {"provider": "openai", "name": "scripted", "base_url": model.url}}
    app = App(world.project, home=world.home, settings=settings, store=cast("Store", store))
    app.runner = runner
    return app


def test_a_turn_with_two_calls_asks_the_store_a_few_times(
    skilled: World, model: ModelServer, runner: FakeRunner, store: CountedStore
) -> None:
    with serving(app_on(store, skilled, model, runner)) as chatting:
        chat = chatting.chat()
        for _ in range(3):
            store.clear()
            model.plays(calls(LOAD), calls(READ), text("Done."))
            shown = chatting.say(chat, "use the notes")
            assert [item["type"] for item in shown] == ["user", "tool", "tool", "text"]
            assert [item["state"] for item in shown[1:3]] == ["done", "done"]
            assert len(store.calls) <= MOST, store.calls
            assert all(store.appended)
        assert [item["type"] for item in chatting.items(chat)] == ["user", "tool", "tool", "text"] * 3


def test_what_a_card_shows_is_returned_by_its_call_and_not_read_again(
    skilled: World, model: ModelServer, runner: FakeRunner, store: CountedStore
) -> None:
    with serving(app_on(store, skilled, model, runner)) as chatting:
        chat = chatting.chat()
        model.plays(calls(LOAD, RUN), text("It ran."))
        with chatting.saying(chat, "run it") as shown:
            ask = chatting.waiting(chat)
            store.clear()
            assert answer(chatting, chat, ask["id"], "once") == 204
        load, run = (item for item in shown if item["type"] == "tool")
        assert (load["event_seq"] is not None, run["stdout"]) == (True, "ran\n")
        assert "read" not in store.calls, store.calls
        assert all(store.appended)
