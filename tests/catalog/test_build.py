"""How a catalog is built from what was found: collisions, copies, filters, modes, and the changes of a refresh."""

import json
import os
import subprocess
import sys
import time

import pytest

from metier import InvalidSkill, SkillNotFound, limits
from metier.hosts.trust import trust
from metier.values.skill import Changes, Mode
from worlds import World

SKILLS = ".agents/skills"


# --- collisions


@pytest.fixture
def rivals(world: World) -> World:
    """Three skills with the same name: two in folders of the project, one in the home folder."""
    world.skill(f"{SKILLS}/m/pdf", description="second")
    world.skill(f"{SKILLS}/b/pdf", description="first")
    world.skill("~/.agents/skills/pdf", description="mine")
    return world


@pytest.mark.parametrize(
    ("rule", "winner"),
    [("precedence", "first"), ("first", "first"), ("last", "second")],
)
def test_one_of_several_skills_of_a_name_wins_by_the_rule(rivals: World, rule: str, winner: str) -> None:
    skills = rivals.discover(settings={"collisions": {"rule": rule}})
    assert [(s.name, s.description) for s in skills] == [("pdf", winner)]
    assert {entry.winner.description for entry in skills.shadowed} == {winner}
    assert [d.code for d in skills.diagnostics] == ["collision", "collision"]
    assert all(skills["pdf"].path in d.message and d.path in d.hint for d in skills.diagnostics)
    assert skills.counts.as_dict() == {"found": 3, "loaded": 1, "shadowed": 2, "skipped": 0, "errors": 0}


def test_a_name_is_ambiguous_only_among_skills_that_are_on(rivals: World) -> None:
    skills = rivals.discover(settings={"collisions": {"rule": "ambiguous"}})
    first, *others = list(skills)
    for other in others:
        skills.disable(other.path)
    assert skills["pdf"].path == first.path


@pytest.mark.parametrize(("copies", "collisions"), [("content", 0), ("real-path", 1)])
def test_copies_of_the_same_content_collapse_without_a_word(world: World, copies: str, collisions: int) -> None:
    world.skill(f"{SKILLS}/pdf")
    world.skill("~/.agents/skills/pdf")
    skills = world.discover(settings={"collisions": {"copies": copies}})
    assert len(skills) == 1
    assert [entry.identical for entry in skills.shadowed] == [copies == "content"]
    assert len(skills.diagnostics) == collisions


def test_copies_that_differ_in_the_body_alone_do_collide(world: World) -> None:
    world.skill(f"{SKILLS}/pdf", body="one")
    world.skill("~/.agents/skills/pdf", body="two")
    assert [d.code for d in world.discover().diagnostics] == ["collision"]


# --- filters, order, limits


@pytest.mark.parametrize(
    ("filters", "kept", "reasons"),
    [
        ({}, ["pdf", "pdf-forms", "xlsx"], []),
        ({"include": ["pdf*"]}, ["pdf", "pdf-forms"], ["not-included"]),
        ({"ignore": ["*-forms", "x*"]}, ["pdf"], ["ignored", "ignored"]),
        ({"include": ["pdf*"], "ignore": ["pdf"]}, ["pdf-forms"], ["ignored", "not-included"]),
        ({"include": ["PDF"]}, [], ["not-included"] * 3),
        ({"include": ["pd[e-g]"]}, ["pdf"], ["not-included"] * 2),
    ],
)
def test_what_a_filter_leaves_out_is_skipped_with_its_reason(
    world: World, filters: dict[str, list[str]], kept: list[str], reasons: list[str]
) -> None:
    for name in ("xlsx", "pdf", "pdf-forms"):
        world.skill(f"{SKILLS}/{name}")
    skills = world.discover(settings={"filters": filters})
    assert [skill.name for skill in skills] == kept
    assert [entry.reason for entry in skills.skipped] == reasons
    assert skills.counts.found == 3


