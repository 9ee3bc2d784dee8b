"""One request on every surface: whoever is asked sees the same facts, the same script or difference, the same answers.

The page of the web app is in `surfaces/web/test_pages_question.py`, because a browser has an event loop of its own.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from agents import Agent as OpenAIAgent
from agents.items import ToolApprovalItem
from langchain_core.messages import AIMessage
from langchain_core.messages.tool import ToolCall
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from mcp import Client
from openai.types.responses import ResponseFunctionToolCall
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel

import forking
from asked import BEFORE, ask_about_it, missing
from metier import Question
from metier.adapters.langchain import skill_tools
from metier.adapters.openai_agents import AgentSkills
from metier.adapters.pydantic_ai import SkillsToolset
from metier.app import App
from metier.surfaces.mcp.server import McpServer
from parts import require
from piping import reading
from terminals import Terminal
from worlds import World

pytestmark = pytest.mark.system

ASK = '[permissions]\nask = [{ tool = "skill_load" }]\n'
LOAD = {"name": "one"}


class Surface:
    """What the surfaces of a test share. `diff`: the script was approved before, in another version."""

    def __init__(self, world: World, tmp_path: Path, diff: bool) -> None:
        self.world, self.tmp_path = world, tmp_path
        self.before = f"import asked; asked.ask_about_it(before={BEFORE if diff else ''!r})"

    def terminal(self, line: str, *keys: str) -> str:
        require("tmux")
        terminal = Terminal(self.world, self.tmp_path / "tmux")
        try:
            terminal.run(line, rows=60, before=self.before)
            if keys:
                terminal.until("one")
                terminal.keys(*keys)
            return terminal.until("Network It may connect to")
        finally:
            terminal.close()

    def process(self, *arguments: str) -> "subprocess.Popen[str]":
        code = f"{self.before}; from metier.surfaces.cli import main; main()"
        line = [sys.executable, "-c", code, *arguments, "--store", "memory:"]
        line += ["--cwd", str(self.world.project), "--home", str(self.world.home)]
        path = ":".join(one for one in sys.path if one)
        env = {"PYTHONPATH": path, "HOME": str(self.world.home)}
        return forking.start(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def command_line(surface: Surface) -> str:
    return surface.terminal("metier load one")


def picker(surface: Surface) -> str:
    return surface.terminal("metier pick --print load", "Enter")


def json_rpc(surface: Surface) -> str:
    with surface.process("rpc") as process:
        lines = reading(process.stdout)
        assert process.stdin is not None
        for number, (method, params) in enumerate(
            (("session.create", {"asks": True}), ("session.call", {"tool": "skill_load", "args": LOAD}))
        ):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
        while (got := json.loads(lines.get())).get("method") != "session.ask":
            pass
        process.stdin.close()
        assert process.wait() == 0
    return parts(got["params"]["question"])


def parts(question: dict[str, Any]) -> str:
    """What a client shows that lays out the parts itself. The text has the same."""
    facts = "\n".join(f"{fact['label']} {fact['text']}" for fact in question["facts"])
    laid_out = "\n".join((question["title"], facts, question["content"], *question["answers"].values()))
    assert missing(question["text"], question["is_diff"]) == []
    return laid_out


def elicitation(surface: Surface, mode: str) -> str:
    asked: list[str] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="decline")

    async def call() -> None:
        app = App(surface.world.project, home=surface.world.home, store="memory:", surface="mcp")
        server = McpServer(app, watch=False)
        with anyio.fail_after(60):
            async with Client(server, mode=mode, cache=None, elicitation_callback=person) as client:
                await client.call_tool("skill_load", LOAD)

    anyio.run(call)
    return asked[0]


def mcp_2025(surface: Surface) -> str:
    return elicitation(surface, "legacy")


def mcp_2026(surface: Surface) -> str:
    return elicitation(surface, "auto")


def langchain_data(surface: Surface) -> str:
    return parts(_interrupt(surface)["questions"][0]["question"])


def langchain_text(surface: Surface) -> str:
    return _interrupt(surface)["action_requests"][0]["description"]


def _interrupt(surface: Surface) -> dict[str, Any]:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode(skill_tools(surface.world.discover())))
    builder.add_edge(START, "tools")
    graph = builder.compile(checkpointer=InMemorySaver())
    message = AIMessage("", tool_calls=[ToolCall(name="skill_load", args=LOAD, id="1")])
    state = graph.invoke({"messages": [message]}, {"configurable": {"thread_id": "1"}})
    return state["__interrupt__"][0].value


def pydantic_ai(surface: Surface) -> str:
    call = ModelResponse(parts=[ToolCallPart("skill_load", LOAD)])
    toolset = SkillsToolset(surface.world.discover())
    agent: Any = Agent(FunctionModel(lambda *_: call), toolsets=[toolset], output_type=[str, DeferredToolRequests])
    deferred = asyncio.run(agent.run("Load it.")).output  # run_sync would leave an event loop unclosed
    (asked,) = deferred.metadata.values()
    return parts(asked["questions"][0]["question"])


def openai_agents(surface: Surface) -> str:
    call = ResponseFunctionToolCall(call_id="1", name="skill_load", arguments=json.dumps(LOAD), type="function_call")
    agent: Any = OpenAIAgent(name="a")
    return AgentSkills(surface.world.discover(), approvals=True).question(ToolApprovalItem(agent, call))


def python(surface: Surface) -> str:
    shown: list[str] = []
    session = surface.world.discover().session(approve=lambda one: not shown.append(Question.of(one).as_text()))
    session.load("one")
    return shown[0]


SURFACES: tuple[Callable[[Surface], str], ...] = (
    command_line,
    picker,
    json_rpc,
    mcp_2025,
    mcp_2026,
    langchain_data,
    langchain_text,
    pydantic_ai,
    openai_agents,
    python,
)


@pytest.mark.parametrize("diff", [False, True], ids=["script", "diff"])
@pytest.mark.parametrize("show", SURFACES, ids=lambda one: one.__name__)
def test_every_fact_is_seen(
    show: Callable[[Surface], str], diff: bool, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.skill(".agents/skills/one", body="BODY")
    config = world.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(ASK)
    surface = Surface(world, tmp_path, diff)
    monkeypatch.setattr(Question, "of", Question.of)  # it is there again after the test
    ask_about_it(before=BEFORE if diff else "")
    shown = show(surface)
    assert missing(shown, diff) == []
    assert all(char.isprintable() or char == "\n" for char in shown)
