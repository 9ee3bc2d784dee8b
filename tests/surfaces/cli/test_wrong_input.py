"""Input that is no text, or no name: one line on stderr, the exit code for wrong input, and nothing in the record."""

import os
import subprocess

import pytest

from calling import Run
from forking import METIER
from worlds import World

TORN = "caf\udce9"
"""How an argument with a byte that is not UTF-8 arrives."""


@pytest.fixture
def place(world: World) -> World:
    world.skill(".agents/skills/notes", files={"scripts/say.sh": "#!/bin/sh\necho said\n"})
    return world


WORDS = {
    f"load {TORN}": "name",
    f"load --path {TORN}": "path",
    f"load notes --args {TORN}": "arguments",
    f"load notes --parent {TORN}": "parent",
    f"read notes {TORN}": "path",
    f"read {TORN}": "name",
    f"search {TORN}": "query",
    f"run notes {TORN}": "script",
    f"run notes scripts/say.sh --yes -- {TORN}": "arguments",
    f"session invoke {TORN}": "message",
    f"session output {TORN}": "ref",
    f"prompt --message {TORN}": "message",
    f"prompt --file {TORN}": "files",
    f"session may-use {TORN}": "tool",
}


def test_an_argument_that_is_not_utf8_is_refused_in_one_line(place: World, run: Run) -> None:
    for line, field in WORDS.items():
        result = run(*line.split())
        assert result.code == 2, line
        (said,) = result.err.splitlines()
        assert said.startswith(f"metier: {field} must be valid UTF-8; "), line
    assert "session_called" not in run("events", "--json").out


def test_a_session_id_that_no_store_can_hold_is_refused_in_one_line(place: World, run: Run) -> None:
    for session in (TORN, "a\nb", "", "x" * 257, "\x1b[2J"):
        for command in ("load notes", "events", "rpc", "mcp"):
            result = run(*command.split(), "--session", session)
            (line,) = result.err.splitlines()
            assert (result.code, line.startswith("metier: the session id ")) == (2, True), (command, session)
            assert line.endswith("is not a valid name (use 1 to 256 printable characters)")


@pytest.mark.system
@pytest.mark.parametrize("encoding", ["utf-8:strict", "utf-8:surrogateescape"])
def test_standard_input_that_is_not_utf8_is_refused_in_one_line(place: World, encoding: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    for line in ("run notes scripts/say.sh --yes --stdin", "session invoke -"):
        command = [*METIER, *line.split(), "--home", str(place.home)]
        done = subprocess.run(command, input=b"\xff", capture_output=True, cwd=place.project, env=env)
        (said,) = done.stderr.decode().splitlines()
        assert (done.returncode, "UTF-8" in said, "bug" in said) == (2, True, False), line
