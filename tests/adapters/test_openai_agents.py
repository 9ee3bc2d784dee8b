"""Features of the Agents SDK: stored interruptions, sessions with a limit, handoffs and agents as tools."""

import asyncio
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, RunState, SessionSettings, SQLiteSession, TResponseInputItem
from framework_drivers import OpenAIAgents, ScriptedAgentsModel, agents_call, agents_message, agents_response
from scenario import LOAD, READ, RUN, Model, Step, runner, skills

from metier.adapters.conversation import value_of
from metier.adapters.openai_agents import AgentSkills, keep_skills
from worlds import World


def test_an_interruption_is_answered_after_the_state_was_stored(world: World) -> None:
    model = Model([LOAD, RUN, "Done."])
    driver = OpenAIAgents(skills(world), model, runner=runner())

    async def run() -> str:
        first = await Runner.run(driver.agent, "Cut.", run_config=driver.config)
        (asked,) = first.interruptions
        assert asked.name == "skill_run"
        assert "\n    | echo cut $1\n" in driver.skills.question(asked)
        state = await RunState.from_string(driver.agent, first.to_state().to_string())
        state.approve(state.get_interruptions()[0])
        return (await Runner.run(driver.agent, state, run_config=driver.config)).final_output

    assert asyncio.run(run()) == "Done."
    assert "cut oak" in model.shown[-1].texts[-1]


def test_a_session_of_the_sdk_that_forgets_loses_no_skill(world: World) -> None:
    steps: list[Step] = [LOAD, "Loaded.", "One.", "Two.", READ, "Three."]
    model = Model(steps)
    own = AgentSkills(skills(world))
    agent = Agent(name="joiner", instructions=own.instructions(), tools=own.tools(), model=ScriptedAgentsModel(model))
    config = RunConfig(
        tracing_disabled=True, call_model_input_filter=keep_skills(), session_settings=SessionSettings(limit=2)
    )

    async def run() -> None:
        memory = SQLiteSession("1")
        for message in ("Cut.", "And?", "And then?", "Is oak hard?"):
            await Runner.run(agent, message, session=memory, run_config=config)
        memory.close()

    asyncio.run(run())
    assert [shown.count() for shown in model.shown] == [0, 1, 1, 1, 1, 1]
    assert len(model.shown[-1].texts) < 6


def agent_of(name: str, own: AgentSkills, model: Model, **more: Any) -> Agent[Any]:
    tools = [*own.tools(), *more.pop("tools", ())]
    return Agent(name=name, instructions=own.instructions(), tools=tools, model=ScriptedAgentsModel(model), **more)


def test_an_agent_that_takes_over_or_is_a_tool_has_its_own_skills(world: World) -> None:
    found = skills(world)
    config = RunConfig(tracing_disabled=True, call_model_input_filter=keep_skills())
    own, other = AgentSkills(found), AgentSkills(found, only=["knots"], preload=["knots"])

    def say(agent: Agent[Any]) -> str:
        return asyncio.run(Runner.run(agent, "Tie it.", run_config=config)).final_output

    inner = Model(["Tied.", "Tied."])
    rigger = agent_of("rigger", other, inner)
    assert say(agent_of("joiner", own, Model([LOAD, ("transfer_to_rigger", {})]), handoffs=[rigger])) == "Tied."
    outer = Model([("rig", {"input": "Tie."}), "Done."])
    assert say(agent_of("joiner", AgentSkills(found), outer, tools=[rigger.as_tool("rig", "Ties things.")])) == "Done."
    for shown in inner.shown:
        assert (shown.count("Over, under, through."), "carpentry" in shown.system) == (1, False)
    assert outer.shown[1].count("Over, under, through.") == 0
    alone = Model(["Hello."])
    assert say(Agent(name="plain", instructions="Be kind.", model=ScriptedAgentsModel(alone))) == "Hello."
    assert alone.shown[0].system == "Be kind.", "other agents are left alone"


def test_arguments_that_are_no_json_do_not_end_the_run(world: World) -> None:
    sent = iter(['{"name": ', "[1]", '"carpentry"'])
    told: list[object] = []

    class BrokenArguments(ScriptedAgentsModel):
        async def get_response(
            self,
            system_instructions: str | None,
            input: str | list[TResponseInputItem],  # noqa: A002
            model_settings: object,
            tools: object,
            *rest: object,
            **more: object,
        ) -> ModelResponse:
            told[:] = input
            arguments = next(sent, None)
            if arguments is None:
                return agents_response(agents_message("I give up."))
            return agents_response(agents_call(f"call-{len(input)}", "skill_load", arguments))

    own = AgentSkills(skills(world))
    agent = Agent(name="joiner", instructions=own.instructions(), tools=own.tools(), model=BrokenArguments(Model([])))

    async def run() -> str:
        result = await Runner.run(agent, "Cut.", run_config=RunConfig(tracing_disabled=True))
        while result.interruptions:  # newer versions ask about calls that they cannot read
            state = result.to_state()
            for asked in result.interruptions:
                state.approve(asked)
            result = await Runner.run(agent, state, run_config=RunConfig(tracing_disabled=True))
        return result.final_output

    assert asyncio.run(run()) == "I give up."
    assert [output for item in told if (output := value_of(item, "output")) is not None] == [
        "the arguments must be a JSON object"
    ] * 3
