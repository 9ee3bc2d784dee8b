"""What is found in the reference files of a skill, which file a hit names, and what is left out."""

import json
from pathlib import Path

import pytest

from metier import Skills, limits
from metier.testing import write_skill
from worlds import World

SKILLS = ".agents/skills"
ASKED = "which okapi eats leaves at night?"


@pytest.fixture
def animals(world: World) -> Path:
    world.skill(f"{SKILLS}/animals", description="About animals.", body="Read the references.\n")
    world.skill(f"{SKILLS}/plants", description="About plants and leaves.")
    folder = world.project / SKILLS / "animals"
    (folder / "references").mkdir()
    (folder / "references" / "okapi.md").write_text("An okapi eats leaves, mostly at night. SECRET-MARKER.\n" * 5)
    (folder / "references" / "zebra.md").write_text("A zebra eats grass.\n" * 5)
    return folder


def found(skills: Skills, query: str) -> list[tuple[str, str]]:
    return [(hit.skill.name, hit.file) for hit in skills.search(query).results]


def test_a_hit_names_the_file_that_has_more_of_the_query_than_the_skill_itself(world: World, animals: Path) -> None:
    (animals / "references" / "overview.md").write_text("About animals.\n" * 9)
    skills = world.discover()
    assert found(skills, ASKED)[0] == ("animals", "references/okapi.md")
    assert found(skills, "does a zebra eat grass?")[0] == ("animals", "references/zebra.md")
    assert found(skills, "about animals") == [("animals", "")]
    result = skills.session().call("skill_search", {"query": ASKED})
    assert "- animals: About animals.\n  found in its file references/okapi.md\n" in result.text + "\n"
    assert result.data["results"][0]["file"] == "references/okapi.md"
    assert "SECRET-MARKER" not in result.text + json.dumps(result.data)


def test_a_written_new_or_deleted_reference_counts_after_the_next_scan(world: World, animals: Path) -> None:
    skills = world.discover()
    before = found(skills, ASKED)
    (animals / "references" / "zebra.md").write_text("A wombat digs burrows.\n" * 5)
    (animals / "notes.txt").write_text("A quokka smiles on selfies.\n" * 5)
    skills.refresh()
    assert found(skills, "wombat burrows") == [("animals", "references/zebra.md")]
    assert found(skills, "quokka selfies") == [("animals", "notes.txt")]
    assert found(skills, "zebra grass") == []
    (animals / "references" / "okapi.md").unlink()
    skills.refresh()
    assert found(skills, "okapi") == []
    (animals / "references" / "okapi.md").write_text("An okapi eats leaves, mostly at night. SECRET-MARKER.\n" * 5)
    (animals / "references" / "zebra.md").write_text("A zebra eats grass.\n" * 5)
    (animals / "notes.txt").unlink()
    skills.refresh()
    assert found(skills, ASKED) == before == found(world.discover(settings={"cache": False}), ASKED)


def test_a_file_counts_as_much_however_many_other_files_a_skill_has(world: World, animals: Path) -> None:
    skills = world.discover()
    before = skills.search("okapi").results[0].score
    for number in range(8):
        text = f"Herb {number} grows in the sun.\n" * 300 + "No okapi eats it.\n"
        (animals / "references" / f"plant-{number}.md").write_text(text)
    skills.refresh()
    hit = skills.search("okapi").results[0]
    assert (hit.skill.name, hit.score) == ("animals", before)
    (animals / "references" / "shy.md").write_text("The okapi is shy.\n" * 300)
    skills.refresh()
    assert skills.search("okapi").results[0].score > before


@pytest.mark.parametrize(
    "file", ["tests/wombat.md", "evals/wombat.md", ".hidden/wombat.md", "LICENSE.txt", "wombat.py", "inner/wombat.md"]
)
def test_what_does_not_describe_the_skill_is_left_out(world: World, animals: Path, file: str) -> None:
    (animals / file).parent.mkdir(exist_ok=True)
    (animals / file).write_text("A wombat digs burrows.\n" * 9)
    write_skill(animals / "inner", description="Something else.")
    assert ("animals", file) not in found(world.discover(), "wombat burrows")
    assert "animals" not in [name for name, _ in found(world.discover(), "wombat burrows")]


def test_a_link_to_a_file_outside_is_not_read(world: World, animals: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("A wombat digs burrows.\n" * 9)
    (animals / "references" / "secret.md").symlink_to(tmp_path / "secret.md")
    (animals / "more").symlink_to(tmp_path)
    assert found(world.discover(), "wombat burrows") == []


def test_files_text_and_entries_have_bounds(world: World, animals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INDEXED_CHARACTERS", 2_000)
    (animals / "references" / "a.md").write_text("filler " * 400 + "wombat")
    assert found(world.discover(), "wombat") == []
    assert found(world.discover(), "zebra grass") == []
    monkeypatch.undo()
    assert found(world.discover(settings={"cache": False}), "wombat") == [("animals", "references/a.md")]
    monkeypatch.setattr(limits, "INDEXED_ENTRIES", 3)
    assert found(world.discover(settings={"cache": False}), "zebra grass") == []
    monkeypatch.undo()
    monkeypatch.setattr(limits, "INDEXED_FILES", 1)
    assert found(world.discover(settings={"cache": False}), "zebra grass") == []
