"""MyCodeAgent: the project's `skills` folder, the last of equal names, and a cache that looks at each file."""

import os
import sys
import time

import pytest

import forking
from hosts.asking import codes, left, listening, metier, names, opened
from metier import SkillNotFound
from worlds import World


@pytest.mark.behaviour("M-001", "M-004", "M-054", "N-053")
def test_every_skill_below_the_projects_folder_is_listed_with_its_data(world: World) -> None:
    shallow = world.skill("skills/code-review", description="Review code quality and risks")
    deep = world.skill("skills/a/b/c/deep", description="Deep down.")
    inner = world.skill("skills/code-review/more/inner", description="Inside another.")
    os.utime(deep, ns=(1, 1_600_000_000_500_000_000))
    expected = [
        ("code-review", "Review code quality and risks", str(shallow), str(shallow.parent)),
        ("deep", "Deep down.", str(deep), str(deep.parent)),
        ("inner", "Inside another.", str(inner), str(inner.parent)),
    ]
    found = world.discover("mycodeagent", world.project / "skills")
    assert [(s.name, s.description, s.path, s.base_dir) for s in found] == expected
    assert found["deep"].mtime == 1_600_000_000.5
    listed = metier(world, "list", "--profile", "mycodeagent", cwd=world.project / "skills")["skills"]
    assert [(s["name"], s["description"], s["path"], s["base_dir"]) for s in listed] == expected
    shown = metier(world, "show", "deep", "--profile", "mycodeagent")
    assert shown["mtime"] == listed[1]["mtime"] == 1_600_000_000.5
    assert listed[0]["mtime"] == shallow.stat().st_mtime


@pytest.mark.behaviour("M-002", "M-003")
def test_no_other_folder_is_searched_and_nothing_fetched_installed_or_started(world: World) -> None:
    for where in ("~/skills", "~/.agents/skills", ".agents/skills", ".claude/skills", "../skills", "a/skills"):
        world.skill(f"{where}/foreign")
    world.skill("skills/own", source="https://example.invalid/probe.git", install="pip install probe")
    before = sorted(str(path) for path in world.project.rglob("*"))
    with listening() as heard:
        skills = world.discover("mycodeagent", world.project / "a")
        skills.refresh()
    assert names(skills) == ["own"]
    assert [root.path for root in skills.roots] == [f"{world.project}/skills"]
    assert (bool(opened(heard)), left(heard)) == (True, [])
    assert sorted(str(path) for path in world.project.rglob("*")) == before


@pytest.mark.behaviour("M-005", "M-011", "M-013", "M-054")
def test_a_skill_is_found_by_the_name_of_its_frontmatter_and_an_unknown_name_gives_nothing(world: World) -> None:
    path = world.skill("skills/Some_Folder", "one", model="large", license=["no", "text"], enabled=False, deep={"a": 1})
    world.skill("skills/build")
    world.skill("skills/bad", description="")
    skills = world.discover("mycodeagent")
    assert [(s.name, s.enabled, s.extra) for s in skills] == [("build", True, {}), ("one", True, {})]
    found = skills.get("one")
    assert found is not None
    assert (found.path, codes(skills, path)) == (str(path), [])
    assert [skills.get(name) for name in ("three", "bad", "", "ONE", "../build", "Some_Folder")] == [None] * 6
    with pytest.raises(SkillNotFound):
        skills["Some_Folder"]


@pytest.mark.behaviour("M-006", "M-042")
def test_listing_again_without_a_change_opens_no_skill_file(world: World) -> None:
    for n in range(5):
        world.skill(f"skills/group/skill-{n}")
    time.sleep(0.05)  # a file that has just been written may change again within one tick of the clock
    with listening() as first:
        skills = world.discover("mycodeagent")
    assert len(opened(first)) == 5
    before = list(skills)
    with listening() as again:
        assert list(skills) == before
        assert not skills.refresh()
        restarted = world.discover("mycodeagent")
    assert list(skills) == list(restarted) == before
    assert opened(again) == []


