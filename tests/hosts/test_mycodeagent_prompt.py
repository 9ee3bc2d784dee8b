"""MyCodeAgent: the description of its one tool, which carries the list of skills, and the rules in the prompt."""

import json
import re
from typing import Any

import pytest

from hosts.asking import metier
from metier.session.session import Session
from worlds import World

BODY = "# Review\n\nLook at $1 and `src`.\n"


def session(world: World, settings: dict[str, Any] | None = None) -> Session:
    return world.discover("mycodeagent", settings=settings).session()


@pytest.mark.behaviour("M-015", "M-016", "M-019", "M-025")
def test_the_first_prompt_has_the_tool_with_parameters_examples_and_list(world: World) -> None:
    world.skill("skills/code-review", description="Review code\n quality & risks", body=BODY)
    world.skill("skills/x/pdf", description="Fill forms", body=BODY)
    one = session(world)
    (tool,) = one.tools()
    kinds = {key: value["type"] for key, value in tool.input_schema["properties"].items()}
    assert (tool.name, kinds) == ("Skill", {"name": "string", "args": "string", "parent": "string"})
    assert tool.input_schema["required"] == ["name"]
    lines = tool.description.splitlines()
    parameters, examples, skills = (lines.index(f"{part}:") for part in ("Parameters", "Examples", "Available skills"))
    assert parameters < examples < skills
    assert lines[skills + 1 :] == ["- code-review: Review code quality & risks", "- pdf: Fill forms"]
    assert [json.loads(line[2:])["name"] for line in lines if line.startswith("- {")] == ["code-review"] * 2
    named = re.findall(r"^- (\w+) \(string, (\w+)\): \w", tool.description, re.MULTILINE)
    assert named == [("name", "required"), ("args", "optional"), ("parent", "optional")]
    prompt = one.system_prompt("BASE")
    assert prompt.startswith(f"BASE\n\n# Tools\n\n## Skill\n\n{tool.description}\n\n# Skills\n")
    assert "Look at" not in prompt
    assert metier(world, "session", "tools", "--profile", "mycodeagent") == [tool.as_dict()]


BASES = {
    "in the middle": "BASE\n\n# Tools\n\n## LS\n\nLists files.\n\n# Style\n\nBe brief.",
    "at the end": "# Style\n\nBe brief.\n\n# TOOLS\n\n## LS\n\nLists files.\n",
    "deeper": "# Agent\n\n## Tools\n\n### LS\n\nLists files.\n\n## Style\n\nBe brief.",
    "with code": "# Tools\n\n## LS\n\n```sh\n# Style\nls\n```\n\nLists files.\n\n# Style\n\nBe brief.",
}


@pytest.mark.behaviour("M-020", "N-055")
def test_the_tool_stands_last_in_the_tools_section_that_the_base_prompt_has_or_gets(world: World) -> None:
    world.skill("skills/code-review", description="Review code")
    one = session(world)
    for case, base in BASES.items():
        prompt = one.system_prompt(base)
        level = "##" if case != "deeper" else "###"
        section = f"Lists files.\n\n{level} Skill\n\n{one.tools()[0].description}\n\n"
        assert section in prompt, case
        assert len(re.findall(r"^#+ tools$", prompt, re.MULTILINE | re.IGNORECASE)) == 1
        rest = prompt.replace(section.removeprefix("Lists files.\n\n"), "", 1)
        assert rest.startswith(base.rstrip())
        assert rest[len(base.rstrip()) :].lstrip().startswith("# Skills\n")
    base = BASES["in the middle"]
    shown = metier(world, "prompt", "--base", base, "--profile", "mycodeagent")
    assert shown["text"] == one.system_prompt(base)
    for base in ("", "Tools\n\nLS", "# Toolset", "```\n# Tools\n```"):
        assert one.system_prompt(base).startswith(f"{base}\n\n# Tools\n\n## Skill\n".lstrip())


@pytest.mark.behaviour("M-021", "M-022", "M-023")
def test_the_prompt_has_the_three_rules_and_a_new_session_has_loaded_nothing(world: World) -> None:
    world.skill("skills/probe", body=BODY)
    one = session(world)
    prompt = one.system_prompt()
    rules = prompt[prompt.index("# Skills\n") :].splitlines()
    named, fitting, needed = (rule for rule in rules if rule.startswith("- "))
    assert "`$code-review`" in named
    assert "`Skill` tool" in named
    assert "description" in fitting
    assert "preload" in needed
    assert one.activated == []
    assert one.state()["loaded"] == []


def listed(one: Session) -> list[str]:
    (tool,) = one.tools()
    return [line for line in tool.description.splitlines() if line.startswith("- skill-")]


@pytest.mark.behaviour("M-017", "M-018")
@pytest.mark.parametrize("budget", [None, 1, 200, 11999, 100_000])
def test_the_list_ends_before_the_skill_that_would_pass_the_budget(world: World, budget: int | None) -> None:
    for number in range(150):
        world.skill(f"skills/skill-{number:03}", description="short" if number == 149 else "x" * 100)
    env = {} if budget is None else {"SKILLS_PROMPT_CHAR_BUDGET": str(budget)}
    lines = listed(world.discover("mycodeagent", env=env).session())
    limit = budget or 12000
    one = len("- skill-000: ") + 100
    assert lines == [f"- skill-{n:03}: {'short' if n == 149 else 'x' * 100}" for n in range(len(lines))]
    assert len("\n".join(lines)) <= limit
    assert len(lines) == 150 or len("\n".join(lines)) + one + 1 > limit - 1
    assert (len(lines) == 150) is (budget == 100_000)
    assert listed(session(world, {"prompt.max_chars": limit})) == lines


@pytest.mark.behaviour("N-056")
@pytest.mark.parametrize("budget", ["0", "1"])
def test_without_room_no_skill_is_listed_but_their_number_is_said(world: World, budget: str) -> None:
    for count, said in enumerate(
        ("(none)", "(1 skill not listed; any skill loads by its name.", "(2 skills not listed;")
    ):
        one = world.discover("mycodeagent", env={"SKILLS_PROMPT_CHAR_BUDGET": budget}).session()
        listed = one.tools()[0].description.partition("Available skills:\n")[2]
        assert listed.startswith(said)
        assert "\n" not in listed
        if count:
            assert f"Available skills:\n{listed}\n\n# Skills\n" in one.system_prompt()
            assert '"status": "success"' in one.call("Skill", {"name": "skill-0"}).text
        world.skill(f"skills/skill-{count}")
