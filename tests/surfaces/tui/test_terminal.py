"""`metier pick` in a real terminal: its output in a shell, and the state of the terminal afterwards."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from parts import needs
from terminals import Terminal
from watching import wait_for
from worlds import World

SKILLS = ".agents/skills"

pytestmark = [pytest.mark.system, needs("tmux")]


@pytest.fixture
def terminal(world: World, tmp_path: Path) -> Generator[Terminal]:
    world.skill(f"{SKILLS}/pdf-forms", description="Fills forms.", body="Fill them.\n")
    world.skill(f"{SKILLS}/release-notes", description="Drafts a changelog.")
    world.skill("~/.agents/skills/spreadsheet", description="Reads sheets.")
    terminal = Terminal(world, tmp_path / "tmux")
    yield terminal
    terminal.close()


@pytest.mark.behaviour("C-100", "C-101")
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10)])
def test_a_shell_gets_the_name_that_was_picked(terminal: Terminal, columns: int, rows: int) -> None:
    terminal.run('x=$(metier pick); echo "[$x] $?"', columns, rows)
    shown = terminal.until("spreadsheet")
    assert re.search(r"pdf-forms +repo", shown)
    assert re.search(r"spreadsheet +user", shown)
    assert max(map(len, shown.splitlines())) == columns
    terminal.keys("-l", "chang")
    wait_for(lambda: "pdf-forms" not in terminal.shown(), "what does not fit to go")
    terminal.keys("Enter")
    assert terminal.until("[release-notes] 0")


def test_the_terminal_is_left_as_it_was_and_streams_that_lead_elsewhere_do_not_disturb_it(terminal: Terminal) -> None:
    pick = 'x=$(echo nothing | metier pick pdf --print path 2>errors); echo "[$(basename $(dirname $x))]"'
    terminal.run(f'before=$(stty -g); {pick}; metier pick; echo "left $?"; test "$before" = "$(stty -g)" && echo same')
    terminal.until("Fills forms.")
    terminal.keys("Enter")
    terminal.until("spreadsheet")
    terminal.keys("Escape")
    assert terminal.until("same").split() == ["[pdf-forms]", "left", "1", "same"]
    assert (terminal.world.project / "errors").read_text() == ""
