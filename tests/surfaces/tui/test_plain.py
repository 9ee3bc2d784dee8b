"""The picker as a line-by-line dialogue."""

import json
import subprocess
import sys

import pytest

from metier.surfaces.tui.model import ALL, Picker
from metier.surfaces.tui.plain import PAGE, Dialogue
from metier.values.skill import Skill
from worlds import World

SKILLS = ".agents/skills"


@pytest.fixture
def shelf(world: World) -> World:
    world.skill(f"{SKILLS}/pdf-forms", description="Fills forms.", body="How to fill.\n", files={"scripts/a.py": ""})
    world.skill(f"{SKILLS}/release-notes", description="Drafts a changelog.")
    world.skill("~/.agents/skills/spreadsheet", description="Reads sheets.")
    world.skill(f"{SKILLS}/broken", text="---\nname: broken\n---\n")
    return world


def talk(world: World, *lines: str, query: str = "") -> tuple[Skill | None, list[str]]:
    """The choice and the printed lines when a user types these lines."""
    said: list[str] = []
    given = iter(lines)
    chosen = Dialogue(Picker(world.discover()), ALL, lambda: next(given, None), said.append).run(query)
    return chosen, said


@pytest.mark.behaviour("C-100", "C-101")
def test_words_search_and_a_number_chooses(shelf: World) -> None:
    for words in ("changelog", "rlsnts"):  # letters in their order find a name
        chosen, said = talk(shelf, words, "1")
        assert "1. release-notes, repo: Drafts a changelog." in said[-2:]
        assert chosen is not None
        assert chosen.name == "release-notes"
    assert talk(shelf)[0] is None, "the end of the input"
    assert talk(shelf, ":quit", "1")[0] is None
    assert {"files: scripts/a.py", "How to fill.", "scope: repo, from agents"} <= set(talk(shelf, ":show 1")[1])


def test_long_answers_come_in_pages(world: World) -> None:
    for number in range(25):
        world.skill(f"{SKILLS}/s{number:02}")
    chosen, said = talk(world, "s", ":more", ":more", ":more", "25")
    assert sum(line[0].isdigit() and ". s" in line for line in said) == 25
    assert f"{PAGE} of 25 shown; :more shows more." in said
    assert said[-1] == "There are no more results."
    assert chosen is not None
    assert chosen.name == "s24"


@pytest.mark.behaviour("C-102")
def test_switches_are_commands_and_last(shelf: World) -> None:
    _, said = talk(shelf, ":off 1", ":pin 2", "pdf")
    assert "pdf-forms is off." in said
    assert "release-notes is pinned: it comes first in every prompt." in said
    assert "1. pdf-forms, repo, off: Fills forms." in said
    skills = shelf.discover()
    assert (skills["pdf-forms"].mode, skills["release-notes"].mode) == ("off", "pinned")
    talk(shelf, ":on 1", ":unpin 2")
    skills = shelf.discover()
    assert (skills["pdf-forms"].mode, skills["release-notes"].mode) == ("auto", "auto")


@pytest.mark.behaviour("C-101")
def test_scopes_are_named_and_changed(shelf: World) -> None:
    chosen, said = talk(shelf, ":scope", ":scope user", "2")
    assert "Scopes: all (3), repo (2), user (1)." in said
    assert said[-3] == "1. spreadsheet, user: Reads sheets."
    assert "There is no number 2. The list has 1 entry." in said
    assert chosen is None


def test_unknown_commands_and_no_answers_help(shelf: World) -> None:
    _, said = talk(shelf, ":frobnicate", "zzzqqq", ":show x", "99999999999999999999")
    assert any(":show N" in line for line in said)
    assert "No skill matches 'zzzqqq'." in said
    assert "There is no number x. The list has 0 entries." in said
    assert max(len(line) for text in said for line in text.splitlines()) <= 80


def test_hostile_text_is_harmless(world: World) -> None:
    nasty = json.dumps("red and [bold]")
    world.skill(f"{SKILLS}/evil", text=f"---\nname: evil\ndescription: {nasty}\n---\n\x1b[2Jbody\x07 \u202e\n")
    _, said = talk(world, ":show 1")
    assert any("[bold]" in line for line in said)
    assert not set("".join(said)) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.system
def test_the_command_works_in_a_pipe_and_says_what_it_lacks(shelf: World) -> None:
    without = "sys.modules['textual'] = None"
    for line, given, before, code, out, says in (
        ("--plain", "sheets\n1\n", "", 0, "spreadsheet\n", ""),
        ("--plain", "", "", 1, "", ""),
        ("", "", "", 2, "", "the picker needs a terminal"),
        ("--plain --scope nowhere", "", "", 2, "", "known: all, repo, user)"),
        ("", "", without, 4, "", "pip install 'metier[tui]'"),
        ("--plain", "sheets\n1\n", without, 0, "spreadsheet\n", ""),
    ):
        program = f"import sys; {before}\nfrom metier.surfaces.cli import main; main()"
        command = [sys.executable, "-c", program, "pick", *line.split(), "--cwd", str(shelf.project)]
        done = subprocess.run(command, input=given, capture_output=True, text=True, start_new_session=True)
        assert (done.returncode, done.stdout) == (code, out), (line, done.stderr)
        assert says in done.stderr
