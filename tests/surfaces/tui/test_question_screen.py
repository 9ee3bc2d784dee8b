"""The question on the screen of the picker: the keys that answer it, and what a small terminal still shows."""

import asyncio
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Static

from asked import BEFORE, REQUEST, missing
from metier import Question, Request
from metier.surfaces.tui.question import QuestionApp
from parts import needs
from terminals import Terminal
from worlds import World

ASK = '[permissions]\nask = [{ tool = "skill_load" }]\n'
needs_tmux = needs("tmux")


def press(request: Request, *keys: str, size: tuple[int, int] = (80, 24)) -> tuple[str | None, str]:
    """The answer after these keys, and everything that the screen has then."""
    program = QuestionApp(Question.of(request))
    seen: list[str] = []

    async def run() -> None:
        async with program.run_test(size=size) as pilot:
            await pilot.pause()
            for key in keys:
                seen.append(_text(program))
                await pilot.press(key)
                await pilot.pause()
            if program.is_running:
                seen.append(_text(program))

    asyncio.run(run())
    return program.return_value, seen[-1]


def _text(program: QuestionApp) -> str:
    return "\n".join(str(program.query_one(f"#{part}", Static).render()) for part in ("question", "meanings"))


ANSWERS = {
    "y": "once",
    "a": "always",
    **dict.fromkeys(("n", "escape", "ctrl+c", "ctrl+q"), "no"),
    "enter space tab x down Y y": "once",
    **dict.fromkeys(("enter", "space", "tab", "x", "v"), None),
}


def test_a_key_answers_and_no_other_does() -> None:
    assert {keys: press(REQUEST, *keys.split())[0] for keys in ANSWERS} == ANSWERS


@pytest.mark.parametrize("size", [(81, 24), (120, 12), (200, 60)])
def test_everything_is_on_the_screen_and_markup_is_text(size: tuple[int, int]) -> None:
    for before in ("", BEFORE):
        _, shown = press(replace(REQUEST, before=before), "x", size=size)
        assert missing(shown, bool(before)) == [], before


def test_v_shows_all_of_a_long_text() -> None:
    request = replace(REQUEST, detail="x\n" * 3_000 + "LAST\n")
    before, after = press(request, "x")[1], press(request, "v")[1]
    assert ("Not shown: " in before, "LAST" in before) == (True, False)
    assert "| LAST" in after


@pytest.fixture
def terminal(world: World, tmp_path: Path) -> Generator[Terminal]:
    world.skill(".agents/skills/one", body="BODY")
    world.configure_user(ASK)
    terminal = Terminal(world, tmp_path / "tmux")
    yield terminal
    terminal.close()


@pytest.mark.system
@needs_tmux
@pytest.mark.parametrize(
    ("line", "key", "code"),
    [("metier pick --print load", "n", 3), ("echo n | metier pick --print load 2>errors", "y", 0)],
)
def test_the_picker_asks_before_it_loads(terminal: Terminal, line: str, key: str, code: int) -> None:
    terminal.run(f'x=$({line}); echo "exit-$?"; echo "$x"; echo end')
    terminal.until("one")
    terminal.keys("Enter")
    shown = terminal.until("y once")
    assert "Load the skill one?" in shown
    assert "Always: loading" in shown
    terminal.keys(key)
    shown = terminal.until("end")
    assert (f"exit-{code}" in shown, "BODY" in shown) == (True, code == 0)


@pytest.mark.system
@needs_tmux
def test_the_plain_dialogue_asks_in_lines(terminal: Terminal) -> None:
    terminal.run("metier pick --plain --print load; echo exit-$?", rows=40)
    terminal.until("1. one")
    terminal.keys("1", "Enter")
    assert "Load the skill one?" in terminal.until("[n]:")
    terminal.keys("y", "Enter")
    terminal.until("exit-0")
    assert "BODY" in terminal.shown()