def test_a_filtered_skill_is_not_found_and_the_error_says_why(world: World) -> None:
    world.skill(f"{SKILLS}/pdf")
    skills = world.discover(settings={"filters": {"ignore": ["pdf"]}})
    with pytest.raises(SkillNotFound, match="left out: the name matches pdf"):
        skills["pdf"]


def test_more_skills_than_the_limit_are_reported_and_counted(world: World) -> None:
    for number in range(6):
        world.skill(f"{SKILLS}/s{number}")
    skills = world.discover(settings={"catalog": {"max_skills": 4}})
    assert [skill.name for skill in skills] == ["s0", "s1", "s2", "s3"]
    assert [entry.reason for entry in skills.skipped] == ["too-many", "too-many"]
    assert [d.code for d in skills.diagnostics] == ["too-many-skills"]
    assert skills.counts.found == 6


@pytest.mark.parametrize(
    ("order", "names"),
    [("name", ["B", "a", "c"]), ("folded-name", ["a", "B", "c"])],
)
def test_the_order_is_the_one_of_the_profile(world: World, order: str, names: list[str]) -> None:
    for name in ("c", "a", "B"):
        world.skill(f"{SKILLS}/{name}")
    assert [skill.name for skill in world.discover(settings={"catalog": {"order": order}})] == names


def test_a_wrong_name_is_answered_with_close_ones_and_a_broken_skill_with_its_errors(world: World) -> None:
    world.skill(f"{SKILLS}/release-notes")
    world.skill(f"{SKILLS}/broken", text="no fence")
    skills = world.discover()
    with pytest.raises(SkillNotFound, match="did you mean release-notes") as missing:
        skills["relese-notes"]
    assert missing.value.close == ("release-notes",)
    assert missing.value.available == ("release-notes",)
    for ask in (lambda: skills["broken"], lambda: skills.at(f"{SKILLS}/broken")):
        with pytest.raises(InvalidSkill) as invalid:
            ask()
        assert [d.code for d in invalid.value.diagnostics] == ["frontmatter-missing"]


def test_a_catalog_is_a_collection(world: World) -> None:
    for name in ("b", "a"):
        world.skill(f"{SKILLS}/{name}")
    skills = world.discover()
    assert ("a" in skills, "x" in skills, len(skills), [s.name for s in skills]) == (True, False, 2, ["a", "b"])
    assert skills.get("x") is None
    assert skills["a"].id == world.discover()["a"].id != skills["b"].id


# --- refresh


def test_a_refresh_keeps_what_did_not_change_and_sees_what_did(world: World) -> None:
    for name in "abc":
        world.skill(f"{SKILLS}/{name}")
    skills = world.discover()
    assert skills["a"].foreign
    time.sleep(limits.RACY_WINDOW_NS / 1e9 * 2)  # files that were just written are read again
    skills.refresh()
    world.skill(f"{SKILLS}/b", description="Another text for b.")
    skills.refresh()
    before = {skill.name: skill for skill in skills}
    world.skill(f"{SKILLS}/b", description="A third text for b.")
    skills.refresh()
    assert [skill.name for skill in skills if skill is before[skill.name]] == ["a", "c"]
    assert skills["b"].description == "A third text for b."
    trust(skills.settings.config_folder, str(world.project))
    skills.refresh()
    assert not any(skill.foreign for skill in skills)


def test_a_refresh_says_what_was_added_removed_and_changed(world: World) -> None:
    for name in ("kept", "gone", "edited", "same-size"):
        world.skill(f"{SKILLS}/{name}", description="x 1")
    skills = world.discover()
    assert not skills.refresh()
    world.skill(f"{SKILLS}/new")
    (world.project / SKILLS / "gone" / "SKILL.md").unlink()
    world.skill(f"{SKILLS}/edited", description="longer than before")
    world.skill(f"{SKILLS}/same-size", description="x 2")
    changes = skills.refresh()
    assert changes == Changes(("new",), ("gone",), ("edited", "same-size"))
    assert str(changes) == "+1 / -1 / ~2"
    assert skills["same-size"].description == "x 2"
    assert not skills.refresh()


