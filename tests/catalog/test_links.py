"""Links in skill roots: out of a project only if it is trusted, never to whole trees, and no root without a bound."""

import json
import os
from pathlib import Path

import pytest

from hosts.asking import metier
from limited import open_folder, run_as_nobody
from metier import Skills
from metier.hosts.profiles import BUILT_IN
from metier.hosts.roots import usual
from metier.record.store import open_store
from metier.testing import write_skill
from worlds import World

__all__ = ["open_folder"]
SKILLS = ".agents/skills"


def names(skills: Skills) -> list[str]:
    return [skill.name for skill in skills]


def refused(skills: Skills) -> list[str]:
    return [d.path for d in skills.diagnostics if d.code == "link-not-followed"]


def project_root(world: World, profile: str) -> Path:
    """A folder in which this host looks for the skills of a project."""
    skills = world.discover(profile, settings={"enabled": True})
    folder, _ = usual(skills.profile)
    root = world.project / folder
    root.mkdir(parents=True, exist_ok=True)
    return root


@pytest.mark.parametrize("profile", BUILT_IN)
@pytest.mark.parametrize(
    "target", ["/", "..", "~", "~/src/other/.agents/skills", "~/src/other", "~/.agents/skills/mine"]
)
def test_no_link_of_an_untrusted_project_leaves_it(world: World, profile: str, target: str) -> None:
    root = project_root(world, profile)
    world.skill("~/src/other/.agents/skills/theirs")
    (world.home / "src/other/.git").mkdir()
    mine = world.skill("~/.agents/skills/mine", body="MINE")
    aim = target.replace("~", str(world.home)) if target != ".." else str(world.project.parent)
    (root / "evil").symlink_to(aim)
    (root / "file").mkdir()
    (root / "file/SKILL.md").symlink_to(mine)
    skills = world.discover(profile, settings={"enabled": True})
    inside = f"{world.project}/"
    assert [skill.path for skill in skills if skill.path.startswith(inside)] == []
    assert refused(skills) == [str(root / "evil")]
    assert str(root / "file/SKILL.md") in [skipped.path for skipped in skills.skipped]


@pytest.mark.parametrize("profile", BUILT_IN)
def test_a_root_of_an_untrusted_project_that_is_itself_a_link_out_is_not_searched(world: World, profile: str) -> None:
    root = project_root(world, profile)
    root.rmdir()
    world.skill("~/src/other/.agents/skills/theirs")
    root.symlink_to(world.home / "src/other/.agents/skills")
    skills = world.discover(profile, settings={"enabled": True})
    assert names(skills) == []
    assert str(root) in refused(skills)


@pytest.mark.system
def test_a_trusted_project_may_link_out_as_its_profile_says(world: World, tmp_path: Path) -> None:
    root = world.project / SKILLS
    root.mkdir(parents=True)
    write_skill(tmp_path / "shared/one")
    (root / "one").symlink_to(tmp_path / "shared/one")
    assert metier(world, "list")["skills"] == []
    hints = [d["hint"] for d in metier(world, "doctor")["diagnostics"] if d["code"] == "link-not-followed"]
    assert "metier trust" in str(hints)
    metier(world, "trust")
    assert [skill["name"] for skill in metier(world, "list")["skills"]] == ["one"]
    assert names(world.discover("codelia")) == [], "a profile that follows no links follows none here"


def test_links_that_stay_in_the_project_are_followed(world: World) -> None:
    world.skill("vendor/pack/skills/one")
    (world.project / "vendor/pack/.git").write_text("gitdir: ../../.git/modules/pack\n")  # a submodule
    root = world.project / SKILLS
    root.mkdir(parents=True)
    (root / "one").symlink_to("../../vendor/pack/skills/one")
    assert names(world.discover()) == ["one"]


@pytest.mark.system
@pytest.mark.parametrize("aim", ["..", ".", "/"])
def test_the_hint_for_a_link_to_a_folder_around_the_root_is_one_that_helps(world: World, aim: str) -> None:
    """Trust would not help: such a link is never followed."""
    behind = world.skill("behind")
    root = world.project / SKILLS
    root.mkdir(parents=True)
    around = (world.project / aim).resolve()
    (root / "link").symlink_to(around)
    (note,) = (note for note in metier(world, "doctor")["diagnostics"] if note["code"] == "link-not-followed")
    assert (note["path"], str(around) in note["message"]) == (str(root / "link"), True)
    metier(world, "trust")
    assert metier(world, "list")["skills"] == []
    assert note in metier(world, "doctor")["diagnostics"]
    assert "the folder of one skill" in note["hint"]
    (root / "link").unlink()
    (root / "link").symlink_to(behind.parent)
    assert [skill["name"] for skill in metier(world, "list")["skills"]] == ["behind"]


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_link_that_the_user_may_not_follow_is_told(open_folder: Path) -> None:
    write_skill(open_folder / "closed/mine")
    (open_folder / "skills").mkdir()
    (open_folder / "skills/link").symlink_to(open_folder / "closed/mine")
    (open_folder / "skills/nowhere").symlink_to(open_folder / "gone")
    (open_folder / "closed").chmod(0o700)
    code = """
skills = metier.Skills.discover(sys.argv[1], roots=["skills"], home=sys.argv[1])
print(json.dumps([[note.code, note.path, note.message] for note in skills.diagnostics]))
"""
    done = run_as_nobody(code, str(open_folder))
    assert done.returncode == 0, done.stderr.decode()
    (note,) = json.loads(done.stdout)
    message = "the link was not followed: Permission denied"
    assert note == ["link-not-followed", str(open_folder / "skills/link"), message]


