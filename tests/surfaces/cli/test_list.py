"""`metier list`, `show`, `enable`, `disable` and `mode`: what they print for people and programs, and save."""

import json
import re

import pytest

from calling import Run
from worlds import World

SKILLS = ".agents/skills"

SKILL_KEYS = {
    "id",
    "name",
    "description",
    "path",
    "dir",
    "scope",
    "source",
    "mtime_ms",
    "license",
    "compatibility",
    "metadata",
    "allowed_tools",
    "extra",
    "enabled",
    "model_invocable",
    "user_invocable",
}
DIAGNOSTIC_KEYS = {"code", "severity", "path", "line", "column", "message", "hint"}


def test_list_prints_a_table_and_says_what_is_not_in_it(mixed: World, run: Run) -> None:
    result = run("list")
    assert result.code == 0
    assert result.out.splitlines() == [
        "NAME  SCOPE  DESCRIPTION",
        "pdf   repo   Fills forms.",
        "xlsx  user   Sheets.",
    ]
    assert result.err == "2 of 5 skills; 1 shadowed, 1 left out, 1 broken; `metier list --all` shows them\n"


def test_list_as_json_has_the_documented_shape(mixed: World, run: Run) -> None:
    shown = run("list", "--json").json
    assert shown.keys() >= {"profile", "roots", "skills", "shadowed", "skipped", "diagnostics", "counts"}
    assert shown["profile"] == "standard"
    assert all(root.keys() >= {"path", "scope", "source", "exists", "count"} for root in shown["roots"])
    assert all(skill.keys() >= SKILL_KEYS for skill in shown["skills"])
    assert all(entry.keys() >= SKILL_KEYS | {"shadowed_by"} for entry in shown["shadowed"])
    assert all(entry.keys() >= {"path", "reason"} for entry in shown["skipped"])
    assert all(entry.keys() == DIAGNOSTIC_KEYS for entry in shown["diagnostics"])
    assert shown["counts"] == {"found": 5, "loaded": 2, "shadowed": 1, "skipped": 1, "errors": 1}
    pdf = shown["skills"][0]
    assert (pdf["metadata"], pdf["allowed_tools"], pdf["extra"]) == (
        {"author": "me"},
        ["Read", "Bash"],
        {"version": "2"},
    )


def test_list_all_says_which_and_why(mixed: World, run: Run) -> None:
    shown = run("list", "--all").out
    for expected in ("SHADOWED", "LEFT OUT", "folders named build", "error[description-missing]", "broken/SKILL.md:"):
        assert expected in shown


def test_list_of_a_scope_shows_only_that(mixed: World, run: Run) -> None:
    assert [s["name"] for s in run("list", "--scope", "user", "--json").json["skills"]] == ["xlsx"]


def test_list_of_nothing_says_where_it_looked(run: Run, world: World) -> None:
    result = run("list")
    assert (result.code, result.out) == (0, "")
    assert str(world.project / SKILLS) in result.err


def test_quiet_says_nothing_beside_the_answer(mixed: World, run: Run) -> None:
    assert run("list", "-q").err == ""


# --- show ---


def test_show_prints_fields_and_files(mixed: World, run: Run) -> None:
    shown = run("show", "pdf").out
    for expected in ("Fills forms.", "repo (from agents)", "MIT", "Read, Bash", "scripts/fill.py", "metadata.author"):
        assert expected in shown
    as_json = run("show", "pdf", "--json").json
    assert as_json.keys() >= SKILL_KEYS | {"files"}
    assert as_json["files"] == ["assets/a.bin", "references/forms.md", "scripts/fill.py"]


def test_show_takes_a_path_also_of_a_shadowed_skill(mixed: World, run: Run) -> None:
    path = str(mixed.home / ".agents/skills/pdf")
    assert run("show", path, "--json").json["shadowed_by"] == str(mixed.project / SKILLS / "pdf/SKILL.md")
    assert "shadowed by" in run("show", f"{path}/SKILL.md").out


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pfd", "did you mean pdf?"),
        ("broken", "not a valid skill: `description` is missing (line 2)"),
        ("./x", "not in"),
    ],
)
def test_show_of_what_is_no_skill_is_a_no_with_a_reason(mixed: World, run: Run, name: str, says: str) -> None:
    result = run("show", name)
    assert (result.code, result.out) == (1, "")
    assert says in result.err
    assert result.err.count("\n") == 1


# --- enable, disable and mode: what they save and what they print ---


@pytest.fixture
def shelf(world: World) -> World:
    world.skill(f"{SKILLS}/release-notes", description="Drafts release notes.")
    world.skill(f"{SKILLS}/csv-profile", description="Profiles a CSV file.")
    return world


def test_enable_and_disable_last(mixed: World, run: Run) -> None:
    assert run("disable", "xlsx").out == "xlsx is off for you\n"
    assert "xlsx (off)" in run("list").out
    assert run("enable", "xlsx", "--json").json == {
        "name": "xlsx",
        "path": str(mixed.home / ".agents/skills/xlsx/SKILL.md"),
        "enabled": True,
        "mode": "auto",
        "level": "user",
    }
    assert "takes its place" in run("disable", "pdf", "--project").out
    assert run("show", "pdf", "--json").json["description"] == "The user's."
    assert (mixed.project / ".metier/skills.json").is_file()
    assert run("disable", "nothing").code == 1


def switching(mode: str) -> list[str]:
    """The command that sets a mode."""
    return ["disable", "csv-profile"] if mode == "off" else ["enable", "csv-profile", "--mode", mode]


@pytest.mark.parametrize("mode", ["pinned", "auto", "name-only", "manual", "off"])
@pytest.mark.parametrize("where", ["user", "project"])
def test_a_mode_is_set_and_lasts(run: Run, shelf: World, mode: str, where: str) -> None:
    project = ("--project",) if where == "project" else ()
    if project and mode == "pinned":
        refused = run(*switching(mode), *project)
        assert (refused.code, "a project cannot pin a skill" in refused.err) == (2, True)
        return
    said = json.loads(run(*switching(mode), *project, "--json").out)
    assert (said["name"], said["mode"], said["enabled"], said["level"]) == ("csv-profile", mode, mode != "off", where)
    assert shelf.discover().at(said["path"]).mode == mode


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("pinned", "csv-profile is pinned for you: it comes first in every prompt\n"),
        ("name-only", "csv-profile is name-only for you: the model sees its name without its description\n"),
        ("manual", "csv-profile is manual for you: it is hidden from the model, and people call it by name\n"),
        ("off", "csv-profile is off for you\n"),
        ("auto", "csv-profile is on for you\n"),
    ],
)
def test_the_new_mode_is_printed(run: Run, shelf: World, mode: str, message: str) -> None:
    assert run(*switching(mode)).out == message


def test_a_pinned_skill_is_first_in_the_prompt_of_the_command_line(run: Run, shelf: World) -> None:
    run("enable", "release-notes", "--mode", "pinned")
    assert re.findall(r"<name>(.*?)</name>", run("prompt").out)[0] == "release-notes"
    run("enable", "release-notes", "--mode", "manual")
    assert "release-notes" not in run("prompt").out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("csv-profile", "--mode", "loud"), 2, "'loud' is not one of"),
        (("csv-profile", "--mode"), 2, "requires an argument"),
        (("no-such-skill", "--mode", "pinned"), 1, "no-such-skill"),
    ],
)
def test_a_wrong_mode_or_name_is_said_with_its_exit_code(
    run: Run, shelf: World, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = run("enable", *arguments)
    assert result.code == code
    assert said in result.err
    assert result.out == ""
