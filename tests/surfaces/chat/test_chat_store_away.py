"""A chat whose store goes away: the turn ends and says why, nothing runs, and the chat goes on when it is back."""

import pytest

from metier.running.sandbox.fake import FakeRunner
from metier.surfaces.chat import chat_store
from store_trouble import PASSWORD, TroubledStore
from surfaces.chat.openai_server import Handler, ModelServer, calls, text
from surfaces.chat.serving import serving, until
from surfaces.chat.turns import LOAD, RUN, app_with
from worlds import World

pytest_plugins = ["store_fixtures"]

pytestmark = pytest.mark.system


def test_a_turn_ends_with_the_trouble_of_the_store_and_the_chat_goes_on_later(
    skilled: World, model: ModelServer, runner: FakeRunner, troubled: TroubledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_store, "LEASE_MS", 5_000)

    def leaving(handler: Handler) -> None:
        troubled.leave()
        calls(LOAD, RUN)(handler)

    with serving(app_with(skilled, model, runner, troubled.url)) as chatting:
        chat = chatting.chat()
        model.plays(leaving)
        shown = chatting.say(chat, "load it")
        assert shown[-1]["type"] == "error"
        assert troubled.told in shown[-1]["message"]
        assert PASSWORD not in shown[-1]["message"]
        refused = chatting.http.post("/api/chats")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "STORE_UNAVAILABLE")
        assert runner.jobs == []

        troubled.come_back()
        until(lambda: chatting.read(chat)["status"] == "idle", "the end of the lease")
        model.plays(calls(LOAD), text("It is loaded."))
        items = chatting.say(chat, "load it now")
        assert items[-1]["text"] == "It is loaded."
        assert [item["state"] for item in items if item["type"] == "tool"] == ["done"]
        assert chatting.read(chat)["skills"] == ["notes"]
