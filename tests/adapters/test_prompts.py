"""The system prompts that a model gets over several turns: the same from turn to turn, and one in each request."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import endpoints
import pytest
from driver_base import Driver
from drivers import DRIVERS, names
from framework_drivers import INSTRUCTIONS, ScriptedAgentsModel, ScriptedChatModel
from langchain.agents import create_agent
from langchain_core.messages import SystemMessage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, SystemPromptPart, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from scenario import LOAD, MARK, Model, Step, skills

from metier import Skills
from metier.adapters.conversation import Conversation
from metier.adapters.langchain import SkillsMiddleware
from metier.adapters.openai_agents import AgentSkills, keep_skills
from metier.adapters.pydantic_ai import SkillsCapability, SkillsToolset
from worlds import World

KINDS = [driver for driver in DRIVERS if not driver.__name__.endswith("Async")]
TRIMMING = [driver for driver in KINDS if driver.__name__ != "PydanticAIToolset"]
"""Those that see the messages as they are sent."""
each = pytest.mark.parametrize("driver", KINDS, ids=names(KINDS))
TOPICS = ("kettles", "anchors", "jewels")
TURNS = ("Kettles?", "Thank you, go on with that.", "Anchors?", "Jewels?")
BUDGET = 3_000


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


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


@each
def test_a_catalog_that_fits_gives_every_turn_the_same_prompt(driver: type[Driver], world: World) -> None:
    model = Model(["Well.", "Well.", LOAD, "Done.", "Well."])
    agent = driver(skills(world), model)
    for message in ("Tie a knot.", "Work with wood.", "Load it, now.", "Open the lock."):
        agent.say(message)
    before, after = systems(model)[:3], systems(model)[3:]
    assert len({*before}) == len({*after}) == 1
    assert after[0] == before[0] + "\n\nSkills activated in this conversation: carpentry"


@each
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


@pytest.mark.parametrize("profile", ["codelia", "mycodeagent", "remcochat"])
def test_the_prompts_of_hosts_that_fix_their_list_stay_the_same(profile: str, world: World, tmp_path: Path) -> None:
    found = crowd(world, profile)
    texts: list[str] = []
    store = f"sqlite://{tmp_path}/trail.db"
    for message in TURNS:  # each turn in a life of its own
        one = Conversation.of(found, "test", asks=False, id="s", store=store, budget=BUDGET)
        texts.append(one.system(INSTRUCTIONS, [message], message).text)
    assert len({*texts}) == 1
    assert "a-filler-001" in texts[0]
    assert "z-jewels" not in texts[0]


@pytest.mark.parametrize("driver", TRIMMING, ids=names(TRIMMING))
def test_skills_that_are_put_back_stay_where_they_are(driver: type[Driver], world: World) -> None:
    steps: list[Step] = [LOAD, "Well.", ("skill_load", {"name": "knots"}), "Well.", "Well.", "Well."]
    model = Model(steps)
    agent = driver(skills(world), model, window=1)
    for message in ("Cut wood.", "Tie a knot.", "And now?", "And then?"):
        agent.say(message)
    texts = systems(model)
    assert texts[-1] == texts[-2]
    assert texts[-1].index(MARK) < texts[-1].index("Over, under, through.")
    assert "Over, under" not in texts[-3]
    assert MARK in texts[-3]


# --- one system prompt ---


@each
def test_a_request_has_one_system_prompt(driver: type[Driver], world: World) -> None:
    model = Model([LOAD, "Well.", "Well.", "Well.", "Well."])
    agent = driver(skills(world), model, window=2)
    for message in ("Cut wood.", "Go on.", "Go on.", "Go on."):
        agent.say(message)
    expected = 2 if driver.__name__ == "PydanticAIToolset" else 1  # a toolset cannot join the agent's own
    assert {shown.prompts for shown in model.shown} == {expected}
    assert all(text.startswith(INSTRUCTIONS) for text in systems(model))
    assert MARK in systems(model)[-1]


def test_langchain_extends_a_system_message_among_the_messages(world: World) -> None:
    model = Model(["Hello.", "Hello."])
    agent: Any = create_agent(ScriptedChatModel(script=model), middleware=[SkillsMiddleware(skills(world))])
    agent.invoke({"messages": [SystemMessage(INSTRUCTIONS), {"role": "user", "content": "Hi"}]})
    blocks = SystemMessage([{"type": "text", "text": INSTRUCTIONS, "cache_control": {"type": "ephemeral"}}])
    agent.invoke({"messages": [blocks, {"role": "user", "content": "Hi"}]})
    assert [shown.prompts for shown in model.shown] == [1, 1]
    assert all(text.startswith(INSTRUCTIONS) and "carpentry" in text for text in systems(model))


def test_the_agents_sdk_gets_one_system_prompt(world: World) -> None:
    from agents import Agent as OpenAIAgent
    from agents import RunConfig, Runner

    model = Model(["Hello."])
    own = AgentSkills(skills(world))
    agent = OpenAIAgent[object](
        name="a", instructions=own.instructions(), tools=own.tools(), model=ScriptedAgentsModel(model)
    )
    config = RunConfig(tracing_disabled=True, call_model_input_filter=keep_skills())
    given: Any = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": "Hi"}]
    asyncio.run(Runner.run(agent, given, run_config=config))
    assert model.shown[0].prompts == 1
    assert model.shown[0].system.startswith(f"{INSTRUCTIONS}\n\nSkills are")


@pytest.mark.system
def test_pydantic_ai_sends_one_system_message_whatever_the_agent_has(world: World) -> None:
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


@pytest.mark.system
def test_a_toolset_leaves_the_number_of_system_messages_to_pydantic_ai(world: World) -> None:
    """Chat completions get each of an agent's instructions as a message; a toolset has no say in that."""
    model = Model(["Hello."] * 3)
    alone = OpenAIModelProfile(openai_chat_supports_multiple_system_messages=False)

    async def converse(url: str) -> None:
        provider = OpenAIProvider(base_url=url, api_key="none")
        for instructions, profile in ((None, None), (INSTRUCTIONS, None), (INSTRUCTIONS, alone)):
            chat = OpenAIChatModel("m", provider=provider, profile=profile)
            await Agent(chat, instructions=instructions, toolsets=[SkillsToolset(skills(world))]).run("Hi")

    with endpoints.serve(model) as url:
        asyncio.run(converse(url))
    assert [shown.prompts for shown in model.shown] == [1, 2, 1]
    assert all("carpentry" in text for text in systems(model))
