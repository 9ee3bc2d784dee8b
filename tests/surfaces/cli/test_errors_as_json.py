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


WRONG = {
    "serch": "Error: there is no command 'serch'. Did you mean search?",
    "Lst": "Did you mean list?",
    "rep": "Did you mean replay?",
    "ls": "there is no command 'ls'; use `metier list`.",
    "rm pdf": "use `metier disable`, or delete the folder of the skill.",
    "session store stat": "Did you mean stats?",
    "policy xyz": "there is no command 'xyz'. Commands: explain, list, revoke, show.",
    "help serch": "Did you mean search?",
    "list --al": "'--all'",
}


def test_a_wrong_command_is_answered_with_the_right_one(run: Run) -> None:
    for line, says in WRONG.items():
        result = run(*line.split())
        assert (result.code, result.out) == (2, ""), line
        assert says in result.err.splitlines()[-1], line


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


ERRORS: list[tuple[str, str, int, dict[str, Any]]] = [
    ("serch", "USAGE", 2, {}),
    ("list --nope", "USAGE", 2, {}),
    ("show", "USAGE", 2, {}),
    ("session store", "USAGE", 2, {}),
    ("profiles a b", "USAGE", 2, {}),
    ("enable pdf --mode loud", "USAGE", 2, {}),
    ("list --profile nope", "INVALID_PARAM", 2, {}),
    ("list --profile ./nope.toml", "INVALID_PARAM", 2, {}),
    ("list --skills nowhere", "INVALID_PARAM", 2, {}),
    ("list --cwd /no", "INVALID_PARAM", 2, {}),
    ("load --session a\x7fb", "INVALID_PARAM", 2, {"key": "--session"}),
    ("show pfd", "NOT_FOUND", 1, {"wanted": "pfd", "close": ["pdf"]}),
    ("read pdf ../../x", "ACCESS_DENIED", 1, {"path": "../../x"}),
    ("read pdf nope.md", "NOT_FOUND", 1, {"path": "nope.md", "reason": "not-found"}),
    ("show .agents/skills/broken/SKILL.md", "INVALID_SKILL", 1, {}),
    ("validate .git", "NOT_FOUND", 1, {}),
    ("new pdf", "CONFLICT", 1, {}),
    ("run pdf scripts/fill.py", "ACCESS_DENIED", 3, {"tool": "skill_run", "skill": "pdf"}),
    ("replay nope", "NOT_FOUND", 1, {}),
    ("session call skill_load {", "INVALID_PARAM", 2, {"key": "arguments"}),
    ("install .agents/skills/pdf --replace --lenient", "INVALID_PARAM", 2, {"key": "--yes"}),
    ("install /nowhere --yes", "INSTALL_REFUSED", 1, {}),
    ("session store stats --store sqlite:/dev/null/x", "STORE_UNAVAILABLE", 4, {"reason": "unopenable"}),
    ("session store import nope.jsonl", "USAGE", 2, {}),
    ("pick --plain", "CANCELLED", 1, {}),
]


def test_with_json_an_error_is_one_object_on_stderr(mixed: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed.configure_user('[permissions]\ndeny = [{ tool = "skill_run" }]\n')
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    for line, code, exit_code, data in ERRORS:
        for words in (["--json", *line.split()], [*line.split(), "--json"]):
            result = run(*words)
            told = error(result.err.split("> ")[-1])  # the dialogue of `pick` goes before it
            got = (result.out, told["code"], told["exit_code"], result.code, bool(told["message"]))
            assert got == ("", code, exit_code, exit_code, True), (words, told)
            assert data.items() <= told.items(), words


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


def test_a_missing_extra_is_an_object(mixed: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("textual", "textual.app"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "metier.surfaces.tui.screen", raising=False)
    told = error(run("pick", "--json").err)
    assert (told["code"], told["exit_code"], told["install"]) == ("MISSING_EXTRA", 4, "pip install 'metier[tui]'")


def test_a_bug_is_one_line_or_object_unless_more_is_asked_for(
    mixed: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(cli, "invoke", fail)
    said: list[str] = []
    for line in (["list"], ["list", "--json"]):
        monkeypatch.setattr(sys, "argv", ["metier", *line])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 1
        said.append(capsys.readouterr().err)
    assert said[0] == "metier: this is a bug: ZeroDivisionError: oh (METIER_DEBUG=1 shows more)\n"
    assert error(said[1])["code"] == "INTERNAL_ERROR"
    monkeypatch.setenv("METIER_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main()


def test_every_code_and_exit_code_is_explained(run: Run) -> None:
    shown = run("help", "exit-codes").out
    assert all(f"{code:>5}  {meaning}" in shown for code, meaning in failure.EXIT_CODES.items())
    shown = run("help", "json").out
    assert all(code in shown and meaning in shown for code, meaning in failure.CODES.items())
    assert max(map(len, shown.splitlines())) <= 80
    assert run("help", "session", "store", "prune").out == run("session", "store", "prune", "--help").out


@pytest.mark.system
@pytest.mark.parametrize("options", [["--json"], []])
def test_an_interrupt_is_no_traceback(mixed: World, options: list[str], tmp_path: Path) -> None:
    where: dict[str, Any] = {"cwd": mixed.project, "env": {"HOME": str(mixed.home), "PYTHONPATH": ":".join(sys.path)}}
    command = [*METIER, "events", "--follow", *options]
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, **where)
        lines = reading(process.stdout)
        subprocess.run([*METIER, "load", "pdf"], check=True, capture_output=True, **where)
        lines.get()  # it follows
        process.send_signal(signal.SIGINT)
        assert process.wait() == failure.INTERRUPTED
    said = (tmp_path / "errors").read_text()
    assert error(said)["code"] == "INTERRUPTED" if options else said == ""


@pytest.mark.system
def test_a_gone_reader_ends_a_command_quietly(world: World) -> None:
    for number in range(200):
        world.skill(f".agents/skills/s{number}", description=f"{number} " + "word " * 200)
    env = {"HOME": str(world.home), "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    subprocess.run([*METIER, "load", "s1", "-q"], cwd=world.project, env=env, check=True, capture_output=True)
    for line in ("list", "list --json", "--help", "events --follow", "session store export"):
        # Nobody reads the pipe when the command starts: `head` may take a short output whole before it ends.
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            command = [*METIER, *line.split()]
            done = subprocess.run(command, cwd=world.project, env=env, stdout=pipe, stderr=subprocess.PIPE)
        assert (done.stderr, done.returncode) == (b"", failure.READER_GONE), line
