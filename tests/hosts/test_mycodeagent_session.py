"""MyCodeAgent: what the one `Skill` tool returns, `$ARGUMENTS`, the envelope and its codes, and the refresh."""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hosts.asking import left, listening, opened
from limited import NOBODY, run_as_nobody
from limited import open_folder as open_folder  # a fixture
from metier.session.session import Session
from worlds import World

BODY = "# Review\n\nLook at $1 and `src`.\n"
OUTSIDE = "OUTSIDE-MARKER"


def session(world: World, settings: dict[str, Any] | None = None, **given: Any) -> Session:
    return world.discover("mycodeagent", settings=settings).session(**given)


def call(one: Session, name: str, **given: Any) -> Any:
    """The answer as the model reads it."""
    return json.loads(one.call("Skill", {"name": name, **given}).text)


def content(one: Session, name: str, **given: Any) -> str:
    """The skill's text behind the line that names its folder."""
    data = call(one, name, **given)["data"]
    first, blank, rest = data["content"].split("\n", 2)
    assert (first, blank) == (f"Base directory for this skill: {data['base_dir']}", "")
    return str(rest)


@pytest.mark.behaviour("M-026", "M-027", "M-028")
def test_the_tool_returns_the_body_as_the_file_has_it_at_the_call(world: World) -> None:
    path = world.skill("skills/folder", "code-review", description="HEAD-MARKER", body=BODY)
    one = session(world)
    result = call(one, "code-review")
    assert result["data"] == {
        "name": "code-review",
        "base_dir": str(path.parent),
        "content": f"Base directory for this skill: {path.parent}\n\n{BODY}",
    }
    assert result["text"] == "Loaded the skill code-review."
    assert "MARKER" not in str(result)
    path.write_text(path.read_text().replace("# Review", "# Changed"))
    assert content(one, "code-review") == BODY.replace("# Review", "# Changed")


ARGUMENTS: list[tuple[str, str | None, str]] = [
    ("Do $ARGUMENTS.\n", "a b", "Do a b.\n"),
    ("$ARGUMENTS, ($ARGUMENTS)[$ARGUMENTS]\n", "x", "x, (x)[x]\n"),
    ("$ARGUMENTS[0] and $1\n", "x y", "x y[0] and $1\n"),
    ("$ARGUMENTS\n", r"\1 \g<0> $1", "\\1 \\g<0> $1\n"),
    ("Plain $1.\n", "a b", "Plain $1.\n\nARGUMENTS: a b\n"),
    ("Plain.\n", "$ARGUMENTS", "Plain.\n\nARGUMENTS: $ARGUMENTS\n"),
    ("Do $ARGUMENTS.\n", "", "Do $ARGUMENTS.\n"),
    ("Do $ARGUMENTS.\n", None, "Do $ARGUMENTS.\n"),
    ("Plain.\n", "", "Plain.\n"),
    ("Plain.  \n\n", None, "Plain.  \n\n"),
    ("$ARGUMENTS", "two\nlines é", "two\nlines é"),
]


@pytest.mark.behaviour("M-029", "M-030", "M-031")
def test_arguments_replace_their_placeholder_or_are_appended_or_change_nothing(world: World) -> None:
    for body, args, expected in ARGUMENTS:
        world.skill("skills/probe", body=body, arguments=["first"], argument_hint="[file]")
        one = session(world)
        assert content(one, "probe", **({} if args is None else {"args": args})) == expected, body


@pytest.mark.behaviour("M-050", "M-051")
def test_commands_references_and_names_of_other_skills_in_a_body_stay_text(world: World) -> None:
    body = "!`touch ran` @README.md @./notes.md $other /other skill://other {baseDir} ${CLAUDE_SKILL_DIR}\n"
    world.skill("skills/probe", body=body, files={"notes.md": OUTSIDE, "README.md": OUTSIDE})
    world.skill("skills/other", body=OUTSIDE)
    one = session(world)
    with listening() as heard:
        assert content(one, "probe") == body
    assert left(heard) == []
    assert one.activated == ["probe"]


@pytest.mark.behaviour("M-048", "M-049")
def test_nothing_is_asked_and_no_hint_of_a_skill_restricts_or_changes_anything(world: World) -> None:
    def never(request: object) -> bool:
        raise AssertionError(request)

    world.skill("skills/probe", body=BODY, allowed_tools="Read", model="other-model", context="fork")
    world.skill("skills/other", body=BODY)
    one = session(world, approve=never)
    tools = one.tools()
    assert call(one, "probe")["status"] == "success"
    assert (one.may_use("Write"), one.overrides, one.tools()) == (True, {}, tools)
    assert call(one, "other")["status"] == "success"