# --- the user's own roots ---


@pytest.mark.parametrize("profile", ["standard", "omp", "claude-code", "codex", "opencode", "gemini-cli"])
def test_the_user_links_single_skills_from_anywhere(world: World, profile: str, tmp_path: Path) -> None:
    _, personal = usual(world.discover(profile).profile)
    root = world.home / personal.removeprefix("~/")
    root.mkdir(parents=True)
    for place in ("src/foo", "src/clone/.agents/skills/bar"):
        world.skill(f"~/{place}")
    (world.home / "src/foo/.git").mkdir()
    (world.home / "src/clone/.git").mkdir()
    write_skill(tmp_path / "opt/baz")
    for name, aim in (("foo", "src/foo"), ("bar", "src/clone/.agents/skills/bar"), ("baz", str(tmp_path / "opt/baz"))):
        (root / name).symlink_to(world.home / aim)
    assert sorted(names(world.discover(profile))) == ["bar", "baz", "foo"]


def test_the_user_links_a_collection_and_the_search_stays_out_of_projects_behind_it(world: World) -> None:
    world.skill("~/src/pack/skills/one")
    world.skill("~/src/pack/skills/vendor/.agents/skills/theirs")
    (world.home / "src/pack/.git").mkdir()
    (world.home / "src/pack/skills/vendor/.git").mkdir()
    root = world.home / SKILLS
    root.mkdir(parents=True)
    (root / "pack").symlink_to(world.home / "src/pack/skills")
    skills = world.discover()
    assert names(skills) == ["one"]
    assert refused(skills) == [str(root / "pack/vendor")]


@pytest.mark.parametrize(
    "aim", ["/", "~", "~/.agents", "~/src/other/.agents/skills", "~/src/other/.agents/skills/group"]
)
def test_no_link_brings_in_a_whole_tree_or_the_skills_of_another_project(world: World, aim: str) -> None:
    world.skill("~/src/other/.agents/skills/group/theirs")
    (world.home / "src/other/.git").mkdir()
    world.skill(f"~/{SKILLS}/mine")
    (world.home / SKILLS / "evil").symlink_to(aim.replace("~", str(world.home)))
    skills = world.discover()
    assert names(skills) == ["mine"]
    assert refused(skills) == [str(world.home / SKILLS / "evil")]


def test_one_client_may_link_to_the_skills_of_another_one(world: World) -> None:
    world.skill("~/.claude/skills/one")
    root = world.home / SKILLS
    root.mkdir(parents=True)
    (root / "all").symlink_to(world.home / ".claude/skills")
    assert names(world.discover()) == ["one"]


# --- the bound ---


def test_a_root_with_too_many_skills_stops_at_its_bound_and_the_report_says_what_to_do(world: World) -> None:
    for number in range(30):
        world.skill(f"{SKILLS}/s{number:02}")
    world.skill("~/.agents/skills/mine")
    skills = world.discover(settings={"discovery": {"max_skills": 20}})
    assert names(skills) == ["mine", *(f"s{number:02}" for number in range(20))], "another root has its own bound"
    (note,) = skills.diagnostics
    assert (note.code, note.severity, note.path) == ("bound-reached", "warning", str(world.project / SKILLS))
    assert str(world.project / SKILLS) in note.message
    assert "20 skills" in note.message
    assert "discovery.max_skills" in note.hint
    again = world.discover(settings={"discovery": {"max_skills": 30}})
    assert (len(again), again.diagnostics) == (31, ())


def test_broken_files_count_for_the_bound(world: World) -> None:
    for number in range(30):
        world.skill(f"{SKILLS}/s{number:02}", text="nothing")
    skills = world.discover(settings={"discovery": {"max_skills": 20}})
    assert skills.counts.found == 20


@pytest.mark.system
def test_a_very_large_catalog_loads_and_its_record_replays(world: World) -> None:
    """6,000 skills, of which 3,000 lose their names: more collisions than one event of a record can hold."""
    text = world.skill("~/template", text="---\ndescription: One of many.\n---\nBODY-MARKER\n")
    for root in (world.project / SKILLS, world.home / SKILLS):
        root.mkdir(parents=True)
        for number in range(3_000):
            folder = root / f"{number:05}-{'x' * 180}"
            folder.mkdir()
            os.link(text, folder / "SKILL.md")
    name = f"00007-{'x' * 180}"
    store = str(world.home / "events.db")
    loaded = metier(world, "load", name, "--session", "big", "--store", store)
    assert "BODY-MARKER" in loaded["text"]
    with open_store(store) as opened:
        events = opened.read("big", "big")
    (updated,) = [event for event in events if event["type"] == "skill_catalog_updated"]
    assert (updated["count"], updated["collided"]) == (3_000, 3_000)
    assert 0 < len(updated["collisions"]) < 1_000
    assert max(len(json.dumps(event)) for event in events) < 1_000_000
    assert metier(world, "replay", "big", "--store", store)["differences"] == []
