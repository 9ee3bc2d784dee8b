"""The standard: disclose, activate, keep; what a client guide asks of a host, and the extensions people use."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from hosts.asking import metier
from metier import AmbiguousSkill, SkillNotFound
from metier.errors import BadArguments, BinaryResource, PathEscape, ResourceError, ResourceNotFound
from metier.session.session import Session
from worlds import World

BODY = "# Steps\n\nBODY-MARKER\n"
FILES: dict[str, str | bytes] = {"references/a.md": "REFERENCE", "scripts/run.py": "print()", "b.bin": b"\x00"}


def write(world: World, name: str = "pdf", **given: Any) -> Path:
    fields: dict[str, Any] = {"body": BODY, "files": FILES, **given}
    return world.skill(f".agents/skills/{name}", **fields)


def open_session(world: World, **given: Any) -> Session:
    return world.discover(**{key: given.pop(key) for key in ("settings", "roots") if key in given}).session(**given)


# --- disclose ---


def test_the_catalog_is_xml_with_usage_rules_that_name_the_tools(world: World) -> None:
    write(world, description="Fills forms.")
    text = open_session(world).prompt().text
    assert "<available_skills>\n<skill><name>pdf</name><description>Fills forms.</description></skill>\n" in text
    assert "`skill_load`" in text
    assert "`skill_read`" in text
    assert "BODY-MARKER" not in text
    assert str(world.project) not in text


def test_without_tools_none_is_mentioned(world: World) -> None:
    write(world)
    session = open_session(world, tools=False)
    assert session.tools() == []
    assert "skill_" not in session.system_prompt()
    assert "pdf" in session.prompt().names


def test_the_system_prompt_is_base_instructions_skills_activated_names_and_preloaded_skills(world: World) -> None:
    write(world)
    write(world, "pinned", body="PINNED-BODY")
    (world.project / "AGENTS.md").write_text("INSTRUCTIONS")
    session = open_session(world, preload=["pinned"])
    session.load("pdf")
    text = session.system_prompt("BASE")
    parts = ["BASE", "INSTRUCTIONS", "<available_skills>", "activated in this conversation: pdf", "PINNED-BODY"]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)


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


# --- activate ---


def test_a_load_is_wrapped_names_the_directory_and_lists_the_files_without_reading_them(world: World) -> None:
    path = write(world)
    loaded = open_session(world).load("pdf")
    assert loaded.text.startswith('<skill_content name="pdf">\n# Steps')
    assert loaded.text.endswith("</skill_content>")
    assert f"Skill directory: {path.parent}\n" in loaded.text
    assert "name: pdf" not in loaded.text
    assert re.findall("<file>(.*?)</file>", loaded.text) == list(loaded.files) == sorted(FILES)
    assert "REFERENCE" not in loaded.text


def test_a_load_by_path_takes_only_paths_of_the_catalog(world: World) -> None:
    path = write(world)
    other = world.skill("elsewhere/other", body="SECRET")
    session = open_session(world)
    for spelled in (path, path.parent, str(path), ".agents/skills/pdf/SKILL.md"):
        assert session.load(path=spelled).skill.path == str(path)
    for wrong in (other, "/etc/passwd", path.parent / "references/a.md"):
        with pytest.raises(SkillNotFound):
            session.load(path=wrong)
        assert "SECRET" not in str(session.call("skill_load", {"path": str(wrong)}))


def test_a_shadowed_skill_is_reachable_by_its_path(world: World) -> None:
    write(world, body="PROJECT")
    user = world.skill("~/.agents/skills/pdf", body="USER")
    session = open_session(world)
    assert "PROJECT" in session.load("pdf").text
    assert "USER" in session.load(path=user).text
    assert "USER" in open_session(world).call("skill_load", {"path": str(user)}).text


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("/pdf a.pdf", "a.pdf"),
        ("/skill:pdf a.pdf", "a.pdf"),
        ("please use $pdf, now", ""),
        ("see skill://pdf/x.md", ""),
    ],
)
def test_a_user_calls_a_skill_in_four_ways(world: World, message: str, arguments: str) -> None:
    write(world, body="Fill $ARGUMENTS now")
    called = open_session(world).invoke(message)
    assert called.skill is not None
    assert called.loaded is not None
    assert called.arguments == arguments
    assert f"Fill {arguments or '$ARGUMENTS'} now" in called.loaded.text
    assert called.message == (arguments if message.startswith("/") else message)


def test_a_second_load_is_a_reminder_with_a_ref_that_works(world: World) -> None:
    write(world)
    session = open_session(world)
    first = session.load("pdf")
    second = session.call("skill_load", {"name": "pdf"})
    assert second.data["already_loaded"] is True
    assert "BODY-MARKER" not in second.text
    assert first.ref in second.text
    assert session.call("skill_output", {"ref": second.data["ref"]}).text == first.text
    assert "BODY-MARKER" in session.call("skill_output", {"ref": first.ref, "grep": "body-"}).text
    assert session.call("skill_output", {"ref": first.ref, "start": 2, "end": 2}).text == first.text.split("\n")[1]


@pytest.mark.parametrize("touched", ["only touched", "edited", "other arguments", "another session"])
def test_suppression_goes_by_content(world: World, touched: str) -> None:
    path = write(world, body=BODY + "For $ARGUMENTS")
    session = open_session(world)
    session.load("pdf", arguments="a")
    if touched == "only touched":
        path.write_bytes(path.read_bytes())
    elif touched == "edited":
        path.write_text(path.read_text() + "\nNEW")
    later = session if touched != "another session" else session.skills.session()
    again = later.load("pdf", arguments="b" if touched == "other arguments" else "a")
    assert again.already_loaded is (touched == "only touched")
    assert ("BODY-MARKER" in again.text) is not again.already_loaded
    assert ("NEW" in again.text) is (touched == "edited")


def test_a_skill_that_was_edited_or_added_is_seen_on_the_next_call(world: World) -> None:
    path = write(world)
    session = open_session(world)
    path.write_text(path.read_text().replace("BODY-MARKER", "SECOND"))
    assert "SECOND" in session.call("skill_load", {"name": "pdf"}).text
    write(world, "added", body="THIRD")
    assert "THIRD" in session.call("skill_load", {"name": "added"}).text
    assert "added" in session.prompt().names


# --- resources ---


@pytest.mark.parametrize(
    ("path", "error", "reason"),
    [
        ("../x", PathEscape, "traversal"),
        ("/etc/passwd", PathEscape, "absolute"),
        ("references/../a", PathEscape, "traversal"),
        ("references\\a.md", PathEscape, "backslash"),
        ("out", PathEscape, "link"),
        ("circle", PathEscape, "loop"),
        ("missing", ResourceNotFound, "not-found"),
        ("b.bin", BinaryResource, "binary"),
        ("references", ResourceError, "folder"),
        ("", ResourceError, "folder"),
        ("pipe", ResourceError, "not-a-file"),
        ("x" * 300, ResourceError, "too-long"),
    ],
)
def test_each_refusal_of_a_resource_has_its_reason(
    world: World, path: str, error: type[ResourceError], reason: str
) -> None:
    folder = write(world).parent
    (folder / "out").symlink_to("../../../AGENTS.md")
    (folder / "circle").symlink_to("circle")
    os.mkfifo(folder / "pipe")
    session = open_session(world)
    with pytest.raises(error) as refused:
        session.read("pdf", path)
    assert refused.value.reason == reason
    assert session.call("skill_read", {"name": "pdf", "path": path}).ok is False


@pytest.mark.parametrize("path", ["a\x00", "\ud800"])
def test_a_path_that_no_file_can_have_is_refused_before_anything_is_recorded(world: World, path: str) -> None:
    write(world)
    session = open_session(world)
    before = len(session.events)
    with pytest.raises(BadArguments, match="path"):
        session.read("pdf", path)
    assert len(session.events) == before
    assert session.call("skill_read", {"name": "pdf", "path": path}).ok is False


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


def test_a_missing_file_tells_which_there_are(world: World) -> None:
    write(world)
    with pytest.raises(ResourceNotFound) as missing:
        open_session(world).read("pdf", "references/b.md")
    assert missing.value.available == tuple(sorted(FILES))


# --- a model's mistakes ---


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
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
    ],
)
def test_a_mistake_gives_a_result_that_says_what_to_do(world: World, tool: str, arguments: Any, says: str) -> None:
    write(world)
    result = open_session(world).call(tool, arguments)
    assert not result.ok
    assert result.code
    assert says in result.text
    assert result.data["error"]["message"] == result.text


def test_a_skill_that_broke_since_is_reported_and_not_raised(world: World) -> None:
    path = write(world)
    session = open_session(world)
    path.write_text("no frontmatter")
    result = session.call("skill_load", {"name": "pdf"})
    assert not result.ok
    assert "broken" in result.text
    path.unlink()
    assert session.call("skill_load", {"name": "pdf"}).ok is False


def test_ambiguity_is_reported_with_the_paths_and_never_guessed(world: World) -> None:
    paths = [str(write(world)), str(world.skill("~/.agents/skills/pdf"))]
    session = open_session(world, settings={"collisions": {"rule": "ambiguous"}})
    with pytest.raises(AmbiguousSkill) as ambiguous:
        session.load("pdf")
    assert sorted(ambiguous.value.candidates) == sorted(paths)
    called = session.invoke("/pdf x")
    assert (called.skill, called.message, sorted(called.ambiguous)) == (None, "/pdf x", sorted(paths))
    assert sorted(session.call("skill_load", {"name": "pdf"}).data["candidates"]) == sorted(paths)


# --- extensions ---


def test_skills_that_name_files_are_shown_only_while_one_of_those_is_worked_on(world: World) -> None:
    write(world, "always")
    write(world, "for-python", paths=["*.py"])
    write(world, "for-web", globs="*.ts, *.css")
    session = open_session(world)
    assert session.prompt().names == ("always", "for-python", "for-web")
    assert session.prompt(files=["a.py"]).names == ("always", "for-python")
    assert session.prompt(files=["x.css"]).names == ("always", "for-web")
    assert session.prompt(files=[]).names == ("always",)


def test_always_apply_puts_a_skill_into_every_prompt_only_where_the_profile_grants_it(world: World) -> None:
    write(world, alwaysApply=True)
    assert "BODY-MARKER" not in open_session(world).system_prompt()
    granted = open_session(world, settings={"catalog": {"honours": ["alwaysApply"]}})
    assert "BODY-MARKER" in granted.system_prompt()


def test_the_directory_stands_in_for_its_placeholders_and_a_command_stays_text(world: World) -> None:
    path = write(world, body="See ${CLAUDE_SKILL_DIR}/a and {baseDir}/b; !`rm -rf x`\n")
    loaded = open_session(world).load("pdf", arguments="{baseDir} ${CLAUDE_SKILL_DIR}")
    assert f"See {path.parent}/a and {path.parent}/b; !`rm -rf x`" in loaded.text
    assert "ARGUMENTS: {baseDir} ${CLAUDE_SKILL_DIR}" in loaded.text, "the user's words are not expanded"
