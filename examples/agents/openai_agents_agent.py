"""An agent of the OpenAI Agents SDK with the example skills. Its model follows a script, so no key is needed."""

import asyncio
import json

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from metier import Skills
from metier.adapters.openai_agents import AgentSkills, keep_skills

skills = AgentSkills(Skills.discover(roots=["examples/skills"]), approvals=True)

STEPS = [
    ("skill_load", {"name": "csv-profile"}),
    ("skill_read", {"name": "csv-profile", "path": "references/pitfalls.md"}),
    (
        "skill_run",
        {"name": "csv-profile", "script": "scripts/profile_csv.py", "arguments": ["-"], "stdin": "a,b\n1,2\n"},
    ),
]


class ScriptedModel(Model):
    """Use your own model instead. This one loads a skill, reads one of its files, runs one, and answers."""

    async def get_response(self, system_instructions, input, model_settings, tools, *rest, **more):  # noqa: A002
        assert "csv-profile" in system_instructions  # the catalog
        offered = [tool.name for tool in tools]
        steps = [step for step in STEPS if step[0] in offered]  # without a sandbox, there is no tool to run scripts
        done = sum(item.get("type") == "function_call_output" for item in input)
        return ModelResponse([call(done, *steps[done]) if done < len(steps) else say("Two columns.")], Usage(), None)

    def stream_response(self, *given, **more):
        raise NotImplementedError("this model does not stream")


def call(number, name, arguments):
    given = json.dumps(arguments)
    return ResponseFunctionToolCall(call_id=f"call-{number}", name=name, arguments=given, type="function_call")


def say(text):
    content = [ResponseOutputText(text=text, type="output_text", annotations=[])]
    return ResponseOutputMessage(id="1", content=content, role="assistant", status="completed", type="message")


agent = Agent(
    name="analyst",
    instructions=skills.instructions("You are a careful analyst."),
    tools=skills.tools(),
    model=ScriptedModel(),
)


async def main():
    config = RunConfig(call_model_input_filter=keep_skills(), tracing_disabled=True)
    result = await Runner.run(agent, "What is in this table?", run_config=config)
    while result.interruptions:
        state = result.to_state()
        for asked in result.interruptions:
            print(skills.question(asked))
            state.approve(asked)  # ask your user here
        result = await Runner.run(agent, state, run_config=config)
    print(result.final_output)
    print([frame["type"] for frame in skills.session.events])


asyncio.run(main())
