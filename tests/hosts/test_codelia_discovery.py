"""Codelia: which files become its catalog, which are refused and why, and what an entry looks like."""

import hashlib
import os
import random
import shutil
from pathlib import Path

import pytest

from hosts.asking import metier, names
from metier import AmbiguousSkill, SkillNotFound
from worlds import World


@pytest.mark.behaviour("C-001", "C-002", "C-003", "C-006")
def test_every_folder_from_the_root_down_to_the_working_directory_and_the_users_are_searched(world: World) -> None:
    repo = (".agents/skills/at-root", "a/.agents/skills/one/two/three/between", "a/b/.agents/skills/at-cwd")
    inside = ("a/b/.agents/skills/at-cwd/deeper/inside-a-skill", ".agents/skills/build", ".agents/skills/dist")
    user = ("~/.agents/skills/mine", "~/.agents/skills/group/deep")
    for where in (*repo, *inside, *user):
        world.skill(where)
    extra = world.skill("~/elsewhere/extra").parent.parent
    listed = metier(world, "list", "--profile", "codelia", "--skills", str(extra), cwd=world.project / "a/b")
    expected = {where.rpartition("/")[2]: "user" if where in user else "repo" for where in (*repo, *inside, *user)}
    assert {skill["name"]: skill["scope"] for skill in listed["skills"]} == {**expected, "extra": "repo"}
    assert {root["scope"] for root in listed["roots"]} == {"repo", "user"}


@pytest.mark.behaviour("C-004", "C-005", "C-013")
def test_nothing_beside_the_chain_is_searched_and_no_other_file_is_a_skill(world: World) -> None:
    world.skill("../.agents/skills/above-the-root")
    world.skill("a/sibling/.agents/skills/beside")
    world.skill("a/b/below/.agents/skills/below")
    world.skill("a/b/.codelia/skills/other-folder")
    world.skill("skills/bare")
    world.skill("a/b/.agents/skills/here", files={"references/more.md": "---\nname: more\ndescription: No.\n---\n"})
    (world.project / ".agents/skills/notes").mkdir(parents=True)
    (world.project / ".agents/skills/notes/README.md").write_text("---\nname: notes\ndescription: No.\n---\n")
    foreign = [world.skill(f"{base}.claude/skills/foreign") for base in ("", "~/")]
    skills = world.discover("codelia", world.project / "a/b")
    assert (names(skills), skills.counts.found) == (["here"], 1)
    with pytest.raises(SkillNotFound):
        skills["foreign"]
    for path in foreign:
        with pytest.raises(SkillNotFound):
            skills.at(path)
        assert "foreign" in metier(world, "show", str(path), "--profile", "codelia", code=1)


LEVELS = ("", "a/", "a/b/", "a/b/c/")


ROOT, MARKERS = "CODELIA_AGENTS_ROOT", "CODELIA_AGENTS_MARKERS"
ROOTS: list[tuple[tuple[str, ...], dict[str, str], int]] = [
    # the markers that there are, the variables, and the first level that counts
    (("a/.codelia", ".git"), {}, 1),
    (("a/.git", ".git"), {}, 1),
    (("a/.jj", ".git"), {}, 1),
    (("a/b/c/.codelia", ".git"), {}, 3),
    (("a/b/c/.jj", ".git"), {}, 3),
    ((".git", "a/b/c/.codelia"), {ROOT: "a"}, 1),
    ((".hg", "a/b/.git"), {MARKERS: ".hg"}, 0),
    ((".hg", "a/b/.git"), {MARKERS: ".hg,.git"}, 2),
    ((".hg", "a/b/.git"), {MARKERS: " .other , .hg "}, 0),
    ((), {}, 3),
]


@pytest.mark.behaviour("C-008", "C-009", "C-010", "C-011")
@pytest.mark.parametrize(("markers", "env", "first"), ROOTS)
def test_the_root_is_the_one_of_the_variable_else_the_nearest_folder_with_a_marker_else_the_working_directory(
    world: World, markers: tuple[str, ...], env: dict[str, str], first: int
) -> None:
    shutil.rmtree(world.project / ".git")
    for level, where in enumerate(LEVELS):
        world.skill(f"{where}.agents/skills/level-{level}")
    for number, marker in enumerate(markers):
        (world.project / marker).mkdir() if number else (world.project / marker).touch()  # a file is a marker, too
    env = {key: str(world.project / value) if key == ROOT else value for key, value in env.items()}
    skills = world.discover("codelia", world.project / "a/b/c", env=env)
    assert names(skills) == [f"level-{level}" for level in range(first, 4)]
    roots = [f"{world.project}/{where}.agents/skills" for where in reversed(LEVELS[first:])]
    assert sorted(root.path for root in skills.roots) == sorted([*roots, f"{world.home}/.agents/skills"])


@pytest.mark.behaviour("C-014")
def test_a_linked_folder_is_not_followed_and_a_linked_file_left_out(world: World) -> None:
    for name in ("behind", "group/further", "probe"):
        world.skill(f"elsewhere/{name}")
    folder = world.skill(".agents/skills/real").parent.parent
    for name in ("behind", "group"):
        (folder / name).symlink_to(world.project / "elsewhere" / name)
    (folder / "probe").mkdir()
    (folder / "probe/SKILL.md").symlink_to(world.project / "elsewhere/probe/SKILL.md")
    skills = world.discover("codelia")
    assert names(skills) == ["real"]
    assert {(s.path, s.reason) for s in skills.skipped} >= {(str(folder / "probe/SKILL.md"), "link")}


