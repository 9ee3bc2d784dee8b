"""What holds for every command: shared options, help, exit codes, width, colour and hostile text."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from calling import Run, narrow_terminal
from metier.surfaces.cli import COMMANDS, cli, main, output, registry
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


@pytest.mark.parametrize(
    "arguments",
    [
        ["lst"],
        ["list", "--nope"],
        ["show"],
        ["validate"],
        ["--profile", "nope", "list"],
        ["--cwd", "/no", "list"],
        ["--skills", "nowhere", "list"],
        ["list", "--profile", "./nope.toml"],
        ["profiles", "a", "b"],
    ],
)
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
    assert all(f"\n  {command} " in shown for command in COMMANDS if command not in ("help", "completion"))
    assert max(map(len, shown.splitlines())) <= 80
    for group, commands in registry.GROUPS.items():
        part = shown[shown.index(f"\n{group}:\n") :].split("\n\n")[0]
        assert re.findall(r"^  (\S+) ", part, re.MULTILINE) == [*commands]
    assert isinstance(cli, click.Group)
    assert re.fullmatch(r"metier, version \d+\.\d+\.\d+.*\n", run("--version").out)


@pytest.mark.system
@pytest.mark.parametrize("arguments", [["list"], ["list", "--all"], ["profiles"], ["doctor"]])
def test_tables_fit_the_terminal_and_are_whole_in_a_pipe(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    world.skill(f"{SKILLS}/{'long-' * 12}name", description="words " * 200)
    world.skill(f"{SKILLS}/wide", description="日本語の説明" * 40)
    world.skill(f"{SKILLS}/{'deep/' * 20}wide", description="other")
    world.skill(f"{SKILLS}/{'deep/' * 20}build")
    piped = run(*arguments)
    assert "…" not in piped.out
    if "list" in arguments:
        assert f"{'words ' * 200}".strip() in piped.out
        assert len(re.findall(r"^(wide|long-)", piped.out, re.MULTILINE)) == (3 if "--all" in arguments else 2)
    narrow_terminal(monkeypatch)
    shown = run(*arguments).out
    start = shown.index(next(line for line in shown.splitlines() if re.match(r"[A-Z ]+( |$)", line)))
    for line in shown[start:].splitlines():
        if output.cells(line) > 80:
            whole = "/" in line or "(to fix it: " in line
            assert whole, "only paths and the way to mend something may be longer, and they are whole"
            assert "…" not in line[line.find("/") :] or "/" not in line


NASTY = "\x1b[31mred\x1b]0;title\x07\x9b31m\u202e"


@pytest.mark.system
@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--all"],
        ["list", "--json"],
        ["show", "nasty"],
        ["show", "nasty", "--json"],
        ["validate", "skills", "-v"],
        ["validate", "--strict", "skills"],
        ["validate", "skills", "--json"],
        ["doctor"],
        ["show", "broken"],
        ["disable", "nasty"],
    ],
)
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


@pytest.mark.system
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


@pytest.mark.system
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["--help"], ["validate", "-v", SKILLS]])
def test_a_reader_that_goes_away_is_no_error(world: World, arguments: list[str]) -> None:
    for number in range(300):
        world.skill(f"{SKILLS}/s{number}", name=f"S{number}", description="words " * 100)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "from metier.surfaces.cli import main; main()", *arguments]
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

    monkeypatch.setattr(cli, "invoke", fail)
    monkeypatch.setattr(sys, "argv", ["metier", "list"])
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
