"""Typing into the picker: how long a letter takes until the list that answers it is drawn, by letters and by rank.

Queries are the beginnings of words of names and descriptions, letter by letter, as a person types them: the first
letters fit most of the catalog, which is the worst case. The program runs as on a terminal of 80x24, without one; what
is measured is the CPU time of all its threads from the letter to the drawn list, first in the order of letters and
then, with the work of the ranking, by rank. The time until a frame is due, up to 16 ms by the framework's clock, comes
on top of it on any terminal.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from textual.widgets import Input

from metier import Skills
from metier.surfaces.tui.model import ALL, Picker
from metier.surfaces.tui.screen import PickApp

from ..measure import Row
from ..options import Options

_WORDS = 60
_COMMON = "generated texts know some hundred words, so that one of them is in half of all skills and ties abound"


def run(options: Options) -> list[Row]:
    sizes = [size for size in options.sizes if size <= 10_000 or options.full]
    return [row for size in sizes for row in _at(options, size)]


def _at(options: Options, size: int) -> list[Row]:
    what = f"{size:,} skills"
    skills = options.scan(options.workspace.tree(size), cache=True)
    picker = Picker(skills)
    began = time.process_time()
    picker.rank("warm up")
    index = time.process_time() - began
    letters = _letters(skills, _WORDS if options.rounds > 2 else 5)
    typed = asyncio.run(_typed(picker, letters))
    return [
        Row(what, "by letters p50", statistics.median(typed.by_letters) * 1e3, "ms"),
        Row(what, "by letters p99", _p99(typed.by_letters), "ms", at_most=100),
        Row(what, "by rank p50", statistics.median(typed.by_rank) * 1e3, "ms"),
        Row(what, "by rank p99", _p99(typed.by_rank), "ms", at_most=100, note=_COMMON),
        Row(what, "cursor down p99", _p99(typed.moved), "ms", at_most=16),
        Row(what, "first index", index, note="in a thread of its own; until then the list narrows by letters"),
    ]


@dataclass(slots=True)
class _Typed:
    """Seconds of each letter until the list was drawn, and of each step of the cursor."""

    by_letters: list[float] = field(default_factory=list[float])
    by_rank: list[float] = field(default_factory=list[float])
    moved: list[float] = field(default_factory=list[float])


def _letters(skills: Skills, words: int) -> list[str]:
    """Every beginning of some words, one letter longer each time."""
    rng = random.Random(3)
    chosen = rng.sample(list(skills), words)
    texts = [rng.choice((skill.name, *skill.description.split()[:6])) for skill in chosen]
    return [text[: length + 1] for text in texts for length in range(min(len(text), 12))]


async def _typed(picker: Picker, letters: Sequence[str]) -> _Typed:
    times = _Typed()
    program = PickApp(picker)
    async with program.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await asyncio.to_thread(program.watcher.wait_ready)  # its first look is not the letters' business
        line, rows = program.query_one("#query", Input), program.rows
        for typed in letters:
            await pilot.pause(0.02)
            before = program.entries
            began = time.process_time()
            line.value = typed
            while program.entries is before:
                await asyncio.sleep(0)
            _draw(rows.render_line, rows.size.height)
            times.by_letters.append(time.process_time() - began)
            while program.ranked[:2] != (typed, ALL) and typed.strip():
                await asyncio.sleep(0.001)
            _draw(rows.render_line, rows.size.height)
            times.by_rank.append(time.process_time() - began)
        line.value = ""
        await pilot.pause()
        for _ in range(200):
            began = time.process_time()
            program.action_cursor("cursor_down")
            _draw(rows.render_line, rows.size.height)
            times.moved.append(time.process_time() - began)
            await pilot.pause()
    return times


def _draw(line: Callable[[int], object], height: int) -> None:
    for y in range(height):
        line(y)


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)] * 1e3
