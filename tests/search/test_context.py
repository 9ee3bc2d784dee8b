"""What is known besides the query: it decides between skills that match, and finds nothing by itself."""

import pytest

from calling import caller
from metier import Skills, replay
from metier.record.store.memory import MemoryStore
from metier.search.finder import THRESHOLD
from worlds import World

SKILLS = ".agents/skills"


@pytest.fixture
def shelf(world: World) -> Skills:
    world.skill(f"{SKILLS}/a-jest", description="Writes unit tests for the code of a project in TypeScript.")
    world.skill(f"{SKILLS}/b-pytest", description="Writes unit tests for the code of a project in Python.")
    world.skill(f"{SKILLS}/c-herd", description="Counts zebras. Needs Python.")
    return world.discover()


def found(skills: Skills, query: str, context: str | None = None) -> list[tuple[str, str]]:
    return [(hit.skill.name, hit.fit) for hit in skills.search(query, context=context).results]


def test_a_context_decides_between_skills_that_match_and_finds_nothing_by_itself(shelf: Skills) -> None:
    assert found(shelf, "write unit tests") == [("a-jest", "strong"), ("b-pytest", "strong")]
    assert found(shelf, "write unit tests", "pyproject.toml, python") == [("b-pytest", "strong"), ("a-jest", "strong")]
    assert found(shelf, "okapi", "python") == []
    assert (
        found(shelf, "write unit tests", "")
        == found(shelf, "write unit tests", "weather")
        == found(shelf, "write unit tests")
    )


def test_a_context_makes_no_match_strong(shelf: Skills) -> None:
    vague, context = "unit tests code old ship sails masts ropes", "python unit tests project writes"
    (alone,), (helped,) = (
        [hit for hit in shelf.search(vague, context=given).results if hit.skill.name == "b-pytest"]
        for given in (None, context)
    )
    assert alone.score < THRESHOLD <= helped.score
    assert (alone.fit, helped.fit) == ("weak", "weak")


def test_however_long_a_context_is_it_moves_none_past_a_much_better_match(world: World) -> None:
    words = " ".join(f"{first}{second}um" for first in "bcdfgh" for second in "aeiou")
    world.skill(f"{SKILLS}/a", description="Counts zebras.")
    world.skill(f"{SKILLS}/b", description=f"Counts all of these: {words}.")
    assert found(world.discover(), "count zebras", words * 99)[0][0] == "a"


def test_models_hosts_and_people_give_a_context_and_a_replay_is_the_same(
    world: World, shelf: Skills, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    session = shelf.session(id="s", store=store)
    tools = {tool.name: tool.input_schema["properties"] for tool in session.tools()}
    assert "context" in tools["skill_search"]
    called = session.call("skill_search", {"query": "write unit tests", "context": "python"})
    assert called.text.splitlines()[0].startswith("- b-pytest: ")
    assert session.search("write unit tests", context="python").results[0].skill.name == "b-pytest"
    assert replay.replay(replay.from_store(store, "s")).identical
    run = caller(world, capsys, monkeypatch)
    shown = run("search", "write unit tests", "--context", "python", "--json").json
    assert shown["results"][0]["skill"]["name"] == "b-pytest"
