"""Other words for the same thing: what they find, that they can be switched off, and that users add their own."""

import tomllib

import pytest

from metier import Skills
from metier.search.words import FILE, GROUP, GROUPS, aliases
from worlds import World

SKILLS = ".agents/skills"


@pytest.fixture
def shelf(world: World) -> World:
    world.skill(f"{SKILLS}/cluster", description="Deploys to Kubernetes.")
    world.skill(f"{SKILLS}/pptx", description="Creates and edits presentations.")
    world.skill(f"{SKILLS}/ledger", description="Closes the books of a company.")
    world.skill(f"{SKILLS}/markup", description="Reviews HTML and CSS.")
    world.skill(f"{SKILLS}/xlsx", description="Creates and edits spreadsheets.")
    return world


def found(skills: Skills, query: str) -> list[str]:
    return [hit.skill.name for hit in skills.search(query).results]


def test_another_word_finds_the_skill_and_an_explanation_says_which(shelf: World) -> None:
    skills = shelf.discover()
    assert found(skills, "k8s rollout") == ["cluster"]
    assert found(skills, "make a slide deck") == found(skills, "a slideshow") == ["pptx"]
    assert found(skills, "test my website") == ["markup"]
    assert found(skills, "the formulas of a workbook") == ["xlsx"]
    assert skills.explain(skills.search("k8s rollout")).results[0].matched == ("kubernetes",)


def test_the_word_itself_counts_more_than_another_one(shelf: World) -> None:
    shelf.skill(f"{SKILLS}/other", description="Deploys to k8s.")
    assert found(shelf.discover(), "deploy k8s")[0] == "other"
    assert found(shelf.discover(), "deploy kubernetes")[0] == "cluster"


def test_they_can_be_switched_off_and_a_user_adds_some(shelf: World) -> None:
    assert found(shelf.discover(settings={"search.expand": False}), "k8s rollout") == []
    own = {"search.expand": False, "search.synonyms": ["bookkeeping, ledger, closing-time", "accounts, books"]}
    skills = shelf.discover(settings=own)
    assert found(skills, "bookkeeping") == found(skills, "accounts") == ["ledger"]
    assert found(skills, "k8s rollout") == found(shelf.discover(), "bookkeeping") == []


def test_every_shipped_group_has_a_source_and_is_small() -> None:
    with open(FILE, "rb") as file:
        groups = tomllib.load(file)["group"]
    assert all(group["source"] and 1 < len(group["words"]) <= GROUP for group in groups)
    words = [word for group in groups for word in group["words"]]
    assert len(words) == len(set(words)) < 200


def test_groups_of_a_user_are_bounded() -> None:
    many = aliases(False, tuple(f"left{at}, right{at}" for at in range(GROUPS + 1)))
    assert (f"left{GROUPS - 1}" in many, f"left{GROUPS}" in many) == (True, False)
    long = aliases(False, (", ".join(f"word{at}" for at in range(GROUP + 1)),))
    assert set(long) == {f"word{at}" for at in range(GROUP)}
