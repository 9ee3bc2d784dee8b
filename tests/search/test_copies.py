"""Skills that are shadowed by others of their name, and copies of one skill: found, and told apart."""

import pytest

from metier import Skills
from worlds import World

SKILLS = ".agents/skills"
MINE = "Fills in tax forms for a small company in Portugal."
YOURS = "Draws a map of zebras that cross a river."
LONG = "Turns a transcript of a meeting into minutes with decisions, owners and dates, and lists what is still open."


@pytest.fixture
def shelf(world: World) -> World:
    world.skill(f"{SKILLS}/forms", description=MINE)
    world.skill("~/.agents/skills/forms", description=YOURS)
    return world


def found(skills: Skills, query: str) -> list[tuple[str, str, str]]:
    return [(hit.skill.name, hit.skill.scope, hit.shadowed_by) for hit in skills.search(query).results]


def test_a_shadowed_skill_is_found_by_its_words_and_says_by_whom_it_is_shadowed(shelf: World) -> None:
    skills = shelf.discover()
    winner = skills["forms"].path
    assert found(skills, "a map of zebras") == [("forms", "user", winner)]
    assert found(skills, "tax forms in Portugal") == [("forms", "repo", "")]
    assert found(skills, "forms")[0] == ("forms", "repo", "")


def test_a_model_loads_a_shadowed_skill_by_the_path_that_its_search_gives(shelf: World) -> None:
    session = shelf.discover().session()
    (hit,) = session.call("skill_search", {"query": "a map of zebras"}).data["results"]
    path = hit["skill"]["path"]
    assert session.call("skill_search", {"query": "a map of zebras"}).text.splitlines() == [
        f"- forms: {YOURS}",
        f"  scope: user, path: {path}",
        "  shadowed by another skill of this name; load this one by its path",
    ]
    assert session.call("skill_load", {"path": path}).ok
    denied = shelf.discover().session(policy={"deny": [{"tool": "skill_load", "path": path}]})
    assert denied.call("skill_search", {"query": "a map of zebras"}).data["results"] == []


def test_copies_are_one_hit_that_says_how_many_there_are(world: World) -> None:
    for name in ("minutes", "minutes-of-a-meeting", "transcripts"):
        world.skill(f"{SKILLS}/{name}", description=LONG)
    world.skill("~/.agents/skills/minutes", description=LONG.upper())
    skills = world.discover()
    (hit,) = skills.search("minutes and decisions from a transcript").results
    assert hit.shadowed_by == ""
    assert len({hit.skill.path, *(one.path for one in hit.like)}) == 4
    text = skills.session().call("skill_search", {"query": "minutes and decisions from a transcript"}).text
    others = sorted({"minutes", "minutes-of-a-meeting", "transcripts"} - {hit.skill.name})
    assert "\n  and 3 like it: " in text
    assert all(other in text.split("like it: ")[1] for other in others)
    assert skills.search("minutes and decisions from a transcript", limit=1).truncated is False


def test_skills_that_share_a_short_description_stay_apart(world: World) -> None:
    for name in ("one", "two"):
        world.skill(f"{SKILLS}/{name}", description="Counts zebras.")
    assert [name for name, _, _ in found(world.discover(), "count zebras")] == ["one", "two"]


def test_a_name_finds_its_skill_also_where_it_is_a_copy(world: World) -> None:
    for name in ("minutes", "transcripts"):
        world.skill(f"{SKILLS}/{name}", description=LONG)
    assert world.discover().search("transcripts").results[0].skill.name == "transcripts"
