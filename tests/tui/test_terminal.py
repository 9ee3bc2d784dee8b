"""`metier pick` in a real terminal: its output in a shell, and the state of the terminal afterwards."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from watching import wait_for
from worlds import World

SKILLS = ".agents/skills"
METIER = f"{shlex.quote(sys.executable)} -c 'from metier.cli import main; main()'"

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not here")


class Terminal:
    """A terminal of a given size in which a shell runs one line."""

    def __init__(self, world: World, socket: Path) -> None:
        self.world, self.socket = world, socket

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self.socket), "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def run(self, line: str, columns: int = 80, rows: int = 24, colour: bool = True) -> None:
        """Run a line of shell, in which `metier` is this package."""
        kept = {"PATH": os.environ["PATH"], "HOME": str(self.world.home), "LANG": "C.UTF-8"}
        kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # the same package as in this process
        script = self.world.home / "line.sh"
        script.write_text(
            f'metier() {{ {METIER} "$@"; }}\ncd {shlex.quote(str(self.world.project))}\n{line}\nsleep 600\n'
        )
        variables = kept | ({} if colour else {"NO_COLOR": "1"})
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        command = f"env -i TERM=tmux-256color {settings} sh {shlex.quote(str(script))}"
        self.tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), command)

    def shown(self, *how: str) -> str:
        return self.tmux("capture-pane", "-p", *how)

    def until(self, text: str) -> str:
        try:
            wait_for(lambda: text in self.shown(), f"{text!r} on the terminal")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.shown()}") from None
        return self.shown()

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def close(self) -> None:
        subprocess.run(["tmux", "-S", str(self.socket), "kill-server"], capture_output=True, check=False)


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