@pytest.mark.behaviour("C-020", "C-021")
def test_other_fields_are_optional_and_unknown_ones_ignored(world: World) -> None:
    world.skill(".agents/skills/full", version="1.10", license="MIT", metadata={"author": "someone"})
    world.skill(".agents/skills/bare")
    world.skill(".agents/skills/odd", colour="green", deep={"list": [1, {"x": None}]}, enabled=False, hide=True)
    skills = world.discover("codelia")
    assert names(skills) == ["bare", "full", "odd"]
    assert (skills["full"].license, dict(skills["full"].metadata)) == ("MIT", {"author": "someone"})
    assert skills["odd"].extra == {}
    assert skills["odd"].visible
    assert skills.diagnostics == ()


@pytest.mark.behaviour("C-024", "C-025", "C-026")
def test_an_entry_has_the_fields_of_the_seed_and_the_same_id_in_every_process(world: World) -> None:
    (world.project / "real").mkdir()
    (world.project / ".agents").symlink_to(world.project / "real")
    path = world.skill(".agents/skills/probe", description="Probes.")
    os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    listed = metier(world, "list", "--profile", "codelia")
    (skill,) = listed["skills"]
    real = str(world.project / "real/skills/probe/SKILL.md")
    expected = {
        "id": hashlib.sha256(real.encode()).hexdigest()[:24],
        "name": "probe",
        "description": "Probes.",
        "path": str(path),
        "dir": str(path.parent),
        "scope": "repo",
        "mtime_ms": 1_700_000_000_123,
    }
    assert {key: skill[key] for key in expected} == expected
    assert [skill.id for skill in world.discover("codelia")] == [skill["id"]]
    assert metier(world, "list", "--profile", "codelia")["skills"] == [skill]
    assert (listed["errors"], listed["truncated"]) == ([], False)


@pytest.mark.behaviour("C-027", "C-029")
@pytest.mark.parametrize("seed", range(2))
def test_skills_of_one_name_are_all_kept_in_the_order_name_scope_path(world: World, seed: int) -> None:
    places = [
        ".agents/skills/alpha",
        "sub/.agents/skills/alpha",
        "~/.agents/skills/alpha",
        "~/.agents/skills/group/alpha",
        "sub/.agents/skills/beta",
        ".agents/skills/z/gamma",
        "~/.agents/skills/a1",
    ]
    for where in random.Random(seed).sample(places, len(places)):
        world.skill(where)
    skills = world.discover("codelia", world.project / "sub")
    where = {"repo": world.project, "user": world.home}
    assert [(s.name, s.scope, str(Path(s.dir).relative_to(where[s.scope]))) for s in skills] == [
        ("a1", "user", ".agents/skills/a1"),
        ("alpha", "repo", ".agents/skills/alpha"),
        ("alpha", "repo", "sub/.agents/skills/alpha"),
        ("alpha", "user", ".agents/skills/alpha"),
        ("alpha", "user", ".agents/skills/group/alpha"),
        ("beta", "repo", "sub/.agents/skills/beta"),
        ("gamma", "repo", ".agents/skills/z/gamma"),
    ]
    assert skills.shadowed == ()
    with pytest.raises(AmbiguousSkill) as refused:
        skills["alpha"]
    assert list(refused.value.candidates) == [s.path for s in skills if s.name == "alpha"]


@pytest.mark.behaviour("C-048")
def test_a_disabled_skill_stays_in_the_list_marked_as_not_enabled(world: World) -> None:
    world.skill(".agents/skills/one")
    world.skill("~/.agents/skills/two")

    def state() -> dict[str, bool]:
        return {s["name"]: s["enabled"] for s in metier(world, "list", "--profile", "codelia")["skills"]}

    before = (world.project / ".agents/skills/one/SKILL.md").read_bytes()
    assert metier(world, "disable", "one", "--profile", "codelia")["enabled"] is False
    assert state() == {"one": False, "two": True}
    assert metier(world, "enable", "one", "--profile", "codelia")["enabled"] is True
    assert state() == {"one": True, "two": True}
    assert (world.project / ".agents/skills/one/SKILL.md").read_bytes() == before


@pytest.mark.behaviour("C-091")
def test_the_limits_have_the_defaults_of_the_seed(world: World) -> None:
    def values(**skills: int) -> list[int]:
        profile = world.discover("codelia", settings={"skills": skills}).profile
        prompt, search = profile.prompt, profile.search
        return [prompt.max_entries, prompt.max_bytes, search.default_limit, search.max_limit]

    before = [200, 32 * 1024, 8, 50]
    assert values() == before
    keys = ("initial.maxEntries", "initial.maxBytes", "search.defaultLimit", "search.maxLimit")
    for number, key in enumerate(keys):
        changed = [value + (at == number) for at, value in enumerate(before)]
        assert values(**{key: before[number] + 1}) == changed
