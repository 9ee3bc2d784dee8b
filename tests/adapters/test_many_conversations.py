"""An agent with many conversations: each has its own session, and another process can continue it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from framework_drivers import ScriptedChatModel, pydantic_model
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai import Agent
from scenario import LOAD, READ, Model, skills, write_skills

from metier.adapters import conversation
from metier.adapters.conversation import Conversations
from metier.adapters.langchain import SkillsMiddleware
from metier.adapters.pydantic_ai import SkillsCapability
from metier.app import App
from worlds import World


def say(agent: Any, thread: str, message: str) -> None:
    given = {"messages": [{"role": "user", "content": message}]}
    agent.invoke(given, {"configurable": {"thread_id": thread}})


def test_each_thread_of_a_graph_has_its_own_session(world: World) -> None:
    model = Model([LOAD, "Loaded.", "Hello.", READ, "Oak."])
    own = SkillsMiddleware(skills(world))
    agent: Any = create_agent(ScriptedChatModel(script=model), middleware=[own], checkpointer=InMemorySaver())
    say(agent, "1", "Cut.")
    say(agent, "2", "Hi.")
    assert own.session.activated == []
    assert (model.shown[2].count(), "activated" in model.shown[2].system) == (0, False)
    say(agent, "1", "Is oak hard?")
    assert own.session.activated == ["carpentry"]
    assert model.shown[-1].count() == 1


def test_each_conversation_of_an_agent_has_its_own_session(world: World) -> None:
    model = Model([LOAD, "Loaded.", "Hello.", "Still there."])
    agent = Agent(pydantic_model(model), capabilities=[SkillsCapability(skills(world))])

    async def run() -> None:
        first = await agent.run("Cut.")
        await agent.run("Hi.")
        await agent.run("And?", message_history=first.all_messages())

    asyncio.run(run())
    assert [shown.count() for shown in model.shown] == [0, 1, 0, 1]


def test_a_thread_is_taken_up_by_another_process_as_it_was_left(world: World, tmp_path: Path) -> None:
    write_skills(world)
    memory, store = InMemorySaver(), f"sqlite:///{tmp_path / 'store.db'}"
    model = Model([LOAD, "Loaded.", LOAD, "Known.", "Yes."])
    apps = [App(world.project, home=world.home, store=store) for _ in range(2)]
    one, two = (
        create_agent(ScriptedChatModel(script=model), middleware=[SkillsMiddleware(app)], checkpointer=memory)
        for app in apps
    )
    say(one, "1", "Cut.")
    say(two, "1", "Again.")
    say(one, "1", "Still?")
    assert "is already loaded and unchanged" in model.shown[3].texts[-1]
    assert [shown.count() for shown in model.shown] == [0, 1, 1, 1, 1]
    assert [session.activated for session in (app.session("1") for app in apps)] == [["carpentry"]] * 2
    for app in apps:
        app.close()


def test_the_conversations_that_are_kept_ready_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "SESSIONS", 2)
    several = Conversations(skills(world), "test")
    first = several.of("1")
    assert several.of("1") is first is several.last()
    assert several.of("2") is not several.of("3")
    assert several.of("1") is not first
