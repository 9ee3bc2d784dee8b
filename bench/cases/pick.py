"""Typing into the picker: how long a letter takes until the list that answers it is drawn, by letters and by rank.

Queries are the beginnings of words of names and descriptions, letter by letter, as a person types them: the first
letters fit most of the catalog, which is the worst case. The program runs as on a terminal of 80x24, without one; what
is measured is the clock on the wall from the letter to the drawn list, a thread for the ranking included. The time
until a frame is due, up to 16 ms by the framework's clock, comes on top of it on any terminal.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence

from textual.widgets import Input

from metier import Skills
from metier.tui.model import ALL, Picker
from metier.tui.screen import PickApp, PickScreen

from ..measure import Row
from ..options import Options

_WORDS = 60


def run(options: Options) -> list[Row]:
    sizes = [size for size in options.sizes if size <= 10_000 or options.full]
    return [row for size in sizes for row in _at(options, size)]


def _at(options: Options, size: int) -> list[Row]:
    what = f"{size:,} skills"
    skills = options.scan(options.workspace.tree(size), cache=True)
    picker = Picker(skills)
    began = time.perf_counter()
    picker.rank("warm up")
    index = time.perf_counter() - began
    letters = _letters(skills, _WORDS if options.rounds > 2 else 5)
    narrowed = [_wall(lambda typed=typed: picker.narrow(typed)) for typed in letters]
    ranked = [_wall(lambda typed=typed: picker.rank(typed)) for typed in letters]
    drawn, moved, opened = asyncio.run(_typed(picker, letters))
    return [
        Row(what, "by letters p99", _p99(narrowed), "ms"),
        Row(what, "by rank p99", _p99(ranked), "ms"),
        Row(what, "typed to drawn p50", statistics.median(drawn) * 1e3, "ms"),
        Row(what, "typed to drawn p99", _p99(drawn), "ms", at_most=30),
        Row(what, "cursor down p99", _p99(moved), "ms", at_most=16),
        Row(what, "open", opened),
        Row(what, "first index", index, note="in a thread of its own; until then the list narrows by letters"),
    ]


def _letters(skills: Skills, words: int) -> list[str]:
    """Every beginning of some words, one letter longer each time."""
    rng = random.Random(3)
    chosen = rng.sample(list(skills), words)
    texts = [rng.choice((skill.name, *skill.description.split()[:6])) for skill in chosen]
    return [text[: length + 1] for text in texts for length in range(min(len(text), 12))]


async def _typed(picker: Picker, letters: Sequence[str]) -> tuple[list[float], list[float], float]:
    began = time.perf_counter()
    program = PickApp(picker)
    async with program.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        opened = time.perf_counter() - began
        screen = program.screen
        assert isinstance(screen, PickScreen)
        field, rows = screen.query_one("#query", Input), screen.rows
        drawn: list[float] = []
        for typed in letters:
            await pilot.pause()
            began = time.perf_counter()
            field.value = typed
            while screen.answered != (typed, ALL) and typed.strip():
                await asyncio.sleep(0)
            _draw(rows.render_line, rows.size.height)
            drawn.append(time.perf_counter() - began)
        field.value = ""
        await pilot.pause()
        moved: list[float] = []
        for _ in range(200):
            began = time.perf_counter()
            screen.action_step(1)
            _draw(rows.render_line, rows.size.height)
            moved.append(time.perf_counter() - began)
            await pilot.pause()
    return drawn, moved, opened


def _draw(line: Callable[[int], object], height: int) -> None:
    for y in range(height):
        line(y)


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)] * 1e3


def _wall(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
