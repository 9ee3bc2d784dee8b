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


@pytest.mark.behaviour("M-001")
@pytest.mark.parametrize("name", ["build", "dist"])
def test_a_skill_may_bear_the_name_of_a_folder_that_other_tools_ignore(world: World, name: str) -> None:
    world.skill(f"skills/{name}")
    assert names(world.discover("mycodeagent")) == [name]


@pytest.mark.behaviour("M-002")
@pytest.mark.parametrize(
    "where", ["~/skills", "~/.agents/skills", ".agents/skills", ".claude/skills", "../skills", "a/skills"]
)
def test_no_other_folder_is_searched(world: World, where: str) -> None:
    world.skill(f"{where}/foreign")
    world.skill("skills/own")
    (world.project / "a").mkdir(exist_ok=True)
    skills = world.discover("mycodeagent", world.project / "a")
    assert names(skills) == ["own"]
    assert [root.path for root in skills.roots] == [f"{world.project}/skills"]


@pytest.mark.behaviour("M-003")
def test_nothing_is_fetched_installed_or_started(world: World) -> None:
    world.skill("skills/probe", source="https://example.invalid/probe.git", install="pip install probe")
    before = sorted(str(path) for path in world.project.rglob("*"))
    with listening() as heard:
        skills = world.discover("mycodeagent")
        skills.refresh()
    assert opened(heard) != []
    assert left(heard) == []
    assert sorted(str(path) for path in world.project.rglob("*")) == before


@pytest.mark.behaviour("M-005", "M-054")
def test_a_skill_is_found_by_its_name_and_an_unknown_name_gives_nothing(world: World) -> None:
    world.skill("skills/a-folder", "one")
    world.skill("skills/two")
    world.skill("skills/bad", description="")
    skills = world.discover("mycodeagent")
    assert names(skills) == ["one", "two"]
    found = skills.get("one")
    assert found is not None
    assert found.dir == str(world.project / "skills/a-folder")
    assert [skills.get(name) for name in ("three", "bad", "", "ONE", "../two")] == [None] * 5


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


@pytest.mark.behaviour("M-007", "M-054")
@pytest.mark.parametrize(
    ("text", "description"),
    [
        (
            "---\nname: probe\ndescription: Review code quality and risks\n---\n# Body\n",
            "Review code quality and risks",
        ),
        ("---\r\nname: probe\r\ndescription: Windows lines\r\n---\r\nBody\r\n", "Windows lines"),
        ("---\ndescription: a --- b\nname: probe\n---\n---\nname: other\n---\n", "a --- b"),
        ("---\nname: probe\ndescription: 'Quoted: yes'\n---", "Quoted: yes"),
        ("---\nname: probe\ndescription: >\n  Folded\n  text\n---\n", "Folded text"),
        ("---\nname: probe\ndescription: Owner\nmetadata:\n  name: nested\n---\n", "Owner"),
        ("---\nname: probe\ndescription: 2024-01-01\n---\n", "2024-01-01"),
        ("---\n# A note\nname: probe\n\ndescription: use this when: x\n---\n", "use this when: x"),
        ("---\nname: probe\ndescription: it's: so # simple\nmodel: a: b\n---\n", "it's: so # simple"),
    ],
)
def test_frontmatter_is_read_as_yaml_between_fences(world: World, text: str, description: str) -> None:
    world.skill("skills/probe", text=text)
    assert [(s.name, s.description) for s in world.discover("mycodeagent")] == [("probe", description)]


BAD = {
    "no-name": "---\ndescription: No name.\n---\n",
    "empty-name": "---\nname: ''\ndescription: No name.\n---\n",
    "no-description": "---\nname: no-description\n---\n",
    "empty-description": "---\nname: empty-description\ndescription:\n---\n",
    "blank-description": '---\nname: blank-description\ndescription: "  \\t "\n---\n',
    "no-fences": "name: no-fences\ndescription: None.\n",
    "unclosed": "---\nname: unclosed\ndescription: None.\n",
    "broken": "---\nname: broken\ndescription: 'open\n---\n",
    "not-simple": "---\nname: not-simple\ndescription: use: this\n  when: x\n---\n",
    "no-yaml": "---\n: [}\n---\n",
}


@pytest.mark.behaviour("M-008", "M-010", "M-012", "M-054")
@pytest.mark.parametrize(("folder", "text"), BAD.items())
def test_a_file_that_does_not_parse_or_lacks_a_field_is_skipped_and_reported(
    world: World, folder: str, text: str
) -> None:
    path = world.skill(f"skills/{folder}", text=text)
    world.skill("skills/good")
    skills = world.discover("mycodeagent")
    assert names(skills) == ["good"]
    assert len(codes(skills, path, "warning", "error")) >= 1
    with pytest.raises(Exception, match=folder):
        skills[folder]


NAMES = {
    **dict.fromkeys(("a", "7", "code-review", "x" * 100, "-".join("abcdefgh" * 12)), True),
    **dict.fromkeys(("Code_Review", "-a", "a-", "a--b", "a b", "Ä", "é", "a.b", "a/b"), False),
}