def replace_by(what: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        if what == "folder":
            path.mkdir()
        elif what == "fifo":
            os.mkfifo(path)
        elif what == "link":
            path.symlink_to("/etc/passwd")
        elif what != "nothing":
            path.write_text(what)

    return change


CASES: dict[str, tuple[dict[str, Any], Callable[[Path], None] | None, str]] = {
    "success": ({"name": "probe"}, None, ""),
    "with args": ({"name": "probe", "args": "a b"}, None, ""),
    "no name": ({}, None, "INVALID_PARAM"),
    "null": ({"name": None}, None, "INVALID_PARAM"),
    "empty": ({"name": "", "args": "x"}, None, "INVALID_PARAM"),
    "a number": ({"name": 3}, None, "INVALID_PARAM"),
    "a list": ({"name": "probe", "args": ["x"]}, None, "INVALID_PARAM"),
    "half a character": ({"name": "probe", "args": "\ud800"}, None, "INVALID_PARAM"),
    "unknown": ({"name": "absent"}, None, "NOT_FOUND"),
    "the folder's name": ({"name": "folder"}, None, "NOT_FOUND"),
    "a path": ({"name": "../probe"}, None, "NOT_FOUND"),
    "vanished": ({"name": "probe"}, replace_by("nothing"), "NOT_FOUND"),
    "no frontmatter": ({"name": "probe"}, replace_by("# Only a body\n"), "INTERNAL_ERROR"),
    "broken": ({"name": "probe"}, replace_by("---\nname: [probe\n---\n"), "INTERNAL_ERROR"),
    "a folder": ({"name": "probe"}, replace_by("folder"), "INTERNAL_ERROR"),
    "a fifo": ({"name": "probe"}, replace_by("fifo"), "INTERNAL_ERROR"),
    "a link outside": ({"name": "same"}, replace_by("link"), "ACCESS_DENIED"),
}
STALE = {"vanished": "EXECUTION_ERROR", "a folder": "EXECUTION_ERROR", "a fifo": "EXECUTION_ERROR"}


@pytest.mark.behaviour("M-032", "M-033", "M-034", "M-036", "M-037", "M-039", "M-040", "M-041", "M-055")
@pytest.mark.parametrize("refresh", ["true", "false"])
@pytest.mark.parametrize("case", CASES)
def test_every_answer_is_an_envelope_with_the_right_code(world: World, case: str, refresh: str) -> None:
    given, change, code = CASES[case]
    code = STALE.get(case, code) if refresh == "false" else code
    paths = {"probe": world.skill("skills/folder", "probe", body=BODY), "same": world.skill("skills/same")}
    (world.project / "sub").mkdir()
    env = {"SKILLS_REFRESH_ON_CALL": refresh}
    one = world.discover("mycodeagent", world.project / "sub", env=env).session()
    if change is not None:
        change(paths[given["name"]])
    result = one.call("Skill", given)
    envelope = json.loads(result.text)
    assert envelope == result.data, "a program gets what the model reads"
    assert set(envelope) == {"status", "data", "text", "stats", "context"} | ({"error"} if code else set())
    assert (envelope["status"], result.ok) == ("error" if code else "success", not code)
    assert isinstance(envelope["data"], dict)
    assert envelope["text"].strip()
    assert isinstance(envelope["stats"]["time_ms"], int | float)
    # What is no text cannot be given back.
    context = {"cwd": "sub", "params_input": given if case != "half a character" else {}}
    assert envelope["context"] == context | ({} if code else {"path_resolved": "skills/folder/SKILL.md"})
    if code:
        assert set(envelope["error"]) == {"code", "message"}
        assert (envelope["error"]["code"], bool(envelope["error"]["message"].strip())) == (code, True)
    assert "root:" not in str(envelope)
    none: list[tuple[str, Any]] = [("Skill", None), ("Skill", []), ("Skill", "probe"), ("Other", given), ("", {})]
    for tool, wrong in none if case == "success" else ():
        envelope = json.loads(one.call(tool, wrong).text)
        assert (envelope["status"], envelope["error"]["code"]) == ("error", "INVALID_PARAM")


@pytest.mark.behaviour("M-035")
@pytest.mark.parametrize(("limit", "status"), [(300, "partial"), (100_000, "success")])
def test_what_was_cut_is_partial(world: World, limit: int, status: str) -> None:
    world.skill("skills/probe", body="é" * 1000)
    result = call(session(world, {"load.max_bytes": limit}), "probe")
    cut = status == "partial"
    assert (result["status"], result["data"].get("truncated", False), "error" in result) == (status, cut, False)
    notice = re.search(r"\[truncated: (\d+) bytes of SKILL.md are left out of \d+; .*\]$", result["data"]["content"])
    assert bool(notice) is cut
    assert notice is None or f" {notice[1]} bytes were left out." in result["text"]


@pytest.mark.system
@pytest.mark.behaviour("M-038")
@pytest.mark.parametrize("refresh", ["true", "false"])
def test_a_file_that_the_system_refuses_to_open_gives_permission_denied(open_folder: Path, refresh: str) -> None:
    world = World(open_folder / "home", open_folder / "project")
    path, closed = world.skill("skills/folder", "probe", body=BODY), world.skill("skills/closed")
    code = """
from metier import Skills
base, refresh, path = sys.argv[1:]
env = {"SKILLS_REFRESH_ON_CALL": refresh}
one = Skills.discover(f"{base}/project", profile="mycodeagent", home=f"{base}/home", env=env).session()
assert one.call("Skill", {"name": "probe"}).ok
os.chmod(path, 0)
for name in ("probe", "closed"):
    print(one.call("Skill", {"name": name}).text)
"""
    closed.chmod(0)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    done = run_as_nobody(code, str(open_folder), refresh, str(path))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    for line in done.stdout.splitlines():
        envelope = json.loads(line)
        assert envelope["error"]["code"] == "PERMISSION_DENIED"
        assert "Review" not in str(envelope)


@pytest.mark.behaviour("M-037", "M-043")
@pytest.mark.parametrize("refresh", ["true", "false"])
def test_a_skill_added_a_moment_ago_is_found_and_a_removed_one_is_gone(world: World, refresh: str) -> None:
    gone = world.skill("skills/goes", body=BODY)
    one = world.discover("mycodeagent", env={"SKILLS_REFRESH_ON_CALL": refresh}).session()
    world.skill("skills/a/b/comes", body=BODY)
    assert call(one, "comes")["status"] == "success"
    gone.unlink()
    assert call(one, "goes")["status"] == "error"
    assert call(one, "never")["error"]["code"] == "NOT_FOUND"
    if refresh == "true":
        assert [skill.name for skill in one.skills] == ["comes"]


@pytest.mark.behaviour("M-045")
def test_a_call_without_a_change_opens_the_skill_it_loads_and_no_other(world: World) -> None:
    for number in range(5):
        world.skill(f"skills/s{number}", body=BODY)
    time.sleep(0.05)  # a file that has just been written may change again within one tick of the clock
    one = session(world)
    with listening() as heard:
        assert call(one, "s3")["status"] == "success"
    assert set(opened(heard)) <= {str(world.project / "skills/s3/SKILL.md")}


@pytest.mark.behaviour("M-046")
def test_a_variable_switches_the_refresh_off(world: World) -> None:
    for refresh, shown in ((None, "New."), ("true", "New."), ("1", "New."), ("false", "Old."), ("0", "Old.")):
        path = world.skill("skills/skill-a", description="Old.", body=BODY)
        env = {} if refresh is None else {"SKILLS_REFRESH_ON_CALL": refresh}
        one = world.discover("mycodeagent", env=env).session()
        path.write_text(path.read_text().replace("Old.", "New."))
        assert call(one, "skill-a")["status"] == "success"
        assert f"\n- skill-a: {shown}" in one.tools()[0].description, refresh


@pytest.mark.behaviour("M-047")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_skill_that_leads_out_of_the_project_is_refused(world: World, what: str) -> None:
    outside = world.skill("~/elsewhere/out", body=OUTSIDE)
    inside = world.skill("kept/in", body=BODY)
    for name, target in (("out", outside), ("in", inside)):
        folder = world.project / "skills" / name
        folder.parent.mkdir(exist_ok=True)
        if what == "folder":
            folder.symlink_to(target.parent)
        else:
            folder.mkdir()
            (folder / "SKILL.md").symlink_to(target)
    one = session(world)
    assert call(one, "out")["error"]["code"] == "ACCESS_DENIED"
    assert call(one, "in")["status"] == "success"
    assert OUTSIDE not in str([call(one, "out"), one.system_prompt()])
    assert "- out:" not in one.system_prompt()
