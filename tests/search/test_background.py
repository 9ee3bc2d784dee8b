"""The index of a large catalog: the first answer comes from names and descriptions, the index follows."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from metier import SearchResult, limits, replay
from metier.record.store.memory import MemoryStore
from metier.search import background, finder
from metier.search.index import TextIndex
from metier.search.quick import QuickSearch
from metier.values.skill import Root, Skill
from patience import PATIENCE
from worlds import World

"""Seconds after which a test gives up. Nothing depends on how long a build takes."""
MANY = 40
"""More skills than are read while a search waits, with the limit that the tests set."""


@pytest.fixture
def large(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(limits, "INDEXED_AT_ONCE", 5)
    for at in range(MANY):
        world.skill(f".agents/skills/animal-{at:02}", description=f"Counts animals of herd {at}.", body="Grass.\n")
    world.skill(".agents/skills/okapi", description="Feeds an okapi.", body="It needs fresh zucchini. " * 9)
    (world.project / ".agents/skills/okapi/leaves.md").write_text("Acacia leaves are best.\n" * 9)
    return world


def names(result: SearchResult) -> list[str]:
    return [hit.skill.name for hit in result.results]


def index_folder(world: World) -> str:
    (place,) = [*Path(world.home).rglob("index-*"), *Path(world.project).rglob("index-*")]
    return str(place)


def wait_for_builds(folder: str) -> None:
    give_up = time.monotonic() + PATIENCE
    while background.is_running(folder):
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.system
def test_names_and_descriptions_answer_at_once_and_bodies_and_references_follow(large: World) -> None:
    skills = large.discover()
    first = skills.search("feed the okapi")
    assert names(first)[0] == "okapi"
    assert first.indexing is not None
    assert first.indexing.total == MANY + 1
    assert "Only names and descriptions were searched: " in first.text
    assert names(skills.search("fresh zucchini")) == [] or skills.search("fresh zucchini").indexing is None
    assert skills.explain(first).results[0].matched == ("feed", "okapi")
    assert skills.wait_for_index(PATIENCE)
    later = skills.search("fresh zucchini")
    assert (names(later), later.indexing) == (["okapi"], None)
    assert skills.search("acacia leaves").results[0].file == "leaves.md"
    assert "indexing" not in later.as_dict()


@pytest.mark.system
def test_what_was_built_in_the_background_answers_as_ever(large: World, monkeypatch: pytest.MonkeyPatch) -> None:
    skills = large.discover()
    skills.search("okapi herds")
    assert skills.wait_for_index(PATIENCE)
    monkeypatch.setattr(limits, "INDEXED_AT_ONCE", 500)
    at_once = large.discover(settings={"cache": False})
    for query in ("okapi", "fresh zucchini", "count animals of herd 7", "acacia", "okpi", "grass"):
        assert skills.search(query).as_dict() == at_once.search(query).as_dict()


@pytest.mark.system
def test_a_model_reads_that_the_index_is_not_ready_and_a_replay_says_the_same(large: World) -> None:
    store = MemoryStore()
    session = large.discover().session(id="s", store=store)
    assert "Only names and descriptions were searched" in session.call("skill_search", {"query": "okapi herd"}).text
    assert session.skills.wait_for_index(PATIENCE)
    assert "Only names" not in session.call("skill_search", {"query": "okapi herd"}).text
    assert replay.replay(replay.from_store(store, "s")).identical


SEARCH = """
import sys
from metier import Skills, limits
limits.INDEXED_AT_ONCE = 5
found = Skills.discover(sys.argv[1], home=sys.argv[2]).search("okapi")
print([hit.skill.name for hit in found.results], found.indexing is not None)
"""


@pytest.mark.system
def test_two_processes_start_one_build_and_it_is_finished_after_both_have_ended(large: World) -> None:
    command = [sys.executable, "-c", SEARCH, str(large.project), str(large.home)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {process.communicate()[0] for process in started}
    assert "['okapi'] True\n" in answers
    assert answers <= {"['okapi'] True\n", "['okapi'] False\n"}  # one that starts late finds the index built
    folder = index_folder(large)
    wait_for_builds(folder)
    index = TextIndex.open(folder)
    assert len(index.stamps()) == MANY + 1
    assert sum(len(keys) + hidden for keys, hidden in index.parts().values()) == MANY + 1
    skills = large.discover()
    assert (names(skills.search("fresh zucchini")), skills.search("x").indexing) == (["okapi"], None)


@pytest.mark.system
@pytest.mark.parametrize("how", ["killed", "no interpreter"])
def test_a_build_that_dies_is_made_up_for_here(large: World, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "killed":
        monkeypatch.setattr(background, "_CODE", "import os; os.kill(os.getpid(), 9)  # {path!r}")
    else:
        monkeypatch.setattr(sys, "executable", "")
    skills = large.discover()
    assert names(skills.search("feed the okapi"))[0] == "okapi"
    assert skills.wait_for_index(PATIENCE)
    assert names(skills.search("fresh zucchini")) == ["okapi"]


@pytest.mark.system
def test_a_few_changed_skills_of_a_large_catalog_are_read_at_once(large: World) -> None:
    skills = large.discover()
    skills.search("okapi")
    assert skills.wait_for_index(PATIENCE)
    large.skill(".agents/skills/okapi", description="Feeds an okapi.", body="It needs ripe mangos now. " * 9)
    (large.project / ".agents/skills/animal-03/SKILL.md").unlink()
    skills.refresh()
    found = skills.search("ripe mangos")
    assert (names(found), found.indexing) == (["okapi"], None)
    assert names(skills.search("fresh zucchini")) == []
    assert "animal-03" not in names(skills.search("herd", limit=20))


@pytest.mark.system
def test_a_changed_reference_is_found_after_a_check(large: World, monkeypatch: pytest.MonkeyPatch) -> None:
    skills = large.discover()
    skills.search("okapi")
    assert skills.wait_for_index(PATIENCE)
    (large.project / ".agents/skills/okapi/leaves.md").write_text("Baobab fruit is fine, too.\n" * 9)
    monkeypatch.setattr(background, "CHECK_SECONDS", -1.0)
    again = large.discover()
    again.search("okapi")  # starts the check
    assert again._finder is not None
    again._finder.start_waiting_build()
    wait_for_builds(index_folder(large))
    assert names(large.discover().search("baobab fruit")) == ["okapi"]


@pytest.mark.system
def test_many_updates_are_written_together_and_change_no_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "_MANY_PARTS", 4)
    skills = world.discover()
    for at in range(7):
        world.skill(f".agents/skills/animal-{at}", description=f"Counts animals of herd {at}.", body=f"Grass {at}.\n")
        if at > 2:
            world.skill(".agents/skills/animal-1", description=f"Counts animals of herd {at}.", body="More grass.\n")
        skills.refresh()
        skills.search("herd")
        wait_for_builds(index_folder(world))
    parts = TextIndex.open(index_folder(world)).parts()
    assert len(parts) <= 4
    fresh = world.discover(settings={"cache": False})
    for query in ("herd", "grass", "more grass", "animals of herd 5"):
        assert world.discover().search(query).as_dict() == fresh.search(query).as_dict()


# --- names and descriptions ---


def quick(**descriptions: str) -> QuickSearch:
    root = Root("/s", "repo", "agents")
    paths = {name: f"/s/{name}/SKILL.md" for name in descriptions}
    return QuickSearch(
        Skill(name, text, paths[name], paths[name], root, 0, 1, {}) for name, text in descriptions.items()
    )


def anything(key: str) -> bool:
    return True


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("summaries of meetings", ["minutes"]),
        ("happiness", ["mood"]),
        ("provide", ["cloud"]),
        ("vide", []),
        ("提取表格", ["tables"]),
        ("RESUME", ["cv"]),
        ("the of and", []),
    ],
)
def test_words_of_names_and_descriptions_are_found_by_their_stems(query: str, expected: list[str]) -> None:
    skills = quick(
        minutes="Writes a “summary” of each meeting.",
        mood="Makes you happy: measures happiness.",
        cloud="Provides servers. Dateien für Straßen.",
        tables="处理表格，提取文本和数据。",
        cv="Résumé and resume.",
    )
    assert [one.key.split("/")[2] for one in skills.search(query, 5, anything)] == expected


def test_a_name_counts_more_than_a_description_and_a_rare_word_more_than_a_common_one() -> None:
    long = "Reads paper of any kind, of any size, of any weight and of any colour."
    skills = quick(**{"invoice-reader": long}, letters="Writes an invoice.", paper="Folds paper.")
    assert [one.key.split("/")[2] for one in skills.search("my invoice", 5, anything)] == ["invoice-reader", "letters"]
    assert skills.search("invoice paper", 1, anything)[0].key.split("/")[2] == "invoice-reader"
    assert skills.search("invoice", 5, {"/s/letters/SKILL.md"}.__contains__)[0].key == "/s/letters/SKILL.md"


@pytest.mark.system
def test_an_index_in_memory_of_a_large_catalog_is_built_in_the_background_too(large: World) -> None:
    skills = large.discover(settings={"cache": False})
    assert skills.search("okapi").indexing is not None
    assert skills.wait_for_index(PATIENCE)
    assert names(skills.search("fresh zucchini")) == ["okapi"]


def test_common_words_still_decide_between_what_rare_words_find_and_find_what_else_is_allowed() -> None:
    herd = {f"animal{at:03}": "Counts the animals of a herd." for at in range(300)}
    birds = {f"bird{at:03}": "Feeds birds." for at in range(900)}
    skills = quick(**herd, **birds, lone="Counts zebras.", stripes="Counts the animals of a herd of zebras.")
    hits = skills.search("zebras of a herd", 5, anything)
    assert [hit.key for hit in hits][:2] == ["/s/stripes/SKILL.md", "/s/lone/SKILL.md"]
    assert len(hits) == 5
    only = {"/s/animal007/SKILL.md"}
    assert [hit.key for hit in skills.search("zebras of a herd", 1, only.__contains__)] == [*only]
    assert skills.matched("zebras of a herd", ["/s/stripes/SKILL.md"]) == {"/s/stripes/SKILL.md": ("zebras", "herd")}


def test_a_word_that_only_the_first_skills_have_is_not_taken_for_one_of_all() -> None:
    first = {f"whale{at:03}": "Feeds whales." for at in range(120)}
    rest = {f"bird{at:03}": "Feeds birds." for at in range(600)}
    skills = quick(**first, **rest)
    assert skills.search("whales and birds", 1, anything)[0].key == "/s/whale000/SKILL.md"
