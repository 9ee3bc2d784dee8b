"""A command on a real terminal asks there before it runs a script, and a pipe is never asked."""

from collections.abc import Generator
from pathlib import Path

import pytest

from parts import needs
from terminals import Terminal
from watching import wait_for
from worlds import World

RUN = "metier run one scripts/x.sh -- 'a b' '$(id)'"
WAITS = "[n]:"
UNSANDBOXED = '[permissions]\nallow = [{ tool = "run_unsandboxed" }]\n'  # it also runs where no sandbox works

pytestmark = [pytest.mark.system, needs("tmux")]


@pytest.fixture
def terminal(world: World, tmp_path: Path) -> Generator[Terminal]:
    world.skill(".agents/skills/one", files={"scripts/x.sh": '#!/bin/sh\necho "RAN<$1>"\n'})
    world.configure_user(UNSANDBOXED)
    terminal = Terminal(world, tmp_path / "tmux")
    yield terminal
    terminal.close()


def rules(terminal: Terminal) -> str:
    file = terminal.world.home / ".config/metier/permissions.toml"
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize(
    ("typed", "code", "remembered"),
    [("y", 0, 0), ("once", 0, 0), ("Y", 0, 0), ("no", 3, 0), ("", 3, 0), ("always", 0, 1)],
)
def test_a_key_or_a_word_answers(terminal: Terminal, typed: str, code: int, remembered: int) -> None:
    terminal.run(f"{RUN}; echo exit-$?", rows=50)
    shown = terminal.until(WAITS)
    assert "Run scripts/x.sh of the skill one?" in shown
    assert '| echo "RAN<$1>"' in shown
    assert "RAN<a b>" not in shown
    terminal.keys("-l", typed)
    terminal.keys("Enter")
    shown = terminal.until(f"exit-{code}")
    assert ("RAN<a b>" in shown) == (code == 0)
    assert rules(terminal).count("[[allow]]") == remembered


def test_what_is_no_answer_is_asked_again_and_always_is_not(terminal: Terminal) -> None:
    terminal.run(f"{RUN}; clear; echo second; {RUN}; {RUN}; echo exit-$?", rows=50)
    terminal.until(WAITS)
    terminal.keys("-l", "sure")
    terminal.keys("Enter")
    terminal.until(f"{WAITS} sure\nAllow it?")
    terminal.keys("C-d")
    terminal.until("second")
    terminal.until(WAITS)
    terminal.keys("a", "Enter")
    assert terminal.until("exit-0").count("RAN<a b>") == 2


def test_what_was_cut_can_be_viewed(terminal: Terminal) -> None:
    lines = "".join(f"# number {number}\n" for number in range(1_000))
    terminal.world.skill(".agents/skills/two", files={"scripts/y.sh": f"#!/bin/sh\n{lines}echo LAST\n"})
    terminal.run("metier run two scripts/y.sh", rows=30)
    shown = terminal.until("v = view all of the text [n]:")
    assert "Not shown: 802 more lines" in shown
    assert "LAST" not in shown
    terminal.keys("v", "Enter")
    terminal.until("| echo LAST")
    terminal.keys("n", "Enter")
    terminal.until("the answer was no")


def test_the_question_is_on_the_terminal_also_where_the_streams_lead_elsewhere(terminal: Terminal) -> None:
    terminal.run(f"{RUN} >out 2>errors; echo exit-$?", rows=50)
    terminal.until(WAITS)
    terminal.keys("y", "Enter")
    terminal.until("exit-0")
    assert (terminal.world.project / "out").read_text() == "RAN<a b>\n"
    assert "Allow" not in (terminal.world.project / "errors").read_text()


def test_what_was_typed_before_the_question_does_not_answer_it(terminal: Terminal) -> None:
    code = """
import metier.surfaces.cli.asking as asking, pathlib, time
real = asking.ask
def late(request, *given):
    pathlib.Path("asks").touch()
    while not pathlib.Path("typed").exists():
        time.sleep(0.01)
    return real(request, *given)
asking.ask = late
"""
    terminal.run(f"{RUN}; echo exit-$?", rows=50, before=code)
    wait_for((terminal.world.project / "asks").exists, "the question")
    terminal.keys("y", "Enter")
    terminal.until("y\n")
    (terminal.world.project / "typed").touch()
    terminal.until(WAITS)
    terminal.keys("n", "Enter")
    terminal.until("exit-3")


def test_a_pipe_and_yes_are_not_asked(terminal: Terminal) -> None:
    terminal.run(f"echo n | {RUN}; echo exit-$?; metier run --yes one scripts/x.sh; echo end-$?", rows=50)
    shown = terminal.until("end-0")
    assert "exit-2" in shown
    assert "Allow it?" not in shown
    assert "there is no terminal to ask for confirmation (pass --yes, or allow it" in shown
