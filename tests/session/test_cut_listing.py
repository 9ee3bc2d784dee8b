"""What a model is shown of a catalog that does not fit, with messages and without."""

import re

import pytest

from metier.values.skill import Mode
from profile_kinds import KINDS
from worlds import World

FOLDER = "catalog"
TOPICS = ("anchors", "bridges", "candles", "diamonds", "engines", "ferries", "glaciers", "harbours")
"""The last skills of the alphabet are about one of these each."""
MESSAGES = ("tell me about anchors", "now compare diamonds with ferries", "thanks, that is all")


def crowded(world: World, count: int) -> None:
    """A catalog that every host must cut: these hosts also need a user who switches skills on and trusts the folder."""
    text = "Handles a case of an office that has nothing to do with anything else, step by step and with great care. "
    for number in range(count - len(TOPICS)):
        name = f"skill-{number:04}-of-an-office-with-a-long-name"
        world.skill(f"{FOLDER}/{name}", description=f"Case {number:04}. {text * 2}")
    for number, topic in enumerate(TOPICS, count - len(TOPICS)):
        name = f"skill-{number:04}-{topic}"
        world.skill(f"{FOLDER}/{name}", description=f"Case {number:04}. Knows {topic}.")
    world.trust()
    world.configure_user("enabled = true\n")


def described(text: str) -> set[str]:
    """The skills whose descriptions a model reads."""
    return set(re.findall(r"\bCase (\d{4})", text))


MODES: tuple[Mode, ...] = ("auto", "pinned", "name-only")


@pytest.mark.parametrize("budget", [None, 3_000])
@pytest.mark.parametrize("mode", MODES)
def test_a_host_that_lists_its_skills_twice_lists_the_same_ones(world: World, mode: Mode, budget: int | None) -> None:
    crowded(world, 260)
    skills = world.discover("mycodeagent", roots=[world.project / FOLDER])
    skills.set_mode("skill-0259-harbours", mode)
    session = skills.session()
    for message in MESSAGES:
        prompt = session.system_prompt("BASE", message=message, budget=budget, wire=True)
        listed = session.tools(budget, wire=True)[0].description
        assert described(listed)
        assert f"## Skill\n\n{listed}\n\n# Skills\n" in prompt


@pytest.mark.parametrize("profile", KINDS)
def test_an_eighth_is_the_most_that_a_message_hides_whatever_the_budget(world: World, profile: str) -> None:
    lengths = (1, 5, 30)
    names = [f"{'abxy'[number % 4]}-{'n' * lengths[number % 3]}-{number}" for number in range(60)]
    texts = ("Short & <b>.", "Word " * 10, "A long text about anchors. " * 20)
    for number, name in enumerate(names):
        world.skill(f"{FOLDER}/{name}", description=f"{texts[number % 7 % 3]} Topic{number}.")
    settings = {"enabled": True, "prompt.order": "stable"}
    skills = world.discover(profile, roots=[world.project / FOLDER], settings=settings)
    for number, name in enumerate(names[::5]):
        skills.set_mode(name, "name-only" if number % 3 else "pinned")
    for budget in range(0, 9_000, 300):
        without = skills.session().prompt(budget=budget)
        session = skills.session()
        for message in ("anchors", "topic3 and topic4", "topic50", None, "thanks"):
            prompt = session.prompt(message, budget)
            assert prompt.text.startswith(without.text[: without.stable])
            assert prompt.shown >= without.shown * 7 / 8
            assert len(prompt.names) >= len(without.names) * 7 / 8
            assert len({*without.names} - {*prompt.names}) <= max(1, len(without.names) / 8)
            assert len(prompt.text) <= max(len(without.text), budget + 1_000)  # some hosts count only their entries
            assert session.prompt(message, budget).text == prompt.text
