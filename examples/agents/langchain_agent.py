"""A LangChain agent with the example skills. Its model is a stand-in, so that it runs without a key."""

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
    """What the stand-in says: it loads a skill, reads and runs a file of it, and answers."""
    for number, (name, arguments) in enumerate(STEPS):
        if name in offered:  # without a sandbox, nothing is offered to run
            yield AIMessage("", tool_calls=[{"id": str(number), "name": name, "args": arguments}])
    yield AIMessage("One row, two columns.")


class StandIn(GenericFakeChatModel):
    """Where your model goes."""

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, *given, **more):
        assert "csv-profile" in messages[0].text  # the catalog
        return super()._generate(messages, *given, **more)


agent = create_agent(
    StandIn(messages=answers([tool.name for tool in skills.session.tools()])),
    system_prompt="You are a careful analyst.",
    middleware=[skills],  # the last one, after any that trims or summarises
    checkpointer=InMemorySaver(),
)
thread = {"configurable": {"thread_id": "1"}}

state = agent.invoke({"messages": [{"role": "user", "content": "What is in this table?"}]}, thread)
while "__interrupt__" in state:
    for asked in state["__interrupt__"]:
        print("May this run?", asked.value["action_requests"][0]["description"])
    yes = {"decisions": [{"type": "approve"}]}  # where your person answers
    state = agent.invoke(Command(resume=yes), thread)
print(state["messages"][-1].text)
print([frame["type"] for frame in skills.session.events])
