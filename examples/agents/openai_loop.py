"""A loop on the OpenAI SDK with the example skills. A scripted client stands in for the API: no key is needed."""

import json

from openai.types.chat import ChatCompletion

from metier import Question, Skills
from metier.adapters.openai import ChatSkills

STEPS = [
    ("skill_load", {"name": "csv-profile"}),
    ("skill_read", {"name": "csv-profile", "path": "references/pitfalls.md"}),
    (
        "skill_run",
        {"name": "csv-profile", "script": "scripts/profile_csv.py", "arguments": ["-"], "stdin": "a,b\n1,2\n"},
    ),
]


class ScriptedClient:
    """Use `openai.OpenAI().chat.completions` instead."""

    def create(self, *, model, messages, tools):
        assert "csv-profile" in messages[0]["content"]  # the catalog
        offered = [tool["function"]["name"] for tool in tools]
        steps = [step for step in STEPS if step[0] in offered]  # without a sandbox, there is no tool to run scripts
        done = sum(isinstance(message, dict) and message["role"] == "tool" for message in messages)
        answer = {"role": "assistant", "content": "One row, two columns."}
        if done < len(steps):
            function = {"name": steps[done][0], "arguments": json.dumps(steps[done][1])}
            answer = {"role": "assistant", "tool_calls": [{"id": str(done), "type": "function", "function": function}]}
        choice = {"index": 0, "finish_reason": "stop", "message": answer}
        return ChatCompletion.model_validate(
            {"id": "1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
        )


def approve(request):
    print(Question.of(request).as_text())
    return True  # ask your user here


skills = ChatSkills(Skills.discover(roots=["examples/skills"]), approve=approve)
client = ScriptedClient()
messages = [{"role": "user", "content": "What is in this table?"}]
while True:
    request = skills.request(messages, "You are a careful analyst.")  # messages, with a system message, and tools
    response = client.create(model="gpt-5", **request)
    messages.append(response.choices[0].message)
    results = skills.dispatch(response)
    if not results:
        break
    messages += results
print(response.choices[0].message.content)
print([frame["type"] for frame in skills.session.events])
