"""Features of Pydantic AI: approvals within a run, the test model, streams."""

import asyncio
from collections.abc import AsyncIterator

from framework_drivers import pydantic_model
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from scenario import LOAD, MARK, RUN, Model, runner, skills

from metier.adapters.pydantic_ai import SkillsCapability, SkillsToolset
from metier.values.skill import ROLES
from worlds import World


def test_an_approval_that_is_given_within_the_run_needs_no_second_run(world: World) -> None:
    def approve(ctx: RunContext[object], requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approve_all=True)

    model = Model([LOAD, RUN, "Done."])
    capabilities = [SkillsCapability(skills(world), runner=runner()), HandleDeferredToolCalls(approve)]
    agent = Agent(pydantic_model(model), capabilities=capabilities)
    assert asyncio.run(agent.run("Cut.")).output == "Done."
    assert "cut oak" in model.shown[-1].texts[-1]


def test_the_test_model_may_call_every_tool_with_whatever_it_makes_up(world: World) -> None:
    toolset = SkillsToolset(skills(world), runner=runner())
    assert "skill_load" in asyncio.run(Agent(TestModel(), toolsets=[toolset]).run("Anything.")).output
    called = {frame["args"]["tool"] for frame in toolset.session.events if frame["type"] == "session_called"}
    assert called == {f"skill_{role}" for role in ROLES}


def test_a_streamed_run_is_shown_the_same(world: World) -> None:
    shown: list[str] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        shown.append(info.instructions or "")
        yield "Done."

    async def run() -> str:
        agent = Agent(FunctionModel(stream_function=stream), capabilities=[SkillsCapability(skills(world))])
        async with agent.run_stream("Cut.") as result:
            return await result.get_output()

    assert asyncio.run(run()) == "Done."
    assert "<name>carpentry</name>" in shown[0]
    assert MARK not in shown[0]


def test_arguments_that_are_no_json_do_not_end_the_run(world: World) -> None:
    sent = iter(['{"name": ', "[1]", '"carpentry"'])

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        torn = next(sent, None)
        return ModelResponse(parts=[TextPart("I give up.") if torn is None else ToolCallPart("skill_load", torn)])

    agent = Agent(FunctionModel(answer), toolsets=[SkillsToolset(skills(world))])
    assert asyncio.run(agent.run("Cut.")).output == "I give up."
