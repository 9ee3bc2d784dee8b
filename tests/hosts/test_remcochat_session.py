"""RemcoChat: the JSON catalog, `/name` in a message, `skills.activate`, and what a chat remembers."""

import json
import re
from typing import Any

import pytest

from hosts.asking import listening, metier
from metier import Skills
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from metier.session.tools import ToolResult
from worlds import World

BODY = "# Steps\n\nBODY-MARKER: do this first.\n"


def discover(world: World, **settings: Any) -> Skills:
    return world.discover("remcochat", settings={"app": {"skills": {"enabled": True, **settings}}})


def chat(world: World, **given: Any) -> Session:
    return discover(world).session(**given)


def told(result: ToolResult) -> dict[str, Any]:
    """What the model reads: JSON."""
    return json.loads(result.text)


def block(text: str) -> dict[str, Any]:
    """The JSON object in a prompt."""
    found, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
    return found


@pytest.mark.behaviour("K-002")
def test_while_off_there_is_no_scan_no_prompt_and_no_tool(world: World) -> None:
    world.skill(".skills/probe", body=BODY)
    with listening() as heard:
        session = world.discover("remcochat").session()
        prompt = session.system_prompt("BASE")
    assert not [path for _, path in heard if path.startswith(str(world.project / ".skills"))]
    assert prompt == "BASE"
    assert session.tools() == []
    assert session.call("skills.activate", {"name": "probe"}).ok is False
    assert session.invoke("/probe go").message == "/probe go"
    assert metier(world, "prompt", "--profile", "remcochat")["text"] == ""
    assert metier(world, "session", "tools", "--profile", "remcochat") == []


@pytest.mark.behaviour("K-042")
def test_tools_are_offered_only_when_skills_and_tool_calling_are_both_on(world: World) -> None:
    world.skill(".skills/probe")
    for enabled, tools in ((True, True), (True, False), (False, True), (False, False)):
        session = world.discover("remcochat", settings={"app.skills.enabled": enabled}).session(tools=tools)
        names = ["skills.activate", "skills.readResource"] if enabled and tools else []
        assert [tool.name for tool in session.tools()] == names
        assert session.call("skills.activate", {"name": "probe"}).ok is bool(names)


@pytest.mark.behaviour("K-008", "K-027")
def test_a_change_on_disk_changes_nothing_until_a_restart_which_keeps_to_the_limit(world: World) -> None:
    path, removed = world.skill(".skills/edited", description="Before"), world.skill(".skills/removed")
    skills = discover(world)
    first, before = skills.session().system_prompt(), list(skills)
    path.write_text(path.read_text().replace("Before", "After"))
    removed.unlink()
    world.skill(".skills/added")
    assert not skills.refresh()
    later = skills.session()
    assert (list(skills), later.system_prompt()) == (before, first)
    assert later.call("skills.activate", {"name": "added"}).ok is False
    shown = block(chat(world).system_prompt())["available_skills"]
    assert [entry["name"] for entry in shown] == ["added", "edited"]
    assert shown[1]["description"] == "After"
    limited = discover(world, max_skills=1)
    assert [entry["name"] for entry in block(limited.session().system_prompt())["available_skills"]] == ["added"]
    assert [d.severity for d in limited.diagnostics if d.code == "too-many-skills"] == ["warning"]
    assert [(s.name, s.reason) for s in limited.skipped] == [("edited", "too-many")]
    assert limited.session().call("skills.activate", {"name": "edited"}).ok is False


@pytest.mark.behaviour("K-023", "K-024")
def test_the_prompt_holds_a_json_block_of_names_and_descriptions_only(world: World) -> None:
    world.skill(".skills/one", description='Says "hi" <b>', license="MIT", metadata={"k": "META-MARKER"})
    world.skill("~/.agents/skills/two", description="Zweite: Größe")
    session = chat(world)
    text = session.system_prompt("BASE")
    assert block(text) == {
        "available_skills": [
            {"name": "one", "description": 'Says "hi" <b>'},
            {"name": "two", "description": "Zweite: Größe"},
        ]
    }
    assert text.startswith("BASE\n")
    for hidden in (str(world.project), str(world.home), "location", "SKILL.md", "META-MARKER", "MIT"):
        assert hidden not in text
    assert session.system_prompt("BASE") == chat(world).system_prompt("BASE") == text


