"""`metier list` and `metier show`: what they print for people and for programs."""

import pytest

from calling import Run
from worlds import World

pytest_plugins = ["surfaces.cli.cli_fixtures"]

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
