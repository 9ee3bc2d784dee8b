"""Features of LangChain and LangGraph: reviews, custom graphs, middleware that clears messages, agents as tools."""

from typing import Any

from framework_drivers import LangChain, ScriptedChatModel
from langchain.agents import create_agent
from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from scenario import LOAD, READ, RUN, Call, Model, Step, runner, skills

from metier.adapters.langchain import SkillsMiddleware, skill_tools
from metier.session.approvals import Answers
from worlds import World


def test_an_interrupt_has_the_form_of_a_review(world: World) -> None:
    driver = LangChain(skills(world), Model([LOAD, RUN, "Done."]), runner=runner())
    driver.say("Cut.")
    (review,) = driver.asked
    (action,) = review["action_requests"]
    assert (action["name"], action["args"]) == RUN
    assert action["description"].startswith("Run scripts/saw.sh of the skill carpentry?\n")
    assert "\n    | echo cut $1\n" in action["description"]
    assert review["review_configs"] == [{"action_name": "skill_run", "allowed_decisions": ["approve", "reject"]}]
    assert review["questions"][0]["content"] == "#!/bin/sh\necho cut $1\n"


def graph(tools: list[BaseTool], memory: InMemorySaver | None = None) -> Any:
    """A custom graph that runs one batch of tool calls."""
    builder: Any = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "tools")
    return builder.compile(checkpointer=memory or InMemorySaver())


def calling(*steps: Call) -> AIMessage:
    return AIMessage(
        "", tool_calls=[ToolCall(name=name, args=args, id=str(number)) for number, (name, args) in enumerate(steps)]
    )


def calls(*steps: Call) -> dict[str, list[HumanMessage | AIMessage]]:
    return {"messages": [HumanMessage("Cut."), calling(*steps)]}


def test_a_graph_of_ones_own_has_tools_that_interrupt_it(world: World) -> None:
    session_tools = skill_tools(skills(world), runner=runner())
    config = {"configurable": {"thread_id": "1"}}
    one = graph(session_tools)
    assert "Measure twice" in one.invoke(calls(LOAD), config)["messages"][-1].content
    state = one.invoke(calls(RUN), config)
    assert len(state["__interrupt__"]) == 1
    assert "cut oak" in one.invoke(Command(resume=True), config)["messages"][-1].content
    for wrong in ({"decisions": []}, {"decisions": [{"type": "edit"}]}, "approve", None, {"type": "reject"}):
        other = graph(session_tools)
        other.invoke(calls(RUN), config)
        result = other.invoke(Command(resume=wrong if wrong is not None else False), config)
        assert "the answer was no" in result["messages"][-1].content


def test_results_that_the_framework_clears_are_put_back(world: World) -> None:
    steps: list[Step] = [LOAD, READ, READ, READ, READ, "Done."]
    model = Model(steps)
    clearing = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1, keep=1)])
    agent: Any = create_agent(ScriptedChatModel(script=model), middleware=[clearing, SkillsMiddleware(skills(world))])
    agent.invoke({"messages": [HumanMessage("Cut.")]})
    assert [shown.count() for shown in model.shown] == [0, 1, 1, 1, 1, 1]
    assert "[cleared]" in model.shown[-1].texts


ELM: Call = ("skill_run", {**RUN[1], "arguments": ["elm"]})


def test_calls_of_an_agent_that_wait_at_once_are_answered_one_by_one(world: World) -> None:
    class Both(GenericFakeChatModel):
        def bind_tools(self, tools: object, **_: object) -> "Both":
            return self

    fake = runner()
    said = iter([calling(LOAD), calling(RUN, ELM), AIMessage("Done.")])
    middleware = [SkillsMiddleware(skills(world), runner=fake)]
    agent: Any = create_agent(Both(messages=said), middleware=middleware, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    state = agent.invoke({"messages": [HumanMessage("Cut.")]}, config)
    answers = {
        asked.id: {"type": "approve" if "oak" in asked.value["action_requests"][0]["description"] else "reject"}
        for asked in state["__interrupt__"]
    }
    assert len(answers) == 2
    told = [message.content for message in agent.invoke(Command(resume=answers), config)["messages"][-3:]]
    assert ("cut oak" in told[0], "the answer was no" in told[1], told[2]) == (True, True, "Done.")
    assert [job.argv for job in fake.jobs] == [("oak",)]


def test_calls_that_share_a_task_never_share_an_answer(world: World) -> None:
    for number in range(5):
        fake = runner()
        one = graph(skill_tools(skills(world), runner=fake))
        config = {"configurable": {"thread_id": str(number)}}
        one.invoke(calls(LOAD), config)
        (asked,) = one.invoke(calls(RUN, ELM), config)["__interrupt__"]
        wood = asked.value["action_requests"][0]["args"]["arguments"][0]
        told = [message.content for message in one.invoke(Command(resume=True), config)["messages"][-2:]]
        assert [job.argv for job in fake.jobs] == [(wood,)]
        assert sum("Make this call again" in text for text in told) == 1


def test_an_answer_to_a_question_that_was_put_elsewhere_is_none_for_tools_alone(world: World) -> None:
    fake, memory = runner(), InMemorySaver()
    found = skills(world)
    config = {"configurable": {"thread_id": "1"}}
    sessions = [found.session(approve=Answers(), runner=fake) for _ in range(2)]
    for session in sessions:
        session.call(*LOAD)
    here, elsewhere = (graph(skill_tools(session), memory) for session in sessions)
    here.invoke(calls(RUN), config)
    assert "the answer was no" in elsewhere.invoke(Command(resume=True), config)["messages"][-1].content
    assert fake.jobs == []
