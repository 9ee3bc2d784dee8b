"""A Pydantic AI agent with the example skills. Its model is a stand-in, so that it runs without a key."""

import asyncio

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from metier import Skills
from metier.adapters.pydantic_ai import SkillsCapability

skills = SkillsCapability(Skills.discover(roots=["examples/skills"]))

STEPS = [
    ("skill_load", {"name": "csv-profile"}),
    ("skill_read", {"name": "csv-profile", "path": "references/pitfalls.md"}),
    (
        "skill_run",
        {"name": "csv-profile", "script": "scripts/profile_csv.py", "arguments": ["-"], "stdin": "a,b\n1,2\n"},
    ),
]


def stand_in(messages, info):
    """Where your model goes. This one sees the catalog, loads a skill, reads and runs a file of it, and answers."""
    assert "csv-profile" in info.instructions
    offered = [tool.name for tool in info.function_tools]
    steps = [step for step in STEPS if step[0] in offered]  # without a sandbox, nothing is offered to run
    done = sum(isinstance(message, ModelResponse) for message in messages)
    return ModelResponse(parts=[ToolCallPart(*steps[done]) if done < len(steps) else TextPart("One row, two columns.")])


agent = Agent(
    FunctionModel(stand_in),
    instructions="You are a careful analyst.",
    capabilities=[skills],
    output_type=[str, DeferredToolRequests],
)


async def main():
    result = await agent.run("What is in this table?")
    while isinstance(result.output, DeferredToolRequests):
        for asked in result.output.metadata.values():
            print("May this run?", asked["questions"][0]["command"])
        answers = result.output.build_results(approve_all=True)  # where your person answers
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
    print(result.output)
    print([frame["type"] for frame in skills.session.events])


asyncio.run(main())