@pytest.mark.behaviour("M-009", "M-054")
@pytest.mark.parametrize(("name", "good"), NAMES.items())
def test_a_name_is_kebab_case_of_any_length(world: World, name: str, good: bool) -> None:
    path = world.skill("skills/probe", name)
    skills = world.discover("mycodeagent")
    assert names(skills) == ([name] if good else [])
    assert ("name-invalid" in codes(skills, path)) is not good


@pytest.mark.behaviour("M-011")
def test_a_skill_is_known_by_its_frontmatter_and_not_by_its_folder(world: World) -> None:
    path = world.skill("skills/Some_Folder", "code-review")
    skills = world.discover("mycodeagent")
    assert skills["code-review"].path == str(path)
    assert "Some_Folder" not in skills
    with pytest.raises(SkillNotFound):
        skills["Some_Folder"]
    assert codes(skills, path) == []


@pytest.mark.behaviour("M-013")
def test_other_keys_are_ignored(world: World) -> None:
    world.skill("skills/probe", model="large", license=["no", "text"], enabled=False, deep={"a": [1, {"b": None}]})
    skills = world.discover("mycodeagent")
    assert [(s.name, s.enabled, s.extra) for s in skills] == [("probe", True, {})]
    assert skills.diagnostics == ()


@pytest.mark.behaviour("N-054")
def test_a_colon_in_a_plain_value_is_reported_and_the_skill_loads(world: World) -> None:
    path = world.skill("skills/probe", text="---\nname: probe\ndescription: use this when: x\n---\nBODY\n")
    answer = metier(world, "session", "call", "Skill", '{"name": "probe"}', "--profile", "mycodeagent")
    assert answer["data"]["content"].endswith("\n\nBODY\n")
    (note,) = metier(world, "show", "probe", "--profile", "mycodeagent")["diagnostics"]
    assert (note["code"], note["severity"], note["path"], note["line"]) == ("yaml-repaired", "warning", str(path), 3)


@pytest.mark.behaviour("M-014")
@pytest.mark.parametrize("order", [["skills/a/x", "skills/b/x"], ["skills/b/x", "skills/a/x"]])
def test_the_last_of_equal_names_in_path_order_counts(world: World, order: list[str]) -> None:
    for where in order:
        world.skill(where, "same", description=f"From {where}.", body=f"BODY of {where}")
    listed = metier(world, "list", "--profile", "mycodeagent")
    assert [skill["description"] for skill in listed["skills"]] == ["From skills/b/x."]
    answer = world.discover("mycodeagent").session().call("Skill", {"name": "same"})
    assert "BODY of skills/b/x" in answer.text
    (warning,) = listed["diagnostics"]
    assert (warning["code"], warning["severity"]) == ("collision", "warning")
    assert warning["path"] == str(world.project / "skills/a/x/SKILL.md")


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


@pytest.mark.behaviour("M-014")
def test_the_last_counts_also_where_paths_and_depths_mix(world: World) -> None:
    for where in ("skills/same", "skills/z/y/x", "skills/m"):
        world.skill(where, "same")
    skills = world.discover("mycodeagent")
    assert skills["same"].dir == str(world.project / "skills/z/y/x")
    assert [d.code for d in skills.diagnostics] == ["collision"] * 2


@pytest.mark.behaviour("M-044")
@pytest.mark.parametrize("keep", ["nothing", "size", "mtime"])
def test_an_edit_deep_in_the_tree_shows_though_no_folder_changed(world: World, keep: str) -> None:
    path = world.skill("skills/a/b/c/deep", description="Before")
    world.skill("skills/other")
    time.sleep(0.05)
    skills = world.discover("mycodeagent")
    folders = [world.project / "skills", path.parent]
    before = [folder.stat().st_mtime_ns for folder in folders]
    status = path.stat()
    path.write_text(path.read_text().replace("Before", "Behind" if keep == "size" else "Afterwards"))
    if keep == "mtime":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [folder.stat().st_mtime_ns for folder in folders] == before
    with listening() as heard:
        assert skills.refresh().changed == ("deep",)
    assert opened(heard) == [str(path)]
    expected = "Behind" if keep == "size" else "Afterwards"
    assert skills["deep"].description == expected
    listed = metier(world, "list", "--profile", "mycodeagent")["skills"]
    assert {s["name"]: s["description"] for s in listed}["deep"] == expected


def test_a_refresh_says_what_came_and_went(world: World) -> None:
    """What M-043 asks of each call, without the call."""
    world.skill("skills/stays")
    gone = world.skill("skills/a/goes")
    skills = world.discover("mycodeagent")
    gone.unlink()
    world.skill("skills/b/comes")
    changes = skills.refresh()
    assert (changes.added, changes.removed, changes.changed) == (("comes",), ("goes",), ())
    assert names(skills) == ["comes", "stays"]


def test_a_skill_file_that_leads_out_of_the_project_is_left_out(world: World) -> None:
    """The catalog's part of M-047."""
    world.skill("~/secrets/inside")
    for name, target in (("out", world.home / "secrets/inside/SKILL.md"), ("in", world.skill("kept/in"))):
        (world.project / "skills" / name).mkdir(parents=True)
        (world.project / "skills" / name / "SKILL.md").symlink_to(target)
    skills = world.discover("mycodeagent")
    assert names(skills) == ["in"]
    assert [(s.name, s.reason) for s in skills.skipped] == [("out", "outside")]
