"""A Pydantic AI agent with the example skills. Its model follows a script, so no key is needed."""

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


def scripted_model(messages, info):
    """Use your own model instead. This one loads a skill, reads one of its files, runs one, and answers."""
    assert "csv-profile" in info.instructions  # the catalog
    offered = [tool.name for tool in info.function_tools]
    steps = [step for step in STEPS if step[0] in offered]  # without a sandbox, there is no tool to run scripts
    done = sum(isinstance(message, ModelResponse) for message in messages)
    return ModelResponse(parts=[ToolCallPart(*steps[done]) if done < len(steps) else TextPart("One row, two columns.")])


agent = Agent(
    FunctionModel(scripted_model),
    instructions="You are a careful analyst.",
    capabilities=[skills],
    output_type=[str, DeferredToolRequests],
)


async def main():
    result = await agent.run("What is in this table?")
    while isinstance(result.output, DeferredToolRequests):
        for asked in result.output.metadata.values():
            print(asked["questions"][0]["question"]["text"])
        answers = result.output.build_results(approve_all=True)  # ask your user here
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
    print(result.output)
    print([frame["type"] for frame in skills.session.events])


asyncio.run(main())
