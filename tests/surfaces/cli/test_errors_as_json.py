"""Errors: the right command is suggested, and with --json every error is one object on stderr and nothing else."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from calling import Run
from forking import METIER
from metier.surfaces.cli import cli, failure, main, registry
from piping import reading
from worlds import World


def error(text: str) -> dict[str, Any]:
    """The error on stderr, whose lines are JSON objects, and which comes last."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines[:-1]:
        assert_warning(line)
    (told,) = lines[-1].items()
    assert told[0] == "error"
    assert {"code": str, "message": str, "exit_code": int}.items() <= {k: type(v) for k, v in told[1].items()}.items()
    assert told[1]["code"] in failure.CODES
    return told[1]


def assert_warning(line: Any) -> None:
    assert [*line] == ["warning"]
    assert [*line["warning"]] == ["message"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serch"], "Error: there is no command 'serch'. Did you mean search?"),
        (["Lst"], "Did you mean list?"),
        (["rep"], "Did you mean replay?"),
        (["ls"], "there is no command 'ls'; use `metier list`."),
        (["rm", "pdf"], "use `metier disable`, or delete the folder of the skill."),
        (["add", "./pdf"], "use `metier install`."),
        (["cat", "pdf"], "use `metier read NAME FILE`."),
        (["session", "store", "stat"], "Did you mean stats?"),
        (["policy", "xyz"], "there is no command 'xyz'. Commands: explain, list, revoke, show."),
        (["help", "serch"], "Did you mean search?"),
        (["list", "--al"], "'--all'"),
    ],
)
def test_a_wrong_command_is_answered_with_the_right_one(run: Run, arguments: list[str], says: str) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert says in result.err.splitlines()[-1]


def test_what_is_suggested_exists() -> None:
    assert not set(registry.ELSEWHERE) & set(registry.COMMANDS)
    for name, said in registry.ELSEWHERE.items():
        words = said.split("`")[1].removeprefix("metier ").split()
        if words[0].startswith("--"):
            continue
        command: click.Command = cli
        for word in words:
            known = [option for parameter in command.params for option in parameter.opts]
            if isinstance(command, click.Group):
                inner = command.get_command(click.Context(command), word)
                assert inner is not None, name
                command = inner
            else:
                assert word.isupper() or word in known or word == "pinned", said


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code", "data"),
    [
        (["serch"], "USAGE", 2, {}),
        (["list", "--nope"], "USAGE", 2, {}),
        (["show"], "USAGE", 2, {}),
        (["session", "store"], "USAGE", 2, {}),
        (["enable", "pdf", "--mode", "loud"], "USAGE", 2, {}),
        (["list", "--profile", "nope"], "INVALID_PARAM", 2, {}),
        (["list", "--cwd", "/no"], "INVALID_PARAM", 2, {}),
        (["load", "--session", "a\nb"], "INVALID_PARAM", 2, {"key": "--session"}),
        (["show", "pfd"], "NOT_FOUND", 1, {"wanted": "pfd", "close": ["pdf"]}),
        (["read", "pdf", "../../x"], "ACCESS_DENIED", 1, {"path": "../../x"}),
        (["read", "pdf", "nope.md"], "NOT_FOUND", 1, {"path": "nope.md", "reason": "not-found"}),
        (["show", ".agents/skills/broken/SKILL.md"], "INVALID_SKILL", 1, {}),
        (["validate", ".git"], "NOT_FOUND", 1, {}),
        (["new", "pdf"], "CONFLICT", 1, {}),
        (["run", "pdf", "scripts/fill.py"], "ACCESS_DENIED", 3, {"tool": "skill_run", "skill": "pdf"}),
        (["replay", "nope"], "NOT_FOUND", 1, {}),
        (["session", "call", "skill_load", "{"], "INVALID_PARAM", 2, {"key": "arguments"}),
        (["install", ".agents/skills/pdf", "--replace", "--lenient"], "INVALID_PARAM", 2, {"key": "--yes"}),
        (["install", "/nowhere", "--yes"], "INSTALL_REFUSED", 1, {}),
        (
            ["session", "store", "stats", "--store", "sqlite:/dev/null/x"],
            "STORE_UNAVAILABLE",
            4,
            {"reason": "unopenable"},
        ),
        (["session", "store", "import", "nope.jsonl"], "USAGE", 2, {}),
        (["pick", "--plain"], "CANCELLED", 1, {}),
    ],
)
def test_with_json_an_error_is_one_object_on_stderr(
    mixed: World,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: str,
    exit_code: int,
    data: dict[str, Any],
) -> None:
    config = mixed.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[permissions]\ndeny = [{ tool = "skill_run" }]\n')
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    for line in (["--json", *arguments], [*arguments, "--json"]):
        result = run(*line)
        assert result.out == ""
        said = result.err.split("> ")[-1]  # the dialogue of `pick` goes before it
        told = error(said)
        assert (told["code"], told["exit_code"], result.code) == (code, exit_code, exit_code), told
        assert told["message"]
        assert data.items() <= told.items()


