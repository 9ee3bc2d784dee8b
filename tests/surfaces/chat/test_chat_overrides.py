"""What a skill may propose for its turn of a chat: the model, if policy grants it and the server has it."""

import json
from collections.abc import Iterator

import pytest

from metier.running.sandbox.fake import FakeRunner
from surfaces.chat.openai_server import ModelServer, calls, status, text
from surfaces.chat.serving import Chatting, JsonItem, serving
from surfaces.chat.turns import app_with
from worlds import World

pytestmark = pytest.mark.system

LOAD = ("skill_load", {"name": "deep"})


@pytest.fixture
def chatting(world: World, model: ModelServer, runner: FakeRunner) -> Iterator[Chatting]:
    world.skill(".agents/skills/deep", model="large", overrides={"tools": {"Bash": {"timeout": 5}}})
    world.configure_user('[permissions]\nallow = [{ tool = "override" }]\n')
    with serving(app_with(world, model, runner)) as made:
        yield made


def asked(model: ModelServer) -> list[str]:
    return [request["model"] for request in model.requests]


def notices(shown: list[JsonItem]) -> list[str]:
    return [item["text"] for item in shown if item["type"] == "notice"]


def test_the_model_that_a_skill_asks_for_answers_until_the_turn_ends(chatting: Chatting, model: ModelServer) -> None:
    chat = chatting.chat()
    model.plays(calls(LOAD), text("Deep."), text("Shallow."))
    shown = chatting.say(chat, "think")
    assert asked(model) == ["scripted", "large"]
    assert notices(shown) == ["A skill asked for the model large, which answers now."]
    chatting.say(chat, "and now")
    assert asked(model) == ["scripted", "large", "scripted"]


def test_a_model_that_the_server_does_not_have_does_not_end_the_turn(chatting: Chatting, model: ModelServer) -> None:
    model.plays(calls(LOAD), status(404, "no such model"), calls(LOAD), text("Shallow."))
    shown = chatting.say(chatting.chat(), "think")
    assert asked(model) == ["scripted", "large", "scripted", "scripted"]
    assert notices(shown)[-1] == "The server does not have the model large, so scripted answers."
    assert shown[-1]["text"] == "Shallow."


def test_what_the_chat_does_not_apply_is_not_granted(chatting: Chatting, model: ModelServer) -> None:
    chat = chatting.chat()
    model.plays(calls(LOAD), text("Deep."))
    chatting.say(chat, "think")
    frames = [frame for frame in chatting.app.session(chat).events if frame["type"] == "skill_override_proposed"]
    granted = {frame["key"]: (frame["granted"], frame["rule"]) for frame in frames}
    assert granted["model"] == (True, "allow rule: tool = 'override'")
    assert granted["tools.Bash"] == (False, "this host does not apply what a skill proposes for 'tools'")
    assert json.dumps(chatting.app.session(chat).overrides) == '{"model": "large"}'
