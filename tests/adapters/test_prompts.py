"""The system prompts that a model gets over several turns: the same from turn to turn, and one in each request."""

import asyncio
from itertools import pairwise
from typing import Any

import endpoints
import pytest
from agents import Runner
from driver_base import Driver
from drivers import each_kind
from framework_drivers import INSTRUCTIONS, OpenAIAgents, ScriptedChatModel
from langchain.agents import create_agent
from langchain_core.messages import SystemMessage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, SystemPromptPart, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from scenario import LOAD, MARK, Model, Step, skills

from metier import Skills
from metier.adapters.langchain import SkillsMiddleware
from metier.adapters.pydantic_ai import SkillsCapability
from worlds import World

TOPICS = ("kettles", "anchors", "jewels")
TURNS = ("Kettles?", "Thank you, go on with that.", "Anchors?", "Jewels?")
BUDGET = 3_000


def crowd(world: World, profile: str = "standard", count: int = 60) -> Skills:
    for number in range(count):
        description = f"Handles case {number} of an office, with much care and without any hurry at all."
        world.skill(f".agents/skills/a-filler-{number:03}", description=description)
    for topic in TOPICS:
        world.skill(f".agents/skills/z-{topic}", description=f"Knows {topic}.")
    return world.discover(profile, roots=[world.project / ".agents/skills"], settings={"enabled": True})


def systems(model: Model) -> list[str]:
    return [shown.system for shown in model.shown]


# --- from turn to turn ---


@each_kind
def test_a_catalog_that_does_not_fit_only_grows_at_its_end(driver: type[Driver], world: World) -> None:
    model = Model(["Well."] * len(TURNS))
    agent = driver(crowd(world), model, budget=BUDGET)
    for message in TURNS:
        agent.say(message)
    texts = systems(model)
    assert texts[1] == texts[0]
    for before, after in pairwise(texts):
        assert after.startswith(before[: before.rindex("</skill>")])
    added = [f"<name>z-{topic}</name>" for topic in TOPICS]
    assert all(texts[-1].index(one) < texts[-1].index(other) for one, other in pairwise(added))
    shown = [[one in text for one in added] for text in texts]
    assert shown == [[True, False, False], [True, False, False], [True, True, False], [True, True, True]]
    assert all(one in texts[-1] for one in ("a-filler-000", "a-filler-001"))


# --- one system prompt ---


@each_kind
def test_a_request_has_one_system_prompt_and_skills_put_back_stay_in_place(driver: type[Driver], world: World) -> None:
    steps: list[Step] = [LOAD, "Well.", ("skill_load", {"name": "knots"}), "Well.", "Well.", "Well."]
    model = Model(steps)
    alone = driver.__name__ == "PydanticAIToolset"  # it cannot join the agent's own, nor see the messages that are sent
    agent = driver(skills(world), model, window=2 if alone else 1)
    for message in ("Cut wood.", "Tie a knot.", "And now?", "And then?"):
        agent.say(message)
    assert {shown.prompts for shown in model.shown} == {2 if alone else 1}
    texts = systems(model)
    assert all(text.startswith(INSTRUCTIONS) for text in texts)
    assert texts[-1].index(MARK) < texts[-1].index("Over, under, through.")
    if not alone:
        assert texts[-1] == texts[-2]
        assert MARK in texts[-3]
        assert "Over, under" not in texts[-3]


def test_langchain_extends_a_system_message_among_the_messages(world: World) -> None:
    model = Model(["Hello.", "Hello."])
    agent: Any = create_agent(ScriptedChatModel(script=model), middleware=[SkillsMiddleware(skills(world))])
    blocks: list[str | dict[Any, Any]] = [
        {"type": "text", "text": INSTRUCTIONS, "cache_control": {"type": "ephemeral"}}
    ]
    for own in (INSTRUCTIONS, blocks):
        agent.invoke({"messages": [SystemMessage(own), {"role": "user", "content": "Hi"}]})
    assert [shown.prompts for shown in model.shown] == [1, 1]
    assert all(text.startswith(INSTRUCTIONS) and "carpentry" in text for text in systems(model))


def test_the_agents_sdk_gets_one_system_prompt(world: World) -> None:
    model = Model(["Hello."])
    driver = OpenAIAgents(skills(world), model)
    given: Any = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    asyncio.run(Runner.run(driver.agent, given, run_config=driver.config))
    assert model.shown[0].prompts == 1
    assert all(part in model.shown[0].system for part in ("Be kind.", INSTRUCTIONS, "<name>carpentry</name>"))


@pytest.mark.system
def test_pydantic_ai_sends_one_system_message_whatever_else_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    model = Model(["Hello.", "Hello."])
    history: list[ModelMessage] = []

    async def converse(url: str) -> None:
        provider = OpenAIProvider(base_url=url, api_key="none")
        agent = Agent(
            OpenAIChatModel("m", provider=provider),
            system_prompt="Be kind.",
            instructions=[INSTRUCTIONS, lambda: "Today is Monday."],
            capabilities=[SkillsCapability(skills(world))],
        )
        first = await agent.run("Hi")
        second = await agent.run("Hi again", message_history=first.all_messages())
        history.extend(second.all_messages())

    with endpoints.serve(model) as url:
        asyncio.run(converse(url))
    assert [shown.prompts for shown in model.shown] == [1, 1]
    (text,) = {*systems(model)}
    assert text.startswith(f"Be kind.\n\n{INSTRUCTIONS}\n\nToday is Monday.\n\nSkills are")
    assert text.count("Be kind.") == 1
    kept = [part.content for part in history[0].parts if isinstance(part, SystemPromptPart | UserPromptPart)]
    assert kept == ["Be kind.", "Hi"], "the history keeps the agent's own prompt"
