"""An agent without anybody to ask: its run ends as usual, and the model reads what would allow the script.

The status of a result reaches the model in the framework's own way, where it has one.
"""

import asyncio
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
from metier.app import App
from metier.record.store.memory import MemoryStore
from metier.running import scripts
from worlds import World


def check(told: str, world: World) -> None:
    """What the model reads: the refusal, the rule that would allow the call, and that a callback would."""
    assert "policy refuses skill_run for carpentry (it must be confirmed, and nobody can be asked here" in told
    assert "a host with an approve callback" in told
    rule = told.partition("allow = [")[2].partition("]")[0]
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"[permissions]\nallow = [{rule}]\n")
    after = skills(world).session(runner=runner())
    after.call(*LOAD)
    assert after.call(*RUN).ok


def pydantic(model: Model, toolset: SkillsCapability | SkillsToolset, **given: Any) -> Any:
    own: dict[str, Any] = {"capabilities": [toolset]}
    if isinstance(toolset, SkillsToolset):
        own = {"toolsets": [toolset]}
    return asyncio.run(Agent(pydantic_model(model), **own, **given).run("Cut."))


@pytest.mark.parametrize("kind", [SkillsCapability, SkillsToolset])
@pytest.mark.parametrize("approvals", [None, False])
def test_pydantic_ai_without_deferred_requests(world: World, kind: Any, approvals: bool | None) -> None:
    model, store, fake = Model([LOAD, RUN, "I may not."]), MemoryStore(), runner()
    own = kind(skills(world), store=store, runner=fake, approvals=approvals)
    assert pydantic(model, own).output == "I may not."
    assert fake.jobs == []
    assert replay.replay(replay.from_store(store, own.session.id)).identical
    check(model.shown[-1].texts[-1], world)


@pytest.mark.parametrize("output", [[str, DeferredToolRequests], str | DeferredToolRequests])
def test_pydantic_ai_keeps_the_approvals_that_an_agent_has(world: World, output: Any) -> None:
    model = Model([LOAD, RUN])
    own = SkillsToolset(skills(world), runner=runner())
    assert isinstance(pydantic(model, own, output_type=output).output, DeferredToolRequests)


def test_pydantic_ai_takes_your_word_for_a_run_with_other_outputs(world: World) -> None:
    model = Model([LOAD, RUN])
    agent = Agent(pydantic_model(model), toolsets=[SkillsToolset(skills(world), runner=runner(), approvals=True)])
    done = asyncio.run(agent.run("Cut.", output_type=[str, DeferredToolRequests]))
    assert isinstance(done.output, DeferredToolRequests)
    never = SkillsToolset(skills(world), runner=runner(), approvals=False)
    model = Model([LOAD, RUN, "No."])
    assert pydantic(model, never, output_type=[str, DeferredToolRequests]).output == "No."


def test_pydantic_ai_marks_a_failed_call_as_failed(world: World) -> None:
    model = Model([LOAD, DENIED, RUN, "Done."])
    done = pydantic(model, SkillsCapability(skills(world), runner=runner(), policy=POLICY))
    parts = [part for message in done.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    wanted = ["success", "failed", "failed"] if hasattr(pydantic_ai, "ToolFailed") else ["success"] * 3
    assert [part.outcome for part in parts] == wanted


def langchain(model: Model, *, memory: bool = False, **given: Any) -> tuple[dict[str, Any], SkillsMiddleware]:
    own: SkillsMiddleware = SkillsMiddleware(given.pop("skills"), **given)
    checkpointer = InMemorySaver() if memory else None
    agent: Any = create_agent(ScriptedChatModel(script=model), middleware=[own], checkpointer=checkpointer)
    config = {"configurable": {"thread_id": "1"}}
    return agent.invoke({"messages": [HumanMessage("Cut.")]}, config), own


def test_langchain_without_a_checkpointer(world: World) -> None:
    model, store, fake = Model([LOAD, RUN, "I may not."]), MemoryStore(), runner()
    state, own = langchain(model, skills=skills(world), store=store, runner=fake)
    assert state["messages"][-1].text == "I may not."
    assert "__interrupt__" not in state
    assert fake.jobs == []
    assert replay.replay(replay.from_store(store, own.session.id)).identical
    check(model.shown[-1].texts[-1], world)


def test_langchain_that_is_told_to_ask_nobody(world: World) -> None:
    model = Model([LOAD, RUN, "I may not."])
    state, _ = langchain(model, skills=skills(world), runner=runner(), memory=True, approvals=False)
    assert state["messages"][-1].text == "I may not."
    check(model.shown[-1].texts[-1], world)


def test_langchain_marks_a_failed_call_with_its_status_and_keeps_its_data(world: World) -> None:
    model = Model([LOAD, DENIED, RUN, READ, "Done."])
    state, _ = langchain(model, skills=skills(world), runner=runner(), policy=POLICY)
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


def test_openai_agents_that_are_not_told_to_interrupt(world: World) -> None:
    model, fake = Model([LOAD, RUN, "I may not."]), runner()
    own = AgentSkills(skills(world), runner=fake)
    agent = OpenAIAgent[object](
        name="joiner", instructions=own.instructions(), tools=own.tools(), model=ScriptedAgentsModel(model)
    )
    done = asyncio.run(Runner.run(agent, "Cut.", run_config=RunConfig(tracing_disabled=True)))
    assert (done.final_output, done.interruptions, fake.jobs) == ("I may not.", [], [])
    check(model.shown[-1].texts[-1], world)


def test_the_sessions_of_an_app_ask_nobody_either(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = runner()
    monkeypatch.setattr(scripts, "default_runner", lambda _: fake)
    skills(world)
    app = App(world.project, home=world.home, store=f"sqlite:///{world.home / 'store.db'}")
    model = Model([LOAD, RUN, "I may not."])
    state, own = langchain(model, skills=app)
    assert (state["messages"][-1].text, fake.jobs) == ("I may not.", [])
    (asked,) = [frame for frame in own.session.events if frame["type"] == "policy_asked"]
    assert asked["answer"] == "nobody"
    app.close()
    check(model.shown[-1].texts[-1], world)
