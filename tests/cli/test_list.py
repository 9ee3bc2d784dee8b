"""The commands on the catalog: what they print for people and for programs, and how they end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from calling import Result, Run, caller
from metier.cli import COMMANDS, cli, main, output
from worlds import World

SKILLS = ".agents/skills"
SKILL_KEYS = {
    "id", "name", "description", "path", "dir", "scope", "source", "mtime_ms", "license", "compatibility", "metadata",
    "allowed_tools", "extra", "enabled", "model_invocable", "user_invocable",
}  # fmt: skip
DIAGNOSTIC_KEYS = {"code", "severity", "path", "line", "column", "message", "hint"}


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


@pytest.fixture
def mixed(world: World) -> World:
    """One skill of every fate: offered, shadowed, left out, broken."""
    files = {"scripts/fill.py": "", "references/forms.md": "", "assets/a.bin": b"\x00"}
    fields: dict[str, Any] = {
        "license": "MIT",
        "metadata": {"author": "me"},
        "allowed_tools": "Read Bash",
        "version": "2",
    }
    world.skill(f"{SKILLS}/pdf", description="Fills forms.", files=files, **fields)
    world.skill("~/.agents/skills/pdf", description="The user's.")
    world.skill("~/.agents/skills/xlsx", description="Sheets.")
    world.skill(f"{SKILLS}/build", description="left out")
    world.skill(f"{SKILLS}/broken", text="---\nname: broken\n---\n")
    return world


# --- list


def test_list_prints_a_table_and_says_what_is_not_in_it(mixed: World, run: Run) -> None:
    result = run("list")
    assert result.code == 0
    assert result.out.splitlines() == [
        "NAME  SCOPE  DESCRIPTION",
        "pdf   repo   Fills forms.",
        "xlsx  user   Sheets.",
    ]
    assert result.err == "2 of 5 skills; 1 shadowed, 1 left out, 1 broken; `metier list --all` says which and why\n"


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


# --- show


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


# --- validate


def test_validate_points_at_the_column_as_a_compiler_does(world: World, run: Run) -> None:
    world.skill("bad", text="---\nname: bad\ndescription:   日本 é: x: y  @\n---\n")
    result = run("validate", "--strict", "bad")
    assert result.code == 1
    error, arrow, _, source, caret, *_ = result.out.splitlines()
    assert error.startswith("error[yaml-invalid]: ")
    line, column = map(int, arrow.rsplit(":", 2)[1:])
    assert arrow == f"  --> bad/SKILL.md:{line}:{column}"
    written = (world.project / "bad/SKILL.md").read_text().split("\n")[line - 1]
    assert source == f" {line} | {written}"
    before = written[: column - 1]
    assert caret.index("^") == len(f" {line} | ") + output.cells(before)


@pytest.mark.parametrize("column", [4, 60, 90, 400])
def test_the_caret_stands_under_the_same_character_in_a_long_line(world: World, run: Run, column: int) -> None:
    world.skill("bad", text=f"---\nname: bad\na: {'x' * (column - 6)}\x00{'y' * 300}\n---\n")
    result = run("validate", "bad")
    _, arrow, _, source, caret, *_ = result.out.splitlines()
    assert arrow.endswith(f":3:{max(4, column - 2)}")
    assert (source + " ")[caret.index("^")] == " "
    assert source[caret.index("^") - 1] == "x" if column > 6 else " "
    assert len(source) <= 80


def test_validate_counts_what_it_checked(world: World, run: Run) -> None:
    for name in ("one", "two"):
        world.skill(f"skills/{name}")
    assert run("validate", "skills") == Result(0, "2 checked, 0 invalid\n", "")
    world.skill("skills/three", text="")
    result = run("validate", "skills")
    assert (result.code, result.err) == (1, "3 checked, 1 invalid\n")


def test_validate_as_json_has_the_documented_shape(world: World, run: Run) -> None:
    world.skill("skills/good")
    world.skill("skills/bad", name="Bad")
    lenient, strict = run("validate", "skills", "--json"), run("validate", "--strict", "skills", "--json")
    assert (lenient.code, strict.code) == (0, 1)
    assert lenient.json["valid"] is True
    assert [(s["path"].split("/")[-2], s["valid"]) for s in strict.json["skills"]] == [("bad", False), ("good", True)]
    assert all(d.keys() == DIAGNOSTIC_KEYS for s in strict.json["skills"] for d in s["diagnostics"])


def test_validate_in_ascii_refuses_other_letters(world: World, run: Run) -> None:
    world.skill("größe")
    assert run("validate", "--strict", "größe").code == 0
    assert run("validate", "--strict", "--ascii", "größe").code == 1
    assert run("validate", "--ascii", "größe").code == 1


def test_validate_takes_a_file_a_folder_and_several_of_them(world: World, run: Run) -> None:
    world.skill("a")
    world.skill("b")
    assert run("validate", "a/SKILL.md", "b", "a").out == "2 checked, 0 invalid\n"


@pytest.mark.parametrize(("path", "code"), [("nowhere", 2), ("file.txt", 2), ("empty", 1)])
def test_validate_of_what_is_no_skill_says_so(world: World, run: Run, path: str, code: int) -> None:
    (world.project / "file.txt").write_text("x")
    (world.project / "empty").mkdir()
    result = run("validate", path)
    assert (result.code, result.out) == (code, "")
    assert path in result.err


# --- enable, disable, profiles, doctor


def test_enable_and_disable_last(mixed: World, run: Run) -> None:
    assert run("disable", "xlsx").out == "xlsx is off for you\n"
    assert "xlsx (off)" in run("list").out
    assert run("enable", "xlsx", "--json").json == {
        "name": "xlsx", "path": str(mixed.home / ".agents/skills/xlsx/SKILL.md"), "enabled": True, "mode": "auto",
        "level": "user",
    }  # fmt: skip
    assert "takes its place" in run("disable", "pdf", "--project").out
    assert run("show", "pdf", "--json").json["description"] == "The user's."
    assert (mixed.project / ".metier/skills.json").is_file()
    assert run("disable", "nothing").code == 1


def test_profiles_lists_the_hosts_and_shows_the_rules_of_one(run: Run) -> None:
    assert [p["name"] for p in run("profiles", "--json").json][:3] == ["standard", "codelia", "omp"]
    assert run("profiles", "omp", "--json").json["name"] == "omp"
    assert "[discovery]" in run("profiles", "omp").out
    assert run("profiles", "standart").code == 2


def test_doctor_says_what_works_and_where_settings_come_from(mixed: World, run: Run) -> None:
    (mixed.project / ".metier").mkdir()
    (mixed.project / ".metier/config.toml").write_text("[catalog]\nmax_skills = 9\n")
    shown = run("doctor").out
    for expected in ("python", "bubblewrap", "cache", "catalog.max_skills", "5 found: 2 offered, 1 shadowed"):
        assert expected in shown
    assert run("doctor", "--json").json["settings"] == {
        "catalog.max_skills": str(mixed.project / ".metier/config.toml")
    }


# --- every command


def test_shared_options_may_stand_before_and_after(mixed: World, run: Run) -> None:
    before, after = run("--json", "--profile", "omp", "list"), run("list", "--profile", "omp", "--json")
    assert before == after
    assert before.json["profile"] == "omp"
    assert run("--profile", "omp", "list", "--profile", "standard", "--json").json["profile"] == "standard"
    for name in ("one", "two"):
        mixed.skill(f"extra/{name}/{name}")
    names = [s["name"] for s in run("--skills", "extra/one", "list", "--skills", "extra/two", "--json").json["skills"]]
    assert {"one", "two"} <= set(names)
    elsewhere = run("--cwd", str(mixed.home), "--home", str(mixed.project), "list", "--json").json["skills"]
    assert [s["scope"] for s in elsewhere if s["name"] == "xlsx"] == ["repo"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["lst"], ["list", "--nope"], ["show"], ["validate"], ["--profile", "nope", "list"], ["--cwd", "/no", "list"],
        ["--skills", "nowhere", "list"], ["list", "--profile", "./nope.toml"], ["profiles", "a", "b"],
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_code_2_and_a_line_on_stderr(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_in_80_columns(run: Run, command: str) -> None:
    for flag in ("--help", "-h"):
        result = run(command, flag)
        assert result.code == 0
        assert re.search(rf"Examples?:\n\n(    .*\n)*    .*metier {command}\b", result.out)
        assert max(map(len, result.out.splitlines())) <= 80


def test_the_help_names_every_command_and_the_version_is_printed(run: Run) -> None:
    shown = run("--help").out
    assert all(f"\n  {command} " in shown for command in COMMANDS)
    assert isinstance(cli, click.Group)
    assert re.fullmatch(r"metier, version \d+\.\d+\.\d+.*\n", run("--version").out)


@pytest.mark.parametrize("arguments", [["list"], ["list", "--all"], ["profiles"], ["doctor"]])
def test_tables_fit_80_columns_whatever_is_in_them(world: World, run: Run, arguments: list[str]) -> None:
    world.skill(f"{SKILLS}/{'long-' * 12}name", description="words " * 200)
    world.skill(f"{SKILLS}/wide", description="日本語の説明" * 40)
    world.skill(f"{SKILLS}/{'deep/' * 20}wide", description="other")
    world.skill(f"{SKILLS}/{'deep/' * 20}build")
    lines = run(*arguments).out.splitlines()
    start = next(n for n, line in enumerate(lines) if re.match(r"[A-Z ]+( |$)", line))
    rows = [line for line in lines[start:] if not line.startswith(("error", "warning", "  -->"))]
    assert max(output.cells(line) for line in rows) <= 80


NASTY = "\x1b[31mred\x1b]0;title\x07\x9b31m\u202e"


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--all"], ["list", "--json"], ["show", "nasty"], ["show", "nasty", "--json"],
        ["validate", "skills", "-v"], ["validate", "--strict", "skills"], ["validate", "skills", "--json"], ["doctor"],
        ["show", "broken"], ["disable", "nasty"],
    ],
)  # fmt: skip
def test_no_control_character_of_a_skill_reaches_the_terminal(world: World, run: Run, arguments: list[str]) -> None:
    quoted = json.dumps(NASTY)
    folder = f"skills/{NASTY}"
    head = f"---\nname: nasty\ndescription: {json.dumps('x' + NASTY[:-1])}\n"
    world.skill(
        f"{folder}/nasty", text=f"{head}{quoted}: {quoted}\nlicense: {quoted}\nmetadata:\n  {quoted}: {quoted}\n---\n"
    )
    world.skill("skills/z/nasty", files={NASTY: ""}, description="other")
    world.skill(f"{folder}/broken", text=f"---\nname: {NASTY}\n- {NASTY}: @\n---\n")
    world.skill(f"{folder}/hidden", text=f"---\nname: {quoted}\ndescription: {quoted}\n---\n")
    world.skill(f"skills/{NASTY}x", text="")
    result = run("--skills", "skills", *arguments)
    shown = (result.out + result.err).replace("\n", "")
    assert not re.search("[\x00-\x1f\x7f-\x9f]", shown), repr(re.findall(".{20}[\x00-\x1f\x7f-\x9f].{9}", shown)[:3])


def test_there_is_no_colour_where_there_is_no_terminal(mixed: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm-256color")
    for arguments in (["list", "--all"], ["validate", SKILLS], ["doctor"], ["show", "pdf"], ["lst"]):
        result = run(*arguments)
        assert "\x1b" not in result.out + result.err


def test_a_path_that_is_no_utf8_survives_json(world: World, run: Run) -> None:
    folder = os.fsdecode(b"odd-\xff")
    path = world.skill(f"{SKILLS}/{folder}/pdf")
    assert os.fsencode(run("list", "--json").json["skills"][0]["path"]) == os.fsencode(path)


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["--help"], ["validate", "-v", SKILLS]])
def test_a_reader_that_goes_away_is_no_error(world: World, arguments: list[str]) -> None:
    for number in range(300):
        world.skill(f"{SKILLS}/s{number}", name=f"S{number}", description="words " * 100)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "from metier.cli import main; main()", *arguments]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, cwd=world.project, env={"HOME": str(world.home)}, check=False
    )
    os.close(writer)
    assert b"Traceback" not in done.stderr
    assert b"Broken" not in done.stderr
    assert b"bug" not in done.stderr


def test_a_bug_is_one_line_unless_more_is_asked_for(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(cli, "main", fail)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    assert capsys.readouterr().err == "metier: this is a bug: ZeroDivisionError: oh (METIER_DEBUG=1 shows more)\n"
    monkeypatch.setenv("METIER_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main()


def test_a_working_directory_that_was_removed_is_an_error_of_one_line(run: Run, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    result = run("list")
    assert (result.code, result.err) == (2, "metier: the working directory does not exist any more\n")
