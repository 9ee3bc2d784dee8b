"""The standard: disclose, activate, keep; what a client guide asks of a host, and the extensions people use."""

import re
from pathlib import Path
from typing import Any

import pytest

from hosts.asking import metier
from metier.errors import ResourceError, ResourceNotFound
from metier.session.session import Session
from worlds import World

BODY = "# Steps\n\nBODY-MARKER\n"
FILES: dict[str, str | bytes] = {"references/a.md": "REFERENCE", "scripts/run.py": "print()", "b.bin": b"\x00"}


def write(world: World, name: str = "pdf", **given: Any) -> Path:
    fields: dict[str, Any] = {"body": BODY, "files": FILES, **given}
    return world.skill(f".agents/skills/{name}", **fields)


def open_session(world: World, **given: Any) -> Session:
    return world.discover(**{key: given.pop(key) for key in ("settings", "roots") if key in given}).session(**given)


def test_a_skill_is_disclosed_by_its_description_and_loaded_with_the_names_of_its_files(world: World) -> None:
    path = write(world, description="Fills forms.")
    write(world, "pinned", body="PINNED-BODY")
    (world.project / "AGENTS.md").write_text("INSTRUCTIONS")
    session = open_session(world, preload=["pinned"])
    text = session.prompt().text
    assert "<available_skills>\n<skill><name>pdf</name><description>Fills forms.</description></skill>\n" in text
    assert "`skill_load`" in text
    assert not re.search(f"BODY-MARKER|{world.project}", text)
    loaded = session.load("pdf")
    assert loaded.text.startswith('<skill_content name="pdf">\n# Steps')
    assert loaded.text.endswith("</skill_content>")
    assert f"Skill directory: {path.parent}\n" in loaded.text
    assert re.findall("<file>(.*?)</file>", loaded.text) == list(loaded.files) == sorted(FILES)
    assert not re.search("name: pdf|REFERENCE", loaded.text)
    text = session.system_prompt("BASE")
    parts = ["BASE", "INSTRUCTIONS", "<available_skills>", "activated in this conversation: pdf", "PINNED-BODY"]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    again = session.call("skill_load", {"name": "pdf"})
    assert again.data["already_loaded"] is True
    assert ("BODY-MARKER" in again.text, loaded.ref in again.text) == (False, True)
    assert session.call("skill_output", {"ref": again.data["ref"]}).text == loaded.text
    path.write_text("no frontmatter")
    broken = session.call("skill_load", {"name": "pdf"})
    assert (broken.ok, "broken" in broken.text) == (False, True)


def test_the_names_in_the_schemas_are_those_that_the_model_may_see(world: World) -> None:
    write(world)
    write(world, "hidden", disable_model_invocation=True)
    for tool in open_session(world).tools():
        name = tool.input_schema["properties"].get("name", {})
        assert name.get("enum", ["pdf"]) == ["pdf"]
    for number in range(64):
        write(world, f"more-{number}")
    load = next(tool for tool in open_session(world).tools() if tool.name == "skill_load")
    assert "enum" not in load.input_schema["properties"]["name"], "an enum of 65 names costs more than it helps"


def test_a_resource_is_read_by_name_and_path_or_by_url(world: World) -> None:
    write(world, files={"references/a b%.md": "REFERENCE", "x.txt": "plain"})
    session = open_session(world)
    by_name, by_url = session.read("pdf", "references/a b%.md"), session.read("skill://pdf/references/a%20b%25.md")
    assert by_name == by_url
    assert (by_name.text, by_name.mime, by_name.size, by_name.truncated) == ("REFERENCE", "text/markdown", 9, False)
    assert session.read("pdf", "x.txt").mime == "text/plain"
    assert "BODY-MARKER" in session.read("skill://pdf").text
    assert metier(world, "read", "skill://pdf/x.txt")["text"] == "plain"
    with pytest.raises(ResourceError, match="not a skill:// URL"):
        session.read("https://pdf/x.txt")
    with pytest.raises(ResourceNotFound) as missing:
        session.read("pdf", "references/b.md")
    assert missing.value.available == ("references/a b%.md", "x.txt")


MISTAKES: list[tuple[str, Any, str]] = [
    ("skill_load", {"name": "pfd"}, "available: pdf"),
    ("skill_load", {}, "`name` is missing"),
    ("skill_load", {"name": ["pdf"]}, "must be a string, not list"),
    ("skill_load", None, "`name` is missing"),
    ("skill_load", ["pdf"], "JSON object"),
    ("skill_load", {"name": "pdf", "parent": "pdf"}, "cycle: pdf -> pdf"),
    ("skill_read", {"name": "pdf"}, "`path` is missing"),
    ("skill_read", {"name": "pdf", "path": "gone"}, "File not found: gone"),
    ("skill_search", {}, "`query` is missing"),
    ("skill_search", {"query": "pdf", "limit": "3"}, "whole number"),
    ("skill_output", {"ref": "skill-0"}, "no output 'skill-0'"),
    ("skill_nothing", {}, "the tools are: skill_load"),
]


def test_a_mistake_gives_a_result_that_says_what_to_do(world: World) -> None:
    write(world)
    for tool, arguments, says in MISTAKES:
        result = open_session(world).call(tool, arguments)
        assert (result.ok, bool(result.code), says in result.text) == (False, True, True), (tool, arguments)
        assert result.data["error"]["message"] == result.text


def test_skills_that_name_files_are_shown_only_while_one_of_those_is_worked_on(world: World) -> None:
    write(world, "always", alwaysApply=True)
    write(world, "for-python", paths=["*.py"])
    write(world, "for-web", globs="*.ts, *.css")
    session = open_session(world)
    assert session.prompt().names == ("always", "for-python", "for-web")
    assert session.prompt(files=["a.py"]).names == ("always", "for-python")
    assert session.prompt(files=["x.css"]).names == ("always", "for-web")
    assert session.prompt(files=[]).names == ("always",)
    granted = open_session(world, settings={"catalog": {"honours": ["alwaysApply"]}})
    assert ["BODY-MARKER" in one.system_prompt() for one in (session, granted)] == [False, True]


def test_a_hit_says_where_it_is_only_if_another_skill_has_its_name(world: World) -> None:
    write(world)
    world.skill("~/.agents/skills/csv", description="Reads tables.")
    found = open_session(world).call("skill_search", {"query": "pdf tables"}).text
    assert "- csv: Reads tables." in found
    assert "scope:" not in found
    world.skill("~/.agents/skills/pdf")
    session = world.discover(settings={"collisions.rule": "ambiguous"}).session()
    found = session.call("skill_search", {"query": "pdf tables"}).text
    places = sorted(line.removesuffix("pdf/SKILL.md") for line in found.splitlines() if "scope:" in line)
    roots = ((world.project, "repo"), (world.home, "user"))
    assert places == [f"  scope: {scope}, path: {root}/.agents/skills/" for root, scope in roots]


def test_a_skill_that_was_read_as_a_file_is_given_whole_when_it_is_loaded(world: World) -> None:
    write(world)
    session = open_session(world)
    session.read("pdf", "SKILL.md")
    assert not session.load("pdf").already_loaded
    assert session.load("pdf").already_loaded


def test_a_search_records_the_catalog_that_it_searched(world: World) -> None:
    write(world)
    session = open_session(world)
    world.skill(".agents/skills/csv", description="Reads tables.")
    session.skills.refresh()
    session.search("tables")
    kinds = [frame["type"] for frame in session.events]
    assert kinds[-3:] == ["skill_catalog_updated", "skills_searched", "session_returned"]