def test_json_that_is_not_an_option_of_metier_does_not_count(mixed: World, run: Run) -> None:
    for line in (["run", "nope", "x", "--", "--json"], ["load", "nope", "--args", "--json"]):
        assert run(*line).err.startswith("metier: no skill 'nope'"), line


def test_warnings_are_objects_too(mixed: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METIER_STORE", "sqlite:/dev/null/x")
    monkeypatch.setenv("METIER_STORE_REQUIRED", "false")
    result = run("load", "pdf", "--json")
    assert result.json["skill"]["name"] == "pdf"
    (line,) = result.err.splitlines()
    assert_warning(json.loads(line))
    assert "events are not kept" in line


def test_a_missing_extra_and_a_bug_are_objects(
    mixed: World, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("textual", "textual.app"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "metier.surfaces.tui.screen", raising=False)
    told = error(run("pick", "--json").err)
    assert (told["code"], told["exit_code"], told["install"]) == ("MISSING_EXTRA", 4, "pip install 'metier[tui]'")

    def fail(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(cli, "invoke", fail)
    monkeypatch.setattr(sys, "argv", ["metier", "list", "--json"])
    with pytest.raises(SystemExit) as stop:
        main()
    told = error(capsys.readouterr().err)
    assert (stop.value.code, told["code"]) == (1, "INTERNAL_ERROR")


def test_every_code_and_exit_code_is_explained(run: Run) -> None:
    shown = run("help", "exit-codes").out
    assert all(f"{code:>5}  {meaning}" in shown for code, meaning in failure.EXIT_CODES.items())
    shown = run("help", "json").out
    assert all(code in shown and meaning in shown for code, meaning in failure.CODES.items())
    assert max(map(len, shown.splitlines())) <= 80
    assert run("help", "session", "store", "prune").out == run("session", "store", "prune", "--help").out


# --- processes: Ctrl+C, readers that go away


@pytest.mark.system
@pytest.mark.parametrize("options", [["--json"], []])
def test_an_interrupt_is_no_traceback(mixed: World, options: list[str], tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            [*METIER, "events", "--follow", *options],
            cwd=mixed.project,
            env={"HOME": str(mixed.home), "PYTHONPATH": ":".join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        lines = reading(process.stdout)
        subprocess.run(
            [*METIER, "load", "pdf"],
            cwd=mixed.project,
            env={"HOME": str(mixed.home), "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
        )
        lines.get()  # it follows
        process.send_signal(signal.SIGINT)
        assert process.wait() == failure.INTERRUPTED
    said = (tmp_path / "errors").read_text()
    assert error(said)["code"] == "INTERRUPTED" if options else said == ""


@pytest.mark.system
@pytest.mark.parametrize(
    "arguments", ["list", "list --json", "search word", "prompt", "--help", "events --follow", "session store export"]
)
def test_a_gone_reader_ends_a_command_quietly(world: World, arguments: str) -> None:
    for number in range(200):
        world.skill(f".agents/skills/s{number}", description=f"{number} " + "word " * 200)
    env = {"HOME": str(world.home), "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    if arguments.startswith(("events", "session")):
        subprocess.run([*METIER, "load", "s1", "-q"], cwd=world.project, env=env, check=True, capture_output=True)
    # Nobody reads the pipe when the command starts: `head` may take a short output whole before it ends.
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        ended = subprocess.run(
            [*METIER, *arguments.split()],
            cwd=world.project,
            env=env,
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ended.stderr, ended.returncode) == (b"", failure.READER_GONE)


@pytest.mark.system
def test_a_listing_longer_than_the_pipe_ends_with_head(world: World, tmp_path: Path) -> None:
    for number in range(200):
        world.skill(f".agents/skills/s{number}", description=f"{number} " + "word " * 200)
    metier = " ".join(f"'{part}'" for part in METIER)
    line = f"{{ {metier} list --json 2>{tmp_path}/errors; echo $? >{tmp_path}/code; }} | head -c 1 >{tmp_path}/seen"
    env = {"HOME": str(world.home), "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    subprocess.run(["sh", "-c", line], cwd=world.project, env=env, check=True)
    assert (tmp_path / "errors").read_text() == ""
    assert int((tmp_path / "code").read_text()) == failure.READER_GONE
