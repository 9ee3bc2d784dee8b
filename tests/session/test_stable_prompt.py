"""A prompt stays the same from turn to turn: no message changes a catalog that fits, and what one adds stays."""

import itertools
import shutil

import pytest

from metier import Skills, replay
from metier.record.store.memory import MemoryStore
from metier.session.session import Session
from worlds import World

SKILLS = ".agents/skills"
TOPICS = (
    *("anchors", "bridges", "candles", "diamonds", "engines", "ferries"),
    *("glaciers", "harbours", "islands", "jewels", "kettles", "ladders"),
)
"""The skills at the end of the alphabet are about one of these each."""
BUDGET = 4_000
FEW = 1_200
"""A budget with room for a few descriptions."""


def crowded(world: World, fillers: int = 60) -> None:
    for number in range(fillers):
        description = f"Handles case {number} of an office that has nothing to do with anything else, with care."
        world.skill(f"{SKILLS}/a-filler-{number:03}", description=description)
    for topic in TOPICS:
        world.skill(f"{SKILLS}/z-{topic}", description=f"Knows {topic}.")


@pytest.fixture
def crowd(world: World) -> Skills:
    crowded(world)
    return world.discover()


def chosen(session: Session) -> list[str]:
    """The skills that messages added, by the record."""
    frames = (frame for frame in session.events if frame["type"] == "skills_chosen")
    return [one["name"] for frame in frames for one in frame["skills"]]


def shared(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


# --- everything fits ---


@pytest.mark.parametrize("profile", ["standard", "remcochat", "mycodeagent", "codelia"])
def test_no_message_changes_a_catalog_that_fits(world: World, profile: str) -> None:
    crowded(world, 10)
    skills = world.discover(profile, roots=[world.project / SKILLS], settings={"enabled": True})
    session = skills.session()
    prompts = [session.prompt(message) for message in (None, *TOPICS, "thanks")]
    assert len({prompt.text for prompt in prompts}) == 1
    assert {prompt.stable for prompt in prompts} == {len(prompts[0].text)}
    assert list(prompts[0].names) == [skill.name for skill in skills]
    assert session.system_prompt("BASE", message="jewels") == session.system_prompt("BASE", message="thanks")
    assert chosen(session) == []


# --- a choice must be made ---


@pytest.mark.parametrize("profile", ["standard", "codelia", "omp", "mycodeagent", "remcochat", "rip"])
def test_a_message_adds_what_fits_it_after_what_was_shown_before(world: World, profile: str) -> None:
    crowded(world)
    budget = 2 * BUDGET if profile == "codelia" else BUDGET  # its entries have paths
    settings = {"enabled": True, "prompt.order": "stable"}
    skills = world.discover(profile, roots=[world.project / SKILLS], settings=settings)
    session = skills.session()
    prompts = [session.prompt(topic, budget) for topic in ("kettles", "anchors", "kettles", "islands")]
    assert prompts[1].names[-1] == "z-anchors"
    assert prompts[3].names[-3:] == ("z-kettles", "z-anchors", "z-islands")
    fixed = prompts[0].names[:-1]
    assert fixed
    assert list(fixed) == [skill.name for skill in skills][: len(fixed)]
    assert prompts[2].text == prompts[1].text, "a message that adds nothing changes nothing"
    stable = {prompt.text[: prompt.stable] for prompt in prompts}
    assert len(stable) == 1
    assert fixed[-1] in stable.pop()
    for before, after in itertools.pairwise(prompts):
        assert after.names[: len(before.names)] == before.names
        assert shared(before.text, after.text) > before.text.rindex(before.names[-1])
        assert len(after.text) <= budget + 1_000  # some hosts count only their entries


def test_when_there_is_no_room_left_the_next_ones_take_the_place_of_the_first(world: World) -> None:
    crowded(world, 200)
    session = world.discover().session()
    before = session.prompt(budget=BUDGET)
    prompts = [session.prompt(TOPICS[turn % len(TOPICS)], BUDGET) for turn in range(100)]
    for turn, prompt in enumerate(prompts):
        assert prompt.names[-1] == f"z-{TOPICS[turn % len(TOPICS)]}"
        assert len(prompt.text) <= BUDGET
    assert len({prompt.text[: prompt.stable] for prompt in prompts}) == 1
    replaced = [frame for frame in session.events if frame["type"] == "skills_chosen" and frame.get("replaces")]
    assert 0 < len(replaced) < 50, "most find room behind the others"
    assert len(session.prompt(budget=BUDGET).names) >= len(before.names) * 7 / 8


def test_a_pinned_skill_is_in_the_stable_part(crowd: Skills) -> None:
    crowd.set_mode("z-ladders", "pinned")
    prompt = crowd.session().prompt("kettles", FEW)
    assert prompt.names[0] == "z-ladders"
    assert "z-ladders" in prompt.text[: prompt.stable]
    assert prompt.names[-1] == "z-kettles"


# --- the record ---


def test_a_session_that_goes_on_shows_the_same_and_its_record_replays(world: World, crowd: Skills) -> None:
    store = MemoryStore()
    session = crowd.session(id="s", store=store)
    texts = [session.system_prompt("BASE", message=topic, budget=BUDGET) for topic in ("kettles", "jewels")]
    session.load("z-jewels")
    before = session.prompt(budget=BUDGET).text
    again = world.discover().session(id="s", store=store)
    assert again.prompt("jewels", BUDGET).text == before
    assert world.discover().session(state=session.state()).prompt("jewels", BUDGET).text == before
    assert again.prompt("anchors", BUDGET).names[-3:] == ("z-kettles", "z-jewels", "z-anchors")
    assert texts[0] != texts[1]
    shutil.rmtree(world.project / SKILLS)
    outcome = replay.replay(replay.from_store(store, "s"))
    assert outcome.identical, outcome.differences
    assert not outcome.not_compared
    assert [one["name"] for frame in outcome.frames for one in frame.get("skills", ())][-1] == "z-anchors"


def test_one_message_adds_only_the_few_skills_that_fit_it_best(crowd: Skills) -> None:
    session = crowd.session()
    session.prompt(f"tell me about {' and '.join(TOPICS)}", budget=BUDGET)
    assert 0 < len(chosen(session)) <= 5, "the rest of the room is for later messages"
