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
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 50), (40, 10)])
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


def test_a_few_letters_are_enough(terminal: Terminal) -> None:
    terminal.run('x=$(metier pick); echo "[$x] $?"')
    terminal.until("spreadsheet")
    terminal.keys("-l", "sprsh")
    terminal.until("1 of 3")
    terminal.keys("C-u")
    terminal.keys("-l", "pfo")
    wait_for(lambda: "spreadsheet" not in terminal.shown(), "another name")
    terminal.keys("Enter")
    terminal.until("[pdf-forms] 0")


def test_leaving_prints_nothing_and_exits_with_1(terminal: Terminal) -> None:
    terminal.run('x=$(metier pick); echo "[$x] $?"')
    terminal.until("release-notes")
    terminal.keys("Escape")
    terminal.until("[] 1")


@pytest.mark.behaviour("C-102")
def test_a_switch_outlives_the_program(terminal: Terminal) -> None:
    terminal.run("metier pick release; metier pick; echo done")
    terminal.until("release-notes")
    terminal.keys("C-t")
    terminal.until("release-notes is off")
    terminal.keys("Escape")
    assert re.search(r"release-notes +repo +off", terminal.until("spreadsheet"))
    terminal.keys("Escape")
    terminal.until("done")
    assert not terminal.world.discover()["release-notes"].enabled


def test_streams_that_lead_elsewhere_do_not_disturb_it(terminal: Terminal) -> None:
    terminal.run('x=$(echo nothing | metier pick pdf --print path 2>errors); echo "[$(basename $(dirname $x))]"')
    terminal.until("Fills forms.")
    terminal.keys("Enter")
    terminal.until("[pdf-forms]")
    assert (terminal.world.project / "errors").read_text() == ""


def test_the_terminal_is_left_as_it_was(terminal: Terminal) -> None:
    terminal.run('before=$(stty -g); metier pick pdf; test "$before" = "$(stty -g)" && echo same')
    terminal.until("Fills forms.")
    terminal.keys("Enter")
    shown = terminal.until("same")
    assert shown.split() == ["pdf-forms", "same"]


def test_without_colour_there_is_none(terminal: Terminal) -> None:
    terminal.run("metier pick", colour=False)
    terminal.until("release-notes")
    shown = terminal.shown("-e")
    assert "\x1b[" in shown, "the cursor is visible without colour"
    assert not re.search(r"\x1b\[[0-9;]*\b(3[0-7]|4[0-7]|9[0-7]|38|48)\b", shown)


def test_load_prints_what_a_model_would_get(terminal: Terminal) -> None:
    terminal.run("metier pick pdf --print load")
    terminal.until("Fills forms.")
    terminal.keys("Enter")
    terminal.until("Fill them.")


def test_changes_on_disk_arrive_while_it_is_open(terminal: Terminal) -> None:
    terminal.run("metier pick")
    terminal.until("release-notes")
    terminal.world.skill("staged/newcomer")
    (terminal.world.project / "staged/newcomer").rename(terminal.world.project / SKILLS / "newcomer")
    assert "newcomer" in terminal.until("+1 / -0")


def test_the_plain_dialogue_works_in_a_shell(terminal: Terminal) -> None:
    terminal.run('x=$(metier pick --plain); echo "[$x] $?"')
    terminal.until("3 skills.")
    terminal.keys("-l", "changelog")
    terminal.keys("Enter")
    terminal.until("1. release-notes, repo: Drafts a changelog.")
    terminal.keys("-l", "1")
    terminal.keys("Enter")
    terminal.until("[release-notes] 0")
