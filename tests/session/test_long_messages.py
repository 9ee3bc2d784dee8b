"""A message of megabytes costs no more steps than a short one, whatever it is made of."""

import sys
from types import FrameType

import pytest

from metier.skills import Skills
from worlds import World

MESSAGES = {
    "words": "x ",
    "lines": "line\n",
    "one word": "x",
    "single quotes": "'a b' ",
    "double quotes": '"a b" ',
    "escapes": "\\a",
    "quotes in one word": "a'b'",
    "blanks": " \t",
}


def steps(skills: Skills, message: str) -> int:
    """How many functions are called to answer a message, those of C included."""
    session, count = skills.session(store="memory:"), 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        invoked = session.invoke(message)
    finally:
        sys.setprofile(None)
    assert invoked.loaded is not None
    return count


@pytest.mark.parametrize("kind", MESSAGES)
def test_the_work_for_an_argument_does_not_grow_with_every_word_of_it(world: World, kind: str) -> None:
    world.skill(".agents/skills/probe", body="Do $ARGUMENTS[0], $1, $2 and $ARGUMENTS.")
    skills = Skills.discover(world.project, home=world.home)
    piece = MESSAGES[kind]
    for start in ("", "it's "):  # all quotes are closed, or one is not
        short, long = (steps(skills, f"/probe {start}{piece * (size // len(piece))}") for size in (40_000, 2_000_000))
        assert long < 2 * short, (short, long)


def test_words_that_only_look_like_names_are_not_looked_up(world: World) -> None:
    world.skill(".agents/skills/probe")
    skills = Skills.discover(world.project, home=world.home, settings={"invocation": {"forms": ["$name"]}})
    words = " ".join(f"$x{number}" for number in range(200_000))
    few, many = (steps(skills, f"$probe {words[:size]}") for size in (20_000, len(words)))
    assert many < len(words) / 2, (few, many)
