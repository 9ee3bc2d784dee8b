"""What holds for every command: shared options, help, exit codes, width, colour and hostile text."""

import json
import os
import re
from pathlib import Path

import pytest

from calling import Run, narrow_terminal
from metier.surfaces.cli import COMMANDS, output, registry
from worlds import World

SKILLS = ".agents/skills"


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


def test_the_help_names_every_command_and_the_version_is_printed(run: Run) -> None:
    shown = run("--help").out
    assert run("-h").out == shown
    assert all(f"\n  {command} " in shown for command in COMMANDS if command not in ("help", "completion"))
    for group, commands in registry.GROUPS.items():
        part = shown[shown.index(f"\n{group}:\n") :].split("\n\n")[0]
        assert re.findall(r"^  (\S+) +\S", part, re.MULTILINE) == [*commands]
    assert re.fullmatch(r"metier, version \d+\.\d+\.\d+.*\n", run("--version").out)


NASTY = "\x1b[31mred\x1b]0;title\x07\x9b31m\u202e"


@pytest.mark.system
def test_no_control_character_of_a_skill_reaches_the_terminal(world: World, run: Run) -> None:
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
    for line in (
        *("list --all", "list --json", "show nasty", "show nasty --json", "show broken", "doctor"),
        *("validate skills -v", "validate --strict skills", "validate skills --json", "doctor nasty"),
        *("prompt --session talk", "usage", "disable nasty"),
    ):
        result = run("--skills", "skills", *line.split())
        shown = (result.out + result.err).replace("\n", "")
        found = re.findall(".{20}[\x00-\x1f\x7f-\x9f].{9}", shown)
        assert not re.search("[\x00-\x1f\x7f-\x9f]", shown), (line, found[:3])


@pytest.mark.system
def test_tables_fit_the_terminal_and_are_whole_and_without_colour_in_a_pipe(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.skill(f"{SKILLS}/{'long-' * 12}name", description="words " * 200)
    world.skill(f"{SKILLS}/wide", description="日本語の説明" * 40)
    world.skill(f"{SKILLS}/{'deep/' * 20}wide", description="other")
    world.skill(f"{SKILLS}/{'deep/' * 20}build")
    tables = ("list", "list --all", "profiles", "doctor")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm-256color")
    for line in (*tables, f"validate {SKILLS}", "show wide", "lst"):
        piped = run(*line.split())
        assert "\x1b" not in piped.out + piped.err, line
        if "list" in line:
            assert f"{'words ' * 200}".strip() in piped.out
            assert len(re.findall(r"^(wide|long-)", piped.out, re.MULTILINE)) == (3 if "--all" in line else 2)
        assert "…" not in piped.out or line not in tables
    monkeypatch.setenv("NO_COLOR", "1")
    narrow_terminal(monkeypatch)
    for line in tables:
        shown = run(*line.split()).out
        start = shown.index(next(row for row in shown.splitlines() if re.match(r"[A-Z ]+( |$)", row)))
        for row in shown[start:].splitlines():
            if output.cells(row) > 80:  # only paths and the way to mend something may be longer, and they are whole
                assert "/" in row or "(to fix it: " in row
                assert "…" not in row[row.find("/") :] or "/" not in row


def test_a_path_that_is_no_utf8_survives_json_and_a_folder_that_is_gone_is_one_line(
    world: World, run: Run, tmp_path: Path
) -> None:
    path = world.skill(f"{SKILLS}/{os.fsdecode(b'odd-' + bytes([255]))}/pdf")
    assert os.fsencode(run("list", "--json").json["skills"][0]["path"]) == os.fsencode(path)
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    result = run("list")
    assert (result.code, result.err) == (2, "metier: the working directory does not exist any more\n")
