"""A name in a message that several skills bear: the person picks one, and the model gets that one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metier import replay
from metier.app import App
from metier.surfaces.chat import turn
from surfaces.chat.openai_server import ModelServer, text
from surfaces.chat.serving import Chatting, JsonItem, app_of, kinds, serving, until
from surfaces.chat.turns import answer
from worlds import World

pytestmark = pytest.mark.system


@pytest.fixture
def twins(world: World) -> list[Path]:
    about = "Draft release notes."
    return [
        world.skill(".agents/skills/twin", description=about, body="FIRST BODY"),
        world.skill("~/.agents/skills/twin", description=about, body="SECOND BODY"),
    ]


@pytest.fixture
def chatting(world: World, twins: list[Path], model: ModelServer) -> Iterator[Chatting]:
    with serving(app_of(world, profile="codelia", provider="openai", name="scripted", base_url=model.url)) as made:
        yield made


def waiting(chatting: Chatting, chat: str) -> JsonItem:
    """The choice that waits for the person."""

    def found() -> JsonItem | None:
        return next((one for one in chatting.items(chat, "choice") if one["state"] == "waiting"), None)

    return until(found, "a choice")


def pick(chatting: Chatting, chat: str, choice: JsonItem, skill_id: object) -> int:
    path = f"/api/chats/{chat}/choices/{choice['id']}"
    return chatting.http.post(path, json={"skill_id": skill_id}).status_code


def told(model: ModelServer) -> str:
    """Everything that the model was sent in its last request."""
    messages: Any = model.requests[-1]["messages"]
    return "\n".join(str(one["content"]) for one in messages)


@pytest.mark.behaviour("N-007")
def test_the_picked_skill_is_loaded_and_no_other(chatting: Chatting, model: ModelServer, twins: list[Path]) -> None:
    chat = chatting.chat()
    with chatting.saying(chat, "use $twin") as shown:
        choice = waiting(chatting, chat)
        assert chatting.read(chat)["status"] == "waiting"
        found = [(one["path"], one["scope"]) for one in choice["candidates"]]
        assert found == [(str(twins[0]), "repo"), (str(twins[1]), "user")]
        ids = [one["skill_id"] for one in choice["candidates"]]
        for in_chat, of, skill_id, status in (
            (chat, choice, "0" * 24, 409),
            (chat, choice, str(twins[1]), 409),
            ("no-such-chat", choice, ids[1], 404),
            (chat, {"id": "x"}, ids[1], 409),
        ):
            assert pick(chatting, in_chat, of, skill_id) == status
        assert answer(chatting, chat, choice["id"], "once") == 409
        assert pick(chatting, chat, choice, ids[1]) == 204
    assert kinds(shown) == ["user", "choice", "tool", "text"], "and no question, because picking is the answer"
    assert (shown[0]["skill"], shown[1]["state"], shown[1]["chosen"]) == ("twin", "chosen", ids[1])
    assert (shown[2]["role"], shown[2]["state"], shown[2]["skill"]) == ("load", "done", "twin")
    assert ("SECOND BODY" in told(model), "FIRST BODY" in told(model)) == (True, False)
    assert pick(chatting, chat, choice, ids[0]) == 409, "it is over"
    model.plays(text("Again."))
    assert kinds(chatting.retry(chat))[-1] == "text"
    assert "SECOND BODY" in told(model), "it stays"
    assert len(chatting.items(chat, "choice")) == 1
    assert replay.replay(replay.from_store(chatting.app.store, chat)).identical


@pytest.mark.behaviour("N-007")
def test_none_may_be_picked_and_a_stopped_turn_or_nobody_picks_none(
    chatting: Chatting, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = chatting.chat()
    with chatting.saying(chat, "use $twin") as shown:
        assert pick(chatting, chat, waiting(chatting, chat), None) == 204
    assert kinds(shown) == ["user", "choice", "text"]
    assert (shown[0]["skill"], shown[1]["state"]) == (None, "none")
    assert "BODY" not in told(model)
    with chatting.saying(chat, "use $twin") as stopped:
        waiting(chatting, chat)
        assert chatting.http.post(f"/api/chats/{chat}/stop").status_code == 204
    assert kinds(stopped) == ["user", "choice", "notice"]
    assert (stopped[1]["state"], len(model.requests)) == ("none", 1)
    monkeypatch.setattr(turn, "ASK_SECONDS", 0.1)
    assert [one["state"] for one in chatting.say(chat, "use $twin") if one["type"] == "choice"] == ["none"]
    assert "BODY" not in told(model)


@pytest.mark.behaviour("N-002")
def test_the_offline_guide_loads_the_first_of_two_hits_by_its_path(world: World, twins: list[Path]) -> None:
    permissions = {"allow": [{"tool": "skill_load"}]}
    app = App(world.project, home=world.home, profile="codelia", settings={"permissions": permissions}, store="memory:")
    with serving(app) as made:
        shown = made.say(made.chat(), "draft release notes")
    assert [(one["role"], one["state"]) for one in shown if one["type"] == "tool"] == [
        ("search", "done"),
        ("load", "done"),
    ]
    assert shown[2]["args"] == {"name": "twin", "path": str(twins[0])}
    assert "The best match is twin." in shown[-1]["text"]
    assert "I loaded twin;" in shown[-1]["text"]
