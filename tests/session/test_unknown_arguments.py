"""An argument that a tool does not have is refused with the nearest name, before anybody is asked."""

import pytest

from metier import Request
from metier.hosts.formats import Definition
from metier.hosts.formats.standard import StandardFormats
from worlds import World

ARGUMENTS = {
    "load": {"name": "pdf"},
    "search": {"query": "forms"},
    "read": {"name": "pdf", "path": "references/a.md"},
    "output": {"ref": "skill-0a1b2c3d4e5f"},
    "run": {"name": "pdf", "script": "scripts/x.sh"},
    "unload": {"name": "pdf"},
}
BY_URL = {"path": "skill://pdf/references/a.md"}


@pytest.mark.parametrize("profile", ["standard", "codelia", "mycodeagent", "remcochat", "rip", "omp"])
def test_every_tool_refuses_what_it_does_not_have(world: World, profile: str) -> None:
    for root in (".agents/skills", ".rip/skills", ".omp/skills", "skills", ".skills"):
        world.skill(f"{root}/pdf", files={"references/a.md": "A page.", "scripts/x.sh": "#!/bin/sh\n"})
    asked: list[Request] = []

    def approve(request: Request) -> bool:
        asked.append(request)
        return True

    tools = [f"skill_{role}" for role in ARGUMENTS]
    rules = {"ask": [{"tool": tool} for tool in tools]}
    session = world.discover(profile, settings={"enabled": True}).session(policy=rules, approve=approve)
    wrong: list[str] = []
    for role, tool in session.profile.tools.by_role().items():
        right = BY_URL if profile == "omp" else ARGUMENTS[role]
        schema = next(one.input_schema for one in session.tools() if one.name == tool)
        for extra in ("nonsense", f"{next(iter(schema['properties']))}s"):
            answer = session.call(tool, {**right, extra: "x"})
            if answer.ok or f"there is no argument `{extra}`" not in answer.text:
                wrong.append(f"{tool} {extra}: {answer.text[:120]}")
            if extra != "nonsense" and "did you mean" not in answer.text:
                wrong.append(f"{tool} {extra}: no nearest name: {answer.text[:120]}")
    assert not wrong, "\n".join(wrong)
    assert asked == []
    done = {"skill_loaded", "skill_resource_read", "skills_searched", "tool_started", "policy_asked"}
    assert not done & {frame["type"] for frame in session.events}


def test_a_script_does_not_run_without_the_arguments_that_were_meant_for_it(world: World) -> None:
    world.skill(".agents/skills/pdf", files={"scripts/x.sh": "#!/bin/sh\n"})
    session = world.discover().session(policy={"allow": [{"tool": "skill_run"}]})
    session.load("pdf")
    answer = session.call("skill_run", {"name": "pdf", "script": "scripts/x.sh", "args": ["--dry-run"]})
    assert answer.code == "INVALID_PARAM"
    assert "there is no argument `args`; did you mean `arguments`?" in answer.text
    assert session.call("skill_load", {"name": "pdf", "parent": None, "nothing": None}).ok, "null is as good as absent"


def test_a_host_whose_schema_names_no_arguments_takes_any(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandardFormats, "define", lambda *_: Definition("Finds skills.", {"type": "object"}))
    world.skill(".agents/skills/pdf", description="Fills forms.")
    assert "pdf" in world.discover().session().call("skill_search", {"query": "forms", "more": 1}).text
