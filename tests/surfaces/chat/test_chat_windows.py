"""The chat is a surface like the others: a skill's window refuses a model's call, and every load leaves its frame."""

import pytest

from metier.running.sandbox.fake import FakeRunner
from surfaces.chat.openai_server import ModelServer, calls, text
from surfaces.chat.serving import app_of, serving
from worlds import World

pytestmark = pytest.mark.system

RUN = ("skill_run", {"name": "probe", "script": "scripts/x.sh"})


@pytest.mark.behaviour("R-026", "R-041", "R-031", "N-070")
def test_a_window_refuses_a_call_in_the_chat_until_the_users_next_message(
    world: World, model: ModelServer, runner: FakeRunner
) -> None:
    world.skill(".rip/skills/probe", body="# Probe\n", files={"scripts/x.sh": "#!/bin/sh\n"})
    world.skill(".rip/skills/narrow", body="# Narrow $1 on $ARGUMENTS\n", allowed_tools="Read")
    world.trust()
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[permissions]\nallow = [{tool = "skill_run", skill_name = "probe"}]\n')
    app = app_of(world, profile="rip", provider="openai", name="scripted", base_url=model.url)
    app.runner = runner
    with serving(app) as chatting:
        chat = chatting.chat()
        model.plays(calls(("skill_load", {"name": "probe"}), RUN), text("Ran."))
        chatting.say(chat, "run it")
        model.plays(calls(RUN), text("Refused."))
        chatting.say(chat, "/skill:narrow a b")
        model.plays(calls(RUN), text("Ran again."))
        chatting.say(chat, "now run it")
        results = [
            message["content"]
            for message in model.requests[-1]["messages"]
            if message["role"] == "tool" and "# Probe" not in message["content"]
        ]
        assert [result.startswith("ran") for result in results] == [True, False, True], results
        assert "the skill narrow is active until the next turn" in results[1]
        assert len(runner.jobs) == 2
        sent = str(model.requests[-1]["messages"])
        assert "# Narrow $1 on a b" in sent
        assert "ARGUMENTS: a b" in sent
        frames = app.session(chat).events
        assert [frame["name"] for frame in frames if frame["type"] == "skill_loaded"] == ["probe", "narrow"]
        assert [frame["mode"] for frame in frames if frame["type"] == "skill_invoked"] == ["auto", "manual"]
