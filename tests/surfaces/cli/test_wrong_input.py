"""Input that is no text, or no name: one line on stderr, the exit code for wrong input, and nothing in the record."""

import os
import subprocess
import sys

import pytest

from calling import Run
from worlds import World

TORN = "caf\udce9"
"""How an argument with a byte that is not UTF-8 arrives."""


@pytest.fixture
def place(world: World) -> World:
    world.skill(".agents/skills/notes", files={"scripts/say.sh": "#!/bin/sh\necho said\n"})
    return world


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["load", TORN], "name"),
        (["load", "--path", TORN], "path"),
        (["load", "notes", "--args", TORN], "arguments"),
        (["load", "notes", "--parent", TORN], "parent"),
        (["read", "notes", TORN], "path"),
        (["read", TORN], "name"),
        (["search", TORN], "query"),
        (["run", "notes", TORN], "script"),
        (["run", "notes", "scripts/say.sh", "--yes", "--", TORN], "arguments"),
        (["session", "invoke", TORN], "message"),
        (["session", "output", TORN], "ref"),
        (["prompt", "--message", TORN], "message"),
        (["prompt", "--file", TORN], "files"),
        (["session", "may-use", TORN], "tool"),
    ],
)
def test_an_argument_that_is_not_utf8_is_refused_in_one_line(
    place: World, run: Run, arguments: list[str], field: str
) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert result.err.splitlines() == [
        f"metier: {field} must be valid UTF-8; send whole characters, and not half a surrogate pair"
    ]
    assert "session_called" not in run("events", "--json").out


@pytest.mark.parametrize("session", [TORN, "a\nb", "", "x" * 257, "\x1b[2J"])
@pytest.mark.parametrize("command", [["load", "notes"], ["events"], ["rpc"], ["mcp"]])
def test_a_session_id_that_no_store_can_hold_is_refused_in_one_line(
    place: World, run: Run, session: str, command: list[str]
) -> None:
    result = run(*command, "--session", session)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith("metier: the session id ")
    assert line.endswith("is not a valid name (use 1 to 256 printable characters)")


@pytest.mark.parametrize("given", ["[" * 100_000, '{"a": ' + "9" * 5_000 + "}", TORN])
def test_arguments_of_a_call_that_no_parser_takes_are_refused(place: World, run: Run, given: str) -> None:
    result = run("session", "call", "skill_load", given)
    assert result.code == 2
    assert result.err.startswith("metier: arguments must be JSON: ")


@pytest.mark.parametrize("given", ['{"name": "\\ud800"}', '{"name": "\\u0000"}', "[1]", "null", "5"])
def test_a_models_mistake_on_the_command_line_is_an_answer(place: World, run: Run, given: str) -> None:
    result = run("session", "call", "skill_load", given, "--json")
    assert (result.code, result.json["ok"], result.json["error"]["code"]) == (1, False, "INVALID_PARAM")


@pytest.mark.system
@pytest.mark.parametrize("encoding", ["utf-8:strict", "utf-8:surrogateescape"])
@pytest.mark.parametrize(
    "arguments", [["run", "notes", "scripts/say.sh", "--yes", "--stdin"], ["session", "invoke", "-"]]
)
def test_standard_input_that_is_not_utf8_is_refused_in_one_line(
    place: World, arguments: list[str], encoding: str
) -> None:
    command = [
        sys.executable,
        "-c",
        "from metier.surfaces.cli import main; main()",
        *arguments,
        "--home",
        str(place.home),
    ]
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, input=b"\xff", capture_output=True, cwd=place.project, env=env)
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert "UTF-8" in line
    assert "bug" not in line