@pytest.mark.behaviour("M-014")
@pytest.mark.parametrize("reverse", [False, True])
def test_the_last_of_equal_names_in_path_order_counts(world: World, reverse: bool) -> None:
    for where in sorted(("skills/a/x", "skills/m", "skills/b/x/y"), reverse=reverse):
        world.skill(where, "same", description=f"From {where}.", body=f"BODY of {where}")
    listed = metier(world, "list", "--profile", "mycodeagent")
    assert [skill["description"] for skill in listed["skills"]] == ["From skills/m."]
    assert "BODY of skills/m" in world.discover("mycodeagent").session().call("Skill", {"name": "same"}).text
    assert [(d["code"], d["severity"], d["path"]) for d in listed["diagnostics"]] == [
        ("collision", "warning", str(world.project / f"skills/{loser}/SKILL.md")) for loser in ("a/x", "b/x/y")
    ]


PROGRAM = """
import logging, os, sys
from metier import Skills
logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
project, home = sys.argv[1:]
skills = Skills.discover(project, profile="mycodeagent", home=home)
session = skills.session()
for _ in range(3):
    session.call("Skill", {"name": "same"})
print("--", file=sys.stderr)
os.makedirs(f"{project}/skills/late")
open(f"{project}/skills/late/SKILL.md", "w").close()
skills.refresh()
"""


@pytest.mark.system
@pytest.mark.behaviour("M-008", "M-012", "M-014", "N-051", "N-052")
def test_skipped_and_duplicate_skills_are_logged_once_and_the_command_line_is_silent(world: World) -> None:
    loser = world.skill("skills/a", "same")
    winner = world.skill("skills/b", "same")
    broken = world.skill("skills/broken", text="---\nname: [broken\n---\n")
    nameless = world.skill("skills/nameless", text="---\ndescription: None.\n---\n")
    where = [str(world.project), str(world.home)]
    done = forking.run([sys.executable, "-c", PROGRAM, *where], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said, _, later = done.stderr.partition("--\n")
    lines = [line.removeprefix("WARNING metier.catalog ") for line in said.splitlines()]
    assert sorted(line.partition(": ")[0] for line in lines) == [str(loser), str(broken), str(nameless)]
    assert f"{loser}: skipped: {winner} has the same name, 'same', and is used instead" in lines
    assert f"{nameless}: skipped: `name` is missing" in lines
    assert later.count("WARNING") == later.count("skills/late/SKILL.md") == 1
    shell = [*forking.METIER, "list", "--all", "--profile", "mycodeagent"]
    env = {**os.environ, "HOME": str(world.home)}
    shown = forking.run(shell, cwd=world.project, env=env, capture_output=True, text=True)
    assert shown.returncode == 0
    assert "WARNING" not in shown.stderr
    assert "same name" not in shown.stderr
    assert (shown.stdout + shown.stderr).count("nameless/SKILL.md") == 1


@pytest.mark.behaviour("M-044")
@pytest.mark.parametrize("keep", ["nothing", "size", "mtime"])
def test_an_edit_deep_in_the_tree_shows_though_no_folder_changed(world: World, keep: str) -> None:
    path = world.skill("skills/a/b/c/deep", description="Before")
    world.skill("skills/other")
    time.sleep(0.05)
    skills = world.discover("mycodeagent")
    folders = [world.project / "skills", path.parent]
    before, status = [folder.stat().st_mtime_ns for folder in folders], path.stat()
    expected = "Behind" if keep == "size" else "Afterwards"
    path.write_text(path.read_text().replace("Before", expected))
    if keep == "mtime":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [folder.stat().st_mtime_ns for folder in folders] == before
    with listening() as heard:
        assert skills.refresh().changed == ("deep",)
    assert (opened(heard), skills["deep"].description) == ([str(path)], expected)
    listed = metier(world, "list", "--profile", "mycodeagent")["skills"]
    assert {s["name"]: s["description"] for s in listed}["deep"] == expected
