"""The order `relevance` of a catalog that does not fit: what the message is about comes first, the rest is counted.

For the order that is the default, see `test_stable_prompt.py`.
"""

import re
from typing import Any

import pytest

from metier import Skills
from metier.hosts.formats.standard import SHORTEST
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


def descriptions(text: str) -> dict[str, str]:
    return dict(re.findall(r"<name>(.*?)</name><description>(.*?)</description>", text))


# --- with a message ---


def test_what_the_message_is_about_comes_first_wherever_it_stands_in_the_alphabet(crowd: Skills) -> None:
    prompt = crowd.prompt(MESSAGE, 2_500)
    assert set(prompt.names[:3]) == set(TOPICS)
    assert prompt.truncated
    assert not any(name in crowd.prompt("book a flight", 2_500).names for name in ("zz-ledger",))


def test_pinned_skills_come_before_what_fits_and_stay_however_small_the_budget(crowd: Skills) -> None:
    crowd.set_mode("y-filler-014", "pinned")
    crowd.set_mode("b-filler-090", "pinned")
    for budget in (10_000, 2_500, 900, 1):
        names = crowd.prompt(MESSAGE, budget).names
        assert names[:2] == ("b-filler-090", "y-filler-014")
    assert set(crowd.prompt(MESSAGE, 2_500).names[2:5]) == set(TOPICS)
    assert "y-filler-014" in crowd.prompt(budget=900).names


def test_descriptions_are_shortened_before_an_entry_is_left_out(crowd: Skills) -> None:
    whole = crowd.prompt(MESSAGE)
    assert (whole.shown, whole.shortened) == (103, False)
    for budget in range(len(whole.text) - 500, 1_000, -1_500):
        prompt = crowd.prompt(MESSAGE, budget)
        assert len(prompt.text) <= budget
        lengths = [len(text) for text in descriptions(prompt.text).values()]
        if prompt.truncated or prompt.more:
            assert max(lengths) <= SHORTEST, "an entry was dropped while a description was long"
        else:
            assert prompt.shown == 103
            assert prompt.shortened


def test_what_has_no_room_for_a_description_is_named_and_the_rest_is_counted(crowd: Skills) -> None:
    prompt = crowd.prompt(MESSAGE, 3_000)
    assert prompt.names
    assert prompt.more
    assert prompt.shown == len(prompt.names) + len(prompt.more) < prompt.total == 103
    assert f"{103 - prompt.shown} of 103 skills are not shown; you can still load them by name" in prompt.text
    assert "Find them with `skill_search`." in prompt.text


def test_a_skill_that_is_not_shown_loads_by_name_and_is_found(crowd: Skills) -> None:
    session = crowd.session()
    prompt = session.prompt(MESSAGE, 2_000)
    hidden = [skill.name for skill in crowd if skill.name not in (*prompt.names, *prompt.more)]
    assert len(hidden) == 103 - prompt.shown > 0
    assert session.call("skill_load", {"name": hidden[0]}).ok
    rows = session.call("skill_search", {"query": hidden[-1]}).data["results"]
    assert rows[0]["skill"]["name"] == hidden[-1]


def test_the_same_message_gives_the_same_prompt(world: World, crowd: Skills) -> None:
    texts = {crowd.prompt(MESSAGE, 2_500).text for _ in range(3)} | {
        world.discover(settings=BY_MESSAGE).prompt(MESSAGE, 2_500).text
    }
    assert len(texts) == 1


@pytest.mark.parametrize("profile", ["standard", "codelia", "omp", "mycodeagent", "remcochat", "rip"])
def test_every_host_can_be_shown_what_matters_first(world: World, crowd: Skills, profile: str) -> None:
    skills = world.discover(profile, roots=[world.project / SKILLS], settings={"enabled": True, **BY_MESSAGE})
    prompt = skills.prompt(MESSAGE)
    assert prompt.total == 103
    assert set(prompt.names[:3]) == set(TOPICS)


def test_a_message_in_another_script_works_too(world: World, crowd: Skills) -> None:
    world.skill(f"{SKILLS}/zy-tables", description="处理表格，提取数据。")
    crowd.refresh()
    assert crowd.prompt("请提取表格中的数据", 2_000).names[0] == "zy-tables"


# --- then by use ---


def test_skills_that_the_message_does_not_rank_come_by_their_use_the_latest_first(crowd: Skills) -> None:
    session = crowd.session()
    for name in ("x-filler-013", "y-filler-014", "x-filler-013", "w-filler-012"):
        session.load(name)
    assert session.prompt("xyzzy", 2_500).names[:3] == ("w-filler-012", "y-filler-014", "x-filler-013")
    names = session.prompt(MESSAGE, 2_500).names
    assert set(names[:3]) == set(TOPICS)
    assert names[3] == "w-filler-012"


def test_what_was_used_counts_again_in_a_session_that_is_taken_up(crowd: Skills) -> None:
    session = crowd.session()
    session.load("y-filler-014")
    again = crowd.session(state=session.state())
    assert again.prompt("xyzzy", 2_500).names[0] == "y-filler-014"


# --- without a message ---


def test_without_a_message_the_prompt_stays_the_same_whatever_was_used(crowd: Skills) -> None:
    session = crowd.session()
    before = session.prompt(budget=2_500)
    session.load("y-filler-014")
    assert session.prompt(budget=2_500) == before
    assert session.prompt("  ", 2_500) == before
    assert [skill.name for skill in crowd][: len(before.names)] == list(before.names)


def test_without_a_message_all_are_shortened_alike(crowd: Skills) -> None:
    whole = crowd.prompt()
    prompt = crowd.prompt(budget=len(whole.text) * 2 // 3)
    assert prompt.shown == 103
    shown, full = descriptions(prompt.text), descriptions(whole.text)
    longest = max(map(len, shown.values()))
    for name, text in shown.items():
        assert text == " ".join(full[name].split()) or len(text) > longest * 0.65


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


def test_a_skill_that_is_shown_by_name_only_keeps_its_rank_where_names_are_cut(crowd: Skills) -> None:
    crowd.set_mode("zz-ledger", "name-only")
    prompt = crowd.prompt(MESSAGE, 2_000)
    assert prompt.more[0] == "zz-ledger"
    assert "zz-ledger" not in prompt.names
    assert len(prompt.more) < 101


def test_a_mode_holds_in_the_next_process(world: World, crowd: Skills) -> None:
    crowd.set_mode("zz-ledger", "pinned")
    assert world.discover().prompt(budget=1_000).names[0] == "zz-ledger"
    crowd.set_mode("zz-ledger", "auto")
    assert world.discover().prompt(budget=1_000).names[0] != "zz-ledger"
