"""The order `relevance` of a catalog that does not fit: what the message is about comes first, then what was used.

For the order that is the default, see `test_stable_prompt.py`.
"""

from typing import Any

import pytest

from metier import Skills
from metier.values.skill import Mode
from worlds import World

SKILLS = ".agents/skills"
FILLER = "Handles a task of an office that has nothing to do with anything else, step by step and with care. "
TOPICS = {
    "aa-invoices": "Turns invoices into spreadsheets.",
    "mm-receipts": "Sorts receipts, invoices and bills.",
    "zz-ledger": "Posts spreadsheets of invoices to a ledger.",
}
MESSAGE = "make a spreadsheet of these invoices"
BY_MESSAGE = {"prompt.order": "relevance"}


@pytest.fixture
def crowd(world: World) -> Skills:
    """A hundred skills about nothing, and three about invoices at the ends and in the middle of the alphabet."""
    for number in range(100):
        world.skill(
            f"{SKILLS}/{'bcdnopqrstuvwxy'[number % 15]}-filler-{number:03}", description=FILLER * (number % 4 + 1)
        )
    for name, description in TOPICS.items():
        world.skill(f"{SKILLS}/{name}", description=description)
    return world.discover(settings=BY_MESSAGE)


# --- with a message ---


def test_what_the_message_is_about_comes_first_wherever_it_stands_in_the_alphabet(crowd: Skills) -> None:
    prompt = crowd.prompt(MESSAGE, 2_500)
    assert set(prompt.names[:3]) == set(TOPICS)
    assert prompt.truncated
    assert not any(name in crowd.prompt("book a flight", 2_500).names for name in ("zz-ledger",))


# --- then by use ---


def test_skills_that_the_message_does_not_rank_come_by_their_use_the_latest_first(crowd: Skills) -> None:
    session = crowd.session()
    for name in ("x-filler-013", "y-filler-014", "x-filler-013", "w-filler-012"):
        session.load(name)
    assert session.prompt("xyzzy", 2_500).names[:3] == ("w-filler-012", "y-filler-014", "x-filler-013")
    names = session.prompt(MESSAGE, 2_500).names
    assert set(names[:3]) == set(TOPICS)
    assert names[3] == "w-filler-012"


# --- the modes of a skill ---

MODES: dict[Mode, tuple[bool, bool, bool, bool]] = {
    "pinned": (True, False, True, True),
    "auto": (True, False, True, True),
    "name-only": (False, True, True, True),
    "manual": (False, False, False, True),
    "off": (False, False, False, False),
}
"""Described in the prompt, only named there, loaded by the model, called by a person."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("message", [None, MESSAGE])
def test_a_mode_says_who_sees_and_calls_a_skill(world: World, mode: Mode, message: str | None) -> None:
    world.skill(f"{SKILLS}/ledger", description="Posts invoices. DESCRIPTION-MARKER")
    world.skill(f"{SKILLS}/other", description="Something else.")
    skills = world.discover()
    assert skills.set_mode("ledger", mode).mode == mode
    described, named, by_model, by_user = MODES[mode]
    session = skills.session()
    prompt = session.prompt(message)
    assert ("ledger" in prompt.names, "ledger" in prompt.more) == (described, named)
    assert ("DESCRIPTION-MARKER" in prompt.text) is described
    assert ("ledger" in prompt.text) is (described or named)
    assert session.call("skill_load", {"name": "ledger"}).ok is by_model
    rows: Any = session.call("skill_search", {"query": "post invoices"}).data["results"]
    assert bool(rows) is by_model
    assert bool(skills.search("post invoices").results) is by_user
    if by_user:
        assert session.invoke("/ledger now").skill is not None
    assert ("other" in prompt.names, prompt.total) == (True, 1 + (described or named))


def test_with_messages_a_prompt_keeps_within_every_budget(world: World) -> None:
    for number in range(150):
        world.skill(
            f".agents/skills/s{number}", description=f"Mends machine {number} of the plant." + "d" * (number % 7)
        )
    skills, wrong = world.discover(), list[str]()
    for budget in range(2_000, 12_000, 251):  # the least of them has room for what the text says in any case
        session = skills.session()
        for message in ("mend machine 131 and 132", "mend machine 7", "machine 140"):
            text = session.prompt(message=message, budget=budget).text
            if len(text) > budget:
                wrong.append(f"{budget} for {message}: {len(text)}")
    assert wrong == []
