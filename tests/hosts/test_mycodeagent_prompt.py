"""MyCodeAgent: the description of its one tool, which carries the list of skills, and the rules in the prompt."""

import json
from typing import Any

import pytest

from hosts.asking import metier
from metier.session.session import Session
from worlds import World

BODY = "# Review\n\nLook at $1 and `src`.\n"


def session(world: World, settings: dict[str, Any] | None = None) -> Session:
    return world.discover("mycodeagent", settings=settings).session()


@pytest.mark.behaviour("M-015", "M-016", "M-019", "M-020", "M-025")
def test_the_first_prompt_has_the_tool_with_parameters_examples_and_list(world: World) -> None:
    world.skill("skills/code-review", description="Review code\n quality & risks", body=BODY)
    world.skill("skills/x/pdf", description="Fill forms", body=BODY)
    one = session(world)
    (tool,) = one.tools()
    assert tool.name == "Skill"
    assert {key: value["type"] for key, value in tool.input_schema["properties"].items()} == {
        "name": "string",
        "args": "string",
    }
    assert tool.input_schema["required"] == ["name"]
    lines = tool.description.splitlines()
    assert [line for line in lines if line in ("Parameters:", "Examples:", "Available skills:")] == [
        "Parameters:",
        "Examples:",
        "Available skills:",
    ]
    assert lines[lines.index("Available skills:") + 1 :] == [
        "- code-review: Review code quality & risks",
        "- pdf: Fill forms",
    ]
    assert [json.loads(line[2:])["name"] for line in lines if line.startswith("- {")] == ["code-review"] * 2
    prompt = one.system_prompt("BASE\n\n# Tools\n\n## LS\n\nLists files.")
    section = prompt[prompt.index("## Skill") : prompt.index("# Skills\n")]
    assert prompt.startswith("BASE\n\n# Tools")
    assert tool.description in section
    assert "Look at" not in prompt
    assert metier(world, "tools", "--profile", "mycodeagent") == [tool.as_dict()]


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


@pytest.mark.behaviour("M-024")
@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Run $code-review on this", "code-review"),
        ("$code-review", "code-review"),
        ("$PATH costs $5", None),
        ("/code-review", None),
    ],
)
def test_a_dollar_and_a_name_are_recognised_and_nothing_else(world: World, message: str, found: str | None) -> None:
    world.skill("skills/code-review")
    invocation = session(world).invoke(message)
    assert (invocation.skill.name if invocation.skill else None, invocation.message) == (found, message)