# --- switches that last


def test_the_users_word_outranks_the_projects(world: World) -> None:
    world.skill(f"{SKILLS}/pdf")
    skills = world.discover()
    skills.enable("pdf", level="project")
    skills.disable("pdf")
    assert not world.discover()["pdf"].enabled
    skills.enable("pdf")
    skills.disable("pdf", level="project")
    assert world.discover()["pdf"].enabled


def test_a_projects_switches_move_with_the_project(world: World) -> None:
    world.skill(f"{SKILLS}/pdf")
    world.discover().disable("pdf", level="project")
    moved = world.project.rename(world.project.with_name("moved"))
    assert not world.discover(cwd=moved)["pdf"].enabled


def test_a_disabled_winner_uncovers_the_next_in_line(rivals: World) -> None:
    skills = rivals.discover()
    order = ["first", "second", "mine"]
    for expected in order:
        assert skills["pdf"].description == expected
        skills.disable("pdf")
    assert not skills["pdf"].enabled
    skills.enable(f"{SKILLS}/m/pdf")
    assert skills["pdf"].description == "second"
    assert skills.counts.found == 3


@pytest.mark.parametrize("mode", ["pinned", "auto", "name-only", "manual", "off"])
def test_a_mode_decides_who_sees_a_skill(world: World, mode: Mode) -> None:
    world.skill(f"{SKILLS}/pdf")
    skills = world.discover()
    assert skills.set_mode("pdf", mode).mode == mode
    skill = world.discover()["pdf"]
    assert (skill.mode, skill.enabled, skill.visible) == (mode, mode != "off", mode not in ("off", "manual"))


BROKEN = ["", "[" * 200_000, "{", "[]", '{"modes": 3}', '{"modes": [1]}', "null", '"text"', "\x00", '{"other": {}}']


@pytest.mark.parametrize("content", BROKEN)
@pytest.mark.parametrize("level", ["user", "project"])
def test_a_broken_file_of_switches_is_reported_and_does_not_count(world: World, content: str, level: str) -> None:
    world.skill(f"{SKILLS}/pdf")
    base = world.home / ".config/metier" if level == "user" else world.project / ".metier"
    base.mkdir(parents=True)
    (base / "skills.json").write_text(content)
    skills = world.discover()
    assert skills["pdf"].enabled
    assert [(d.code, d.severity, d.path) for d in skills.diagnostics] == [
        ("state-invalid", "warning", str(base / "skills.json"))
    ]
    skills.disable("pdf", level="user" if level == "user" else "project")
    assert not world.discover()["pdf"].enabled


def test_unknown_modes_and_paths_in_a_file_of_switches_mean_nothing(world: World) -> None:
    path = world.skill(f"{SKILLS}/pdf")
    (world.home / ".config/metier").mkdir(parents=True)
    modes = {str(path): "loud", "/nowhere": "off", "x": None}
    (world.home / ".config/metier/skills.json").write_text(json.dumps({"modes": modes}))
    skills = world.discover()
    assert (skills["pdf"].mode, skills.diagnostics) == ("auto", ())


@pytest.mark.system
def test_a_pipe_in_place_of_the_switches_blocks_nobody(world: World) -> None:
    world.skill(f"{SKILLS}/pdf")
    (world.project / ".metier").mkdir()
    os.mkfifo(world.project / ".metier" / "skills.json")
    code = f"from metier import Skills; Skills.discover({str(world.project)!r}, home={str(world.home)!r})"
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 0


def test_a_skill_with_an_odd_path_can_be_switched_too(world: World) -> None:
    folder = os.fsdecode(b"odd-\xff")
    world.skill(f"{SKILLS}/{folder}/pdf")
    world.skill(f"{SKILLS}/xlsx")
    skills = world.discover()
    skills.disable("pdf")
    skills.disable("xlsx")
    assert [skill.enabled for skill in world.discover()] == [False, False]
