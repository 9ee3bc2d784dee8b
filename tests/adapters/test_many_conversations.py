"""An agent with many conversations: each has its own session, and another process can continue it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from framework_drivers import ScriptedChatModel, pydantic_model
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai import Agent
from scenario import LOAD, MARK, READ, Model, skills, write_skills

from metier.adapters import conversation
from metier.adapters.conversation import Conversations
from metier.adapters.langchain import SkillsMiddleware
from metier.adapters.pydantic_ai import SkillsCapability
from metier.app import App
from metier.errors import StoreError
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


def served(world: World, kind: str, store: str) -> Any:
    """What an adapter is given in a process that keeps its sessions in a store, and its options."""
    if kind == "app":
        return App(world.project, home=world.home, store=store), {}
    return world.discover(), {"store": store}


@pytest.mark.parametrize("kind", ["app", "skills"])
def test_a_conversation_is_taken_up_elsewhere_as_it_was_left(world: World, tmp_path: Path, kind: str) -> None:
    """Each middleware knows of the other one only what the store has."""
    write_skills(world)
    memory, model = InMemorySaver(), Model([LOAD, "Loaded.", LOAD, "Known.", "Yes."])
    own: list[SkillsMiddleware] = []
    for _ in range(2):
        given, options = served(world, kind, f"sqlite:///{tmp_path / 'store.db'}")
        own.append(SkillsMiddleware(given, **options))
    one, two = (create_agent(ScriptedChatModel(script=model), middleware=[each], checkpointer=memory) for each in own)
    for agent, message in ((one, "Cut."), (two, "Again."), (one, "Still?")):
        say(agent, "1", message)
    assert "is already loaded and unchanged" in model.shown[3].texts[-1]
    assert [shown.count() for shown in model.shown] == [0, 1, 1, 1, 1]
    assert [(each.session.id, each.session.activated) for each in own] == [("1", ["carpentry"])] * 2


def test_a_conversation_goes_on_as_it_began(world: World, tmp_path: Path) -> None:
    write_skills(world)
    store = f"sqlite:///{tmp_path / 'store.db'}"
    begun = Conversations(world.discover(), "test", store=store, only=["carpentry"], preload=["carpentry"]).of("1")
    later = Conversations(world.discover(), "test", store=store)
    for one in (begun, later.of("1")):
        assert one.system("", [], None).text.count(MARK) == 1
    assert [skill.name for skill in later.of("1").session.visible()] == ["carpentry"]
    assert later.of("2").session.activated == [], "a conversation sees nothing of another"
    with pytest.raises(StoreError, match="is reserved"):
        later.of("1/offers")


def test_the_conversations_that_are_kept_ready_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "SESSIONS", 2)
    several = Conversations(skills(world), "test")
    first = several.of("1")
    assert several.of("1") is first is several.last()
    assert several.of("2") is not several.of("3")
    assert several.of("1") is not first
