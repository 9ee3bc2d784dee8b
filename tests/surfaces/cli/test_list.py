"""`metier list`, `show`, `enable`, `disable` and `mode`: what they print for people and programs, and save."""

import re

import pytest

from calling import Run
from worlds import World

SKILLS = ".agents/skills"


def test_list_prints_a_table_and_says_what_is_not_in_it(mixed: World, run: Run) -> None:
    result = run("list")
    assert result.code == 0
    assert [line.split()[:2] for line in result.out.splitlines()[1:]] == [["pdf", "repo"], ["xlsx", "user"]]
    assert result.err == "2 of 5 skills; 1 shadowed, 1 left out, 1 broken; `metier list --all` shows them\n"
    assert run("list", "-q").err == ""
    shown = run("list", "--all").out
    for expected in ("SHADOWED", "LEFT OUT", "folders named build", "error[description-missing]", "broken/SKILL.md:"):
        assert expected in shown


def test_list_as_json_has_every_skill_with_its_fields(mixed: World, run: Run) -> None:
    shown = run("list", "--json").json
    assert shown["profile"] == "standard"
    assert shown["counts"] == {"found": 5, "loaded": 2, "shadowed": 1, "skipped": 1, "errors": 1}
    pdf = shown["skills"][0]
    fields = (pdf["metadata"], pdf["allowed_tools"], pdf["extra"])
    assert fields == ({"author": "me"}, ["Read", "Bash"], {"version": "2"})
    assert [s["name"] for s in run("list", "--scope", "user", "--json").json["skills"]] == ["xlsx"]


def test_list_of_nothing_says_where_it_looked(run: Run, world: World) -> None:
    result = run("list")
    assert (result.code, result.out) == (0, "")
    assert str(world.project / SKILLS) in result.err


def test_show_prints_fields_and_files_also_of_a_shadowed_skill(mixed: World, run: Run) -> None:
    shown = run("show", "pdf").out
    for expected in ("Fills forms.", "repo (from agents)", "MIT", "Read, Bash", "scripts/fill.py", "metadata.author"):
        assert expected in shown
    assert run("show", "pdf", "--json").json["files"] == ["assets/a.bin", "references/forms.md", "scripts/fill.py"]
    path = str(mixed.home / ".agents/skills/pdf")
    assert run("show", path, "--json").json["shadowed_by"] == str(mixed.project / SKILLS / "pdf/SKILL.md")
    assert "shadowed by" in run("show", f"{path}/SKILL.md").out
    for name, says in (
        ("pfd", "did you mean pdf?"),
        ("broken", "not a valid skill: `description` is missing (line 2)"),
        ("./x", "not in"),
    ):
        result = run("show", name)
        assert (result.code, result.out, result.err.count("\n")) == (1, "", 1), name
        assert says in result.err


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


MODES = {
    "pinned": "csv-profile is pinned for you: it comes first in every prompt\n",
    "name-only": "csv-profile is name-only for you: the model sees its name without its description\n",
    "manual": "csv-profile is manual for you: it is hidden from the model, and people call it by name\n",
    "off": "csv-profile is off for you\n",
    "auto": "csv-profile is on for you\n",
}


@pytest.mark.parametrize("level", ["user", "project"])
def test_a_mode_is_set_printed_and_lasts(run: Run, shelf: World, level: str) -> None:
    for mode, message in MODES.items():
        line = ["disable", "csv-profile"] if mode == "off" else ["enable", "csv-profile", "--mode", mode]
        if level == "project":
            line.append("--project")
        if (mode, level) == ("pinned", "project"):
            refused = run(*line)
            assert (refused.code, "a project cannot pin a skill" in refused.err) == (2, True)
            continue
        assert level == "project" or run(*line).out == message
        said = run(*line, "--json").json
        assert (said["mode"], said["enabled"], said["level"]) == (mode, mode != "off", level)
        assert shelf.discover().at(said["path"]).mode == mode


def test_a_skill_that_a_rule_denies_is_marked_wherever_it_is_listed(mixed: World, run: Run) -> None:
    mixed.configure_user('[permissions]\ndeny = [{ tool = "skill_load", skill_name = "pdf" }]\n')
    for line in ("list", "list --all", "search forms"):
        out = run(*line.split()).out
        assert "pdf (denied)" in out, line
        assert "xlsx (denied)" not in out, line
    shown = run("show", "pdf").out
    assert re.search(r"^called by +nobody; deny rule: tool = 'skill_load', skill_name = 'pdf'$", shown, re.MULTILINE)
    assert re.search(r"^called by +the model and the user$", run("show", "xlsx").out, re.MULTILINE)