@pytest.mark.behaviour("K-025", "K-026")
def test_a_body_comes_with_activation_and_a_file_when_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metier.files.beneath._has_openat2", lambda: False)  # so that each open is heard
    world.skill(".skills/probe", body=BODY, files={"references/a.md": "REFERENCE-MARKER"})
    session = chat(world)
    assert "BODY-MARKER" not in session.system_prompt() + str(session.tools()) + str(session.events)
    with listening() as heard:
        result = session.call("skills.activate", {"name": "probe"})
    assert "BODY-MARKER" in told(result)["body"]
    assert "REFERENCE-MARKER" not in result.text
    assert ("open", "SKILL.md") in heard
    assert ("open", "a.md") not in heard
    with listening() as heard:
        read = session.call("skills.readResource", {"name": "probe", "path": "references/a.md"})
    assert told(read)["content"] == "REFERENCE-MARKER"
    assert ("open", "a.md") in heard


RULES = (
    r"Skills are available\. Use them when they are relevant, and do not ask for their content without need",
    r"[Bb]efore you use a skill's instructions.*`skills\.activate`",
    r"further files only with `skills\.readResource`, when the instructions need",
    r"begins with `/skill-name`[^\n]*explicit[^\n]*\n[^\n]*call `skills\.activate` for it before you answer",
)


@pytest.mark.behaviour("K-028", "K-029", "K-030", "K-031", "K-032")
def test_the_rules_of_use_are_in_the_prompt_and_without_tools_it_names_none(world: World) -> None:
    world.skill(".skills/probe")
    with_tools, without = chat(world).system_prompt(), chat(world, tools=False).system_prompt()
    off = world.discover("remcochat").session().system_prompt()
    for rule in RULES:
        assert re.search(rule, with_tools), rule
        assert not re.search(rule, off), rule
    sentence = "the server puts the skill's content into this prompt itself"
    assert (sentence in without, sentence in with_tools) == (True, False)
    assert "begins with `/skill-name`" in without
    assert not re.search(r"skills\.(activate|readResource)", without)


@pytest.mark.behaviour("K-033", "K-046", "K-075")
def test_activation_returns_name_parsed_frontmatter_and_body_and_blocks_nothing(world: World) -> None:
    given: dict[str, Any] = {"description": "Probes.", "metadata": {"version": "1.10"}, "license": "MIT"}
    world.skill(".skills/probe", body=BODY, **given, allowed_tools="Read", files={"a.md": "text"})
    session = chat(world)
    assert "probe" in session.prompt().names
    seen = told(session.call("skills.activate", {"name": "probe"}))
    assert list(seen) == ["name", "frontmatter", "body", "truncated"]
    assert seen["frontmatter"] == {"name": "probe", **given, "allowed-tools": "Read"}
    assert (seen["name"], seen["body"]) == ("probe", BODY)
    assert session.may_use("Bash")
    assert session.call("skills.readResource", {"name": "probe", "path": "a.md"}).ok


@pytest.mark.behaviour("K-038", "K-039", "K-040", "K-041", "K-061")
def test_without_tools_the_skill_is_injected_for_that_request_only_and_with_tools_never(world: World) -> None:
    world.skill(".skills/probe", body=BODY)
    world.skill(".skills/other", body="OTHER-BODY")
    session = chat(world, tools=False)
    assert "BODY-MARKER" not in session.system_prompt("BASE")
    assert session.invoke("/probe go").message == "go"
    for _ in range(2):  # the same request, asked twice
        assert "BODY-MARKER" in session.system_prompt("BASE")
    assert session.invoke("thanks").skill is None
    assert "BODY-MARKER" not in session.system_prompt("BASE")
    session.invoke("/probe again")
    session.invoke("/other then")
    prompt = session.system_prompt()
    assert ("OTHER-BODY" in prompt, "BODY-MARKER" in prompt) == (True, False)
    session.end_turn()
    assert "OTHER-BODY" not in session.system_prompt()
    assert session.activated == ["probe", "other"]
    with_tools = chat(world)
    with_tools.invoke("/probe go")
    assert "BODY-MARKER" not in with_tools.system_prompt()
    kinds = [frame["type"] for frame in with_tools.events if frame["type"].startswith("skill_")]
    assert kinds == ["skill_catalog_updated", "skill_invoked"]


