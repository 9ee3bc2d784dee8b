"""A LangChain agent with the example skills. Its model follows a script, so no key is needed."""

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from metier import Skills
from metier.adapters.langchain import SkillsMiddleware

skills = SkillsMiddleware(Skills.discover(roots=["examples/skills"]))

STEPS = [
    ("skill_load", {"name": "csv-profile"}),
    ("skill_read", {"name": "csv-profile", "path": "references/pitfalls.md"}),
    (
        "skill_run",
        {"name": "csv-profile", "script": "scripts/profile_csv.py", "arguments": ["-"], "stdin": "a,b\n1,2\n"},
    ),
]


def answers(offered):
    """The script of the model: it loads a skill, reads one of its files, runs one, and answers."""
    for number, (name, arguments) in enumerate(STEPS):
        if name in offered:  # without a sandbox, there is no tool to run scripts
            yield AIMessage("", tool_calls=[{"id": str(number), "name": name, "args": arguments}])
    yield AIMessage("One row, two columns.")


class ScriptedModel(GenericFakeChatModel):
    """Use your own model instead."""

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, *given, **more):
        assert "csv-profile" in messages[0].text  # the catalog
        return super()._generate(messages, *given, **more)


agent = create_agent(
    ScriptedModel(messages=answers([tool.name for tool in skills.session.tools()])),
    system_prompt="You are a careful analyst.",
    middleware=[skills],  # last, after middleware that trims or summarises
    checkpointer=InMemorySaver(),
)
thread = {"configurable": {"thread_id": "1"}}

state = agent.invoke({"messages": [{"role": "user", "content": "What is in this table?"}]}, thread)
while "__interrupt__" in state:
    for asked in state["__interrupt__"]:
        print(asked.value["action_requests"][0]["description"])
    yes = {"decisions": [{"type": "approve"}]}  # ask your user here
    state = agent.invoke(Command(resume=yes), thread)
print(state["messages"][-1].text)
print([frame["type"] for frame in skills.session.events])
