"""An agent without anybody to ask: its run ends as usual, and the model reads what would allow the script.

The status of a result reaches the model in the framework's own way, where it has one.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pydantic_ai
import pytest
from agents import Agent as OpenAIAgent
from agents import RunConfig, Runner
from framework_drivers import ScriptedAgentsModel, ScriptedChatModel, pydantic_model
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ToolReturnPart
from scenario import DENIED, LOAD, POLICY, READ, RUN, Model, runner, skills

from metier import replay
from metier.adapters.langchain import SkillsMiddleware, skill_tools
from metier.adapters.openai_agents import AgentSkills
from metier.adapters.pydantic_ai import SkillsCapability, SkillsToolset
from metier.record.store.memory import MemoryStore
from metier.session.session import Session
from worlds import World


def check(told: str, world: World) -> None:
    """What the model reads: the refusal, the rule that would allow the call, and that a callback would."""
    assert "policy refuses skill_run for carpentry (it must be confirmed, and nobody can be asked here" in told
    assert "a host with an approve callback" in told
    rule = told.partition("allow = [")[2].partition("]")[0]
    world.configure_user(f"[permissions]\nallow = [{rule}]\n")
    after = skills(world).session(runner=runner())
    after.call(*LOAD)
    assert after.call(*RUN).ok


def pydantic(model: Model, toolset: SkillsCapability | SkillsToolset, **given: Any) -> Any:
    own: dict[str, Any] = {"capabilities": [toolset]}
    if isinstance(toolset, SkillsToolset):
        own = {"toolsets": [toolset]}
    return asyncio.run(Agent(pydantic_model(model), **own, **given).run("Cut."))


def langchain(model: Model, found: Any, *, memory: bool = False, **given: Any) -> tuple[dict[str, Any], Session]:
    own: SkillsMiddleware = SkillsMiddleware(found, **given)
    checkpointer = InMemorySaver() if memory else None
    agent: Any = create_agent(ScriptedChatModel(script=model), middleware=[own], checkpointer=checkpointer)
    config = {"configurable": {"thread_id": "1"}}
    return agent.invoke({"messages": [HumanMessage("Cut.")]}, config), own.session


def by_pydantic(kind: Any, approvals: bool | None) -> Callable[..., tuple[str, Session]]:
    def run(model: Model, found: Any, **given: Any) -> tuple[str, Session]:
        own = kind(found, approvals=approvals, **given)
        return pydantic(model, own).output, own.session

    return run


def by_langchain(**options: Any) -> Callable[..., tuple[str, Session]]:
    def run(model: Model, found: Any, **given: Any) -> tuple[str, Session]:
        state, session = langchain(model, found, **options, **given)
        assert "__interrupt__" not in state
        return state["messages"][-1].text, session

    return run


def by_openai_agents(model: Model, found: Any, **given: Any) -> tuple[str, Session]:
    own = AgentSkills(found, **given)
    agent = OpenAIAgent[object](
        name="joiner", instructions=own.instructions(), tools=own.tools(), model=ScriptedAgentsModel(model)
    )
    done = asyncio.run(Runner.run(agent, "Cut.", run_config=RunConfig(tracing_disabled=True)))
    assert done.interruptions == []
    return done.final_output, own.session


WAYS = {
    "a Pydantic AI capability without deferred requests": by_pydantic(SkillsCapability, None),
    "a Pydantic AI capability that asks nobody": by_pydantic(SkillsCapability, False),
    "a Pydantic AI toolset": by_pydantic(SkillsToolset, None),
    "LangChain without a checkpointer": by_langchain(),
    "LangChain that asks nobody": by_langchain(memory=True, approvals=False),
    "OpenAI agents that are not told to interrupt": by_openai_agents,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_run_ends_as_usual_and_the_model_reads_what_would_allow_the_script(way: str, world: World) -> None:
    model, store, fake = Model([LOAD, RUN, "I may not."]), MemoryStore(), runner()
    said, session = WAYS[way](model, skills(world), store=store, runner=fake)
    assert (said, fake.jobs) == ("I may not.", [])
    assert replay.replay(replay.from_store(store, session.id)).identical
    check(model.shown[-1].texts[-1], world)


def test_pydantic_ai_keeps_the_approvals_that_an_agent_has_unless_it_is_told_otherwise(world: World) -> None:
    deferred: Any = [str, DeferredToolRequests]
    for output in (deferred, str | DeferredToolRequests):
        own = SkillsToolset(skills(world), runner=runner())
        assert isinstance(pydantic(Model([LOAD, RUN]), own, output_type=output).output, DeferredToolRequests)
    always = SkillsToolset(skills(world), runner=runner(), approvals=True)
    agent = Agent(pydantic_model(Model([LOAD, RUN])), toolsets=[always])
    assert isinstance(asyncio.run(agent.run("Cut.", output_type=deferred)).output, DeferredToolRequests)
    never = SkillsToolset(skills(world), runner=runner(), approvals=False)
    assert pydantic(Model([LOAD, RUN, "No."]), never, output_type=deferred).output == "No."


def test_a_failed_call_is_marked_as_failed_and_keeps_its_data(world: World) -> None:
    calls = [LOAD, DENIED, RUN, READ, "Done."]
    done = pydantic(Model([*calls]), SkillsCapability(skills(world), runner=runner(), policy=POLICY))
    parts = [part for message in done.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    failed = "failed" if hasattr(pydantic_ai, "ToolFailed") else "success"
    assert [part.outcome for part in parts] == ["success", failed, failed, "success"]
    state, _ = langchain(Model([*calls]), skills(world), runner=runner(), policy=POLICY)
    results = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert [message.status for message in results] == ["success", "error", "error", "success"]
    assert [message.artifact["ok"] for message in results] == [True, False, False, True]
    assert results[2].artifact["error"]["code"] == "ACCESS_DENIED"


def test_langchain_tools_outside_of_a_graph(world: World) -> None:
    tools = {tool.name: tool for tool in skill_tools(skills(world), runner=runner())}
    assert "Measure twice" in tools["skill_load"].invoke(LOAD[1])
    told = tools["skill_run"].invoke({"type": "tool_call", "id": "1", "name": "skill_run", "args": RUN[1]})
    assert told.status == "error"
    check(told.text, world)
