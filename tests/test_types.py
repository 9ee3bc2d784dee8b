"""The types of the front door: a misspelled argument or name is found by a type checker, and nothing else is.

One run of pyright in strict mode over a file in which every line that is wrong says so.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parts import needs

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).resolve().parents[1]

CASES = """\
from langchain.agents.middleware import AgentMiddleware
from agents import Agent, RunConfig
from pydantic_ai import Agent as PydanticAgent
from metier.adapters.conversation import Conversation, Conversations
from metier.adapters.langchain import SkillsMiddleware, skill_tools
from metier.adapters.openai_agents import AgentSkills, keep_skills
from metier.adapters.pydantic_ai import SkillsCapability, SkillsToolset
from metier import Policy, Request, Skills, open_store
from metier import Sesion  # wrong

found = Skills.discover(profile="standard", roots=["skills"])
Skills.discover(profil="standard")  # wrong
one = found.session(policy=Policy(), store=open_store("memory:"), approve=lambda asked: asked.digest == "")
found.session(polciy={})  # wrong
found.session(preloads=["a"])  # wrong
found.session(store=3)  # wrong
one.load("pdf", arguments="a.pdf")
one.load("pdf", args="a.pdf")  # wrong
one.read("pdf", "references/forms.md", raw=True)
one.read("pdf", "references/forms.md", by="robot")  # wrong
one.search("fill a form", limt=3)  # wrong
one.run("pdf", "scripts/fill.py", ["a.pdf"], stdn="x")  # wrong
one.prompt(message="x", budget=10, files=["a.py"])
one.system_prompt(bse="x")  # wrong
one.call("skill_load", {"name": "pdf"})
one.call("skill_load", ["pdf"])  # wrong
print(one.load("pdf").txt)  # wrong
print(Request("skill_load", skillname="pdf"))  # wrong


async def twins() -> None:
    loaded = await one.aload("pdf", parent="forms")
    resource = await one.aread("skill://pdf/a.md")
    result = await one.asearch("pdf", scope="repo")
    ran = await one.arun("pdf", "scripts/x.py")
    answer = await one.acall("skill_load", {"name": "pdf"})
    print(loaded.text, resource.mime, result.results[0].score, ran.exit_code, answer.rule)
    await one.aload("pdf", parnt="forms")  # wrong


skills = Skills.discover()
session = skills.session()

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
PydanticAgent("test", deps_type=int, capabilities=[SkillsCapability(skills)], toolsets=[SkillsToolset(skills)])
middleware: list[AgentMiddleware] = [SkillsMiddleware(skills)]
own = AgentSkills(skills)
Agent[int](name="a", instructions=own.instructions("You are careful."), tools=own.tools())
RunConfig(call_model_input_filter=keep_skills())
"""


@needs("node")
def test_a_type_checker_finds_every_mistake_and_nothing_else(tmp_path: Path) -> None:
    config = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(REPOSITORY / "src")],
        "reportMissingTypeStubs": False,
        "reportUnknownVariableType": False,
        "reportUnknownArgumentType": False,
        "reportUnknownMemberType": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    (tmp_path / "cases.py").write_text(CASES)
    command = [sys.executable, "-m", "pyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run([*command, "--outputjson"], capture_output=True, text=True)
    found = json.loads(done.stdout)["generalDiagnostics"]
    wrong = [number for number, line in enumerate(CASES.splitlines()) if re.search("# wrong$", line)]
    assert len(wrong) > 20
    assert sorted({one["range"]["start"]["line"] for one in found}) == wrong, found
