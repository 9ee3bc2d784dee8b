"""A loop on the Anthropic SDK with the example skills. A scripted client stands in for the API: no key is needed."""

from anthropic.types import Message, TextBlock, ToolUseBlock, Usage

from metier import Question, Skills
from metier.adapters.anthropic import MessagesSkills

STEPS = [
    ("skill_load", {"name": "csv-profile"}),
    ("skill_read", {"name": "csv-profile", "path": "references/pitfalls.md"}),
    (
        "skill_run",
        {"name": "csv-profile", "script": "scripts/profile_csv.py", "arguments": ["-"], "stdin": "a,b\n1,2\n"},
    ),
]


class ScriptedClient:
    """Use `anthropic.Anthropic().messages` instead."""

    def create(self, *, model, max_tokens, system, messages, tools):
        assert "csv-profile" in system  # the catalog
        offered = [tool["name"] for tool in tools]
        steps = [step for step in STEPS if step[0] in offered]  # without a sandbox, there is no tool to run scripts
        done = sum(message["role"] == "assistant" for message in messages)
        block = TextBlock(type="text", text="One row, two columns.")
        if done < len(steps):
            block = ToolUseBlock(type="tool_use", id=f"toolu_{done}", name=steps[done][0], input=steps[done][1])
        return Message(
            id="1",
            type="message",
            role="assistant",
            model=model,
            content=[block],
            stop_reason="end_turn",
            usage=Usage(input_tokens=1, output_tokens=1),
        )


def approve(request):
    print(Question.of(request).as_text())
    return True  # ask your user here


skills = MessagesSkills(Skills.discover(roots=["examples/skills"]), approve=approve)
client = ScriptedClient()
messages = [{"role": "user", "content": "What is in this table?"}]
while True:
    request = skills.request(messages, "You are a careful analyst.")  # messages, system and tools
    response = client.create(model="claude-sonnet-4-5", max_tokens=1024, **request)
    messages.append({"role": "assistant", "content": response.content})
    results = skills.dispatch(response)
    if not results:
        break
    messages.append({"role": "user", "content": results})
print(response.content[0].text)
print([frame["type"] for frame in skills.session.events])