@pytest.mark.behaviour("K-059", "K-061")
def test_each_chat_keeps_the_names_that_it_activated(world: World) -> None:
    for name in ("one", "two", "three"):
        world.skill(f".skills/{name}", body=BODY)
    skills = discover(world)
    chat_one, chat_two = skills.session(), skills.session()
    chat_one.call("skills.activate", {"name": "two"})
    chat_one.invoke("/one go")
    for failed in ({"name": "missing"}, {"name": ""}, {}, {"name": 7}):
        assert chat_one.call("skills.activate", failed).ok is False
    chat_one.invoke("/missing go")
    assert chat_one.state()["activated_skill_names"] == ["two", "one"]
    chat_one.call("skills.readResource", {"name": "three", "path": "SKILL.md"})
    assert chat_one.state()["activated_skill_names"] == ["two", "one", "three"], "its body is in there"
    assert chat_two.state()["activated_skill_names"] == []


@pytest.mark.behaviour("K-060", "K-062", "K-063")
def test_names_outlive_a_restart_in_order_once_each_and_without_bodies(world: World) -> None:
    for name in ("one", "two", "three"):
        world.skill(f".skills/{name}", body=BODY)
    session = chat(world)
    for name in ("two", "one", "two", "three", "one"):
        session.call("skills.activate", {"name": name})
    stored = json.dumps(session.state())
    assert "BODY-MARKER" not in stored
    again = chat(world, state=json.loads(stored))
    assert again.state()["activated_skill_names"] == ["two", "one", "three"]
    prompt = again.system_prompt()
    assert "two, one, three" in prompt
    assert "BODY-MARKER" not in prompt
    assert "two, one, three" not in chat(world).system_prompt()


@pytest.mark.behaviour("K-071")
def test_a_script_runs_only_by_the_tool_for_it_while_that_is_switched_on_and_in_the_sandbox(world: World) -> None:
    world.skill(".skills/probe", files={"scripts/x.sh": "#!/bin/sh\n:\n"})
    world.trust()
    runner = FakeRunner(default=Outcome(0, "exit", 5, b"it ran", b""))
    call = {"name": "probe", "script": "scripts/x.sh"}

    def tried(tool: str) -> tuple[list[str], ToolResult]:
        session = discover(world, tools={"run": tool}).session(runner=runner, policy={"allow": [{"tool": "skill_run"}]})
        assert session.call("skills.activate", {"name": "probe"}).ok
        return [one.name for one in session.tools()], session.call("skills.runScript", call)

    offered, result = tried("")
    assert (offered, result.ok, runner.jobs) == (["skills.activate", "skills.readResource"], False, [])
    offered, result = tried("skills.runScript")
    assert (offered[-1], result.ok) == ("skills.runScript", True)
    assert "it ran" in result.text
    assert [job.script for job in runner.jobs] == ["scripts/x.sh"]


@pytest.mark.behaviour("K-085")
def test_single_skills_can_be_switched_and_changes_seen_at_once_where_that_is_set(world: World) -> None:
    world.skill(".skills/one")
    world.skill(".skills/two")
    skills = discover(world, catalog={"refresh": "stale"})
    skills.disable("two")
    session = skills.session()
    assert [entry["name"] for entry in block(session.system_prompt())["available_skills"]] == ["one"]
    assert session.call("skills.activate", {"name": "two"}).ok is False
    world.skill(".skills/new", body=BODY)
    assert told(session.call("skills.activate", {"name": "new"}))["body"] == BODY
