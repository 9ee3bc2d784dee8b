"""A misspelled option of an adapter is a `TypeError`, and an error of the type checker."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenario import skills

from metier import ConfigError
from metier.adapters.anthropic import MessagesSkills
from metier.adapters.conversation import Conversation, Conversations
from metier.adapters.langchain import SkillsMiddleware, skill_tools
from metier.adapters.openai import ChatSkills, ResponsesSkills
from metier.adapters.openai_agents import AgentSkills
from metier.adapters.pydantic_ai import SkillsCapability, SkillsToolset
from metier.session.session import Session
from worlds import World

REPOSITORY = Path(__file__).resolve().parents[2]
PYRIGHT = Path(sys.executable).with_name("pyright")

ADAPTERS: dict[str, Callable[..., Any]] = {
    "MessagesSkills": MessagesSkills,
    "ChatSkills": ChatSkills,
    "ResponsesSkills": ResponsesSkills,
    "AgentSkills": AgentSkills,
    "SkillsMiddleware": SkillsMiddleware,
    "skill_tools": skill_tools,
    "SkillsToolset": SkillsToolset,
    "SkillsCapability": SkillsCapability,
    "Conversation.of": lambda given, **options: Conversation.of(given, "test", asks=True, **options),
    "Conversations": lambda given, **options: Conversations(given, "test", **options),
}
each = pytest.mark.parametrize("name", ADAPTERS)


@each
def test_a_misspelled_option_is_a_type_error(world: World, name: str) -> None:
    found = skills(world)
    for given in (found, found.session()):
        with pytest.raises(TypeError, match="unexpected keyword argument 'onyl'"):
            ADAPTERS[name](given, onyl=["carpentry"])
        with pytest.raises(TypeError, match="unexpected keyword argument 'bugdet'"):
            ADAPTERS[name](given, bugdet=5)


@pytest.mark.parametrize("name", [name for name in ADAPTERS if name not in ("skill_tools", "Conversations")])
def test_an_option_of_a_session_reaches_the_session(world: World, name: str) -> None:
    session: Session = ADAPTERS[name](skills(world), only=["knots"], surface="my-app").session
    assert [skill.name for skill in session.visible()] == ["knots"]
    assert session.events[0]["surface"] == "my-app"


@each
def test_a_session_of_your_own_takes_no_options_of_a_session(world: World, name: str) -> None:
    with pytest.raises(ConfigError, match="only: pass this to the session itself"):
        ADAPTERS[name](skills(world).session(), only=["knots"])


CASES = """
from anthropic import Anthropic
from langchain.agents.middleware import AgentMiddleware
from openai import OpenAI
from agents import Agent, RunConfig
from pydantic_ai import Agent as PydanticAgent

from metier import Skills
from metier.adapters.anthropic import MessagesSkills
from metier.adapters.conversation import Conversation, Conversations
from metier.adapters.langchain import SkillsMiddleware, skill_tools
from metier.adapters.openai import ChatSkills, ResponsesSkills
from metier.adapters.openai_agents import AgentSkills, keep_skills
from metier.adapters.pydantic_ai import SkillsCapability, SkillsToolset

skills = Skills.discover()
session = skills.session()

MessagesSkills(skills, budget=1, restore=1, only=["a"], preload=["a"], id="1", store="memory:")
MessagesSkills(skills, bugdet=1)  # wrong
ChatSkills(skills, budget=1, restore=1, only=["a"])
ChatSkills(skills, onyl=["a"])  # wrong
ResponsesSkills(session, budget=1)
ResponsesSkills(skills, polcy={})  # wrong
AgentSkills(skills, approve=lambda request: request.tool == "skill_run", has_read_tool=False)
AgentSkills(skills, aprove=None)  # wrong
SkillsMiddleware(skills, budget=1, restore=1, policy={"deny": []})
SkillsMiddleware(skills, retsore=1)  # wrong
skill_tools(session)
skill_tools(skills, onyl=["a"])  # wrong
SkillsToolset(skills, id="mine", instruct=False, budget=1, only=["a"])
SkillsToolset(skills, instrct=False)  # wrong
SkillsCapability(skills, id="mine", restore=1, preload=["a"])
SkillsCapability(skills, instruct=False)  # wrong
SkillsCapability(skills, prelaod=["a"])  # wrong
SkillsCapability(skills, only=1)  # wrong
Conversation.of(skills, "mine", asks=True, surface="mine")
Conversation.of(skills, "mine", asks=True, surfce="mine")  # wrong
Conversations(skills, "mine", budget=1, tools=False)
Conversations(skills, "mine", tols=False)  # wrong

# What an adapter returns fits the framework.
messages = MessagesSkills(skills).request([{"role": "user", "content": "Hello."}], "You are careful.")
Anthropic().messages.create(model="m", max_tokens=9, **messages)
chat = ChatSkills(skills).request([{"role": "user", "content": "Hello."}])
completion = OpenAI().chat.completions.create(model="m", **chat)
ChatSkills(skills).request([completion.choices[0].message, *ChatSkills(skills).dispatch(completion)])
items = ResponsesSkills(skills).request([{"role": "user", "content": "Hello."}], "You are careful.")
response = OpenAI().responses.create(model="m", **items)
ResponsesSkills(skills).request([*response.output, *ResponsesSkills(skills).dispatch(response)])
PydanticAgent("test", deps_type=int, capabilities=[SkillsCapability(skills)], toolsets=[SkillsToolset(skills)])
middleware: list[AgentMiddleware] = [SkillsMiddleware(skills)]
own = AgentSkills(skills)
Agent[int](name="a", instructions=own.instructions("You are careful."), tools=own.tools())
RunConfig(call_model_input_filter=keep_skills())
"""


@pytest.mark.skipif(not PYRIGHT.exists(), reason="pyright is not installed")
def test_a_type_checker_finds_every_misspelled_option_and_nothing_else(tmp_path: Path) -> None:
    config = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(REPOSITORY / "src")],
        "reportMissingTypeStubs": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    (tmp_path / "cases.py").write_text(CASES)
    command = [str(PYRIGHT), "--project", str(tmp_path), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    found = json.loads(done.stdout)["generalDiagnostics"]
    wrong = [number for number, line in enumerate(CASES.splitlines()) if re.search("# wrong$", line)]
    assert len(wrong) >= len(ADAPTERS)
    assert [one["range"]["start"]["line"] for one in found] == wrong, found
