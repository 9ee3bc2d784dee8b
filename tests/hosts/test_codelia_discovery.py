"""Codelia: which files become its catalog, which are refused and why, and what an entry looks like."""

import hashlib
import os
import random
import shutil
from pathlib import Path

import pytest

from hosts.asking import metier, names
from metier import AmbiguousSkill, InvalidSkill, SkillNotFound
from metier.hosts.profiles import Profile
from worlds import World

# --- where it looks ---


@pytest.mark.behaviour("C-001", "C-002")
def test_every_folder_from_the_root_down_to_the_working_directory_is_searched_at_any_depth(world: World) -> None:
    world.skill(".agents/skills/at-root")
    world.skill("a/.agents/skills/one/two/three/between")
    world.skill("a/b/.agents/skills/at-cwd")
    world.skill("a/b/.agents/skills/at-cwd/deeper/inside-a-skill")
    skills = world.discover("codelia", world.project / "a/b")
    assert {skill.name: skill.scope for skill in skills} == dict.fromkeys(
        ("at-cwd", "at-root", "between", "inside-a-skill"), "repo"
    )


@pytest.mark.behaviour("C-002")
@pytest.mark.parametrize("name", ["build", "dist"])
def test_a_skill_may_bear_the_name_of_a_folder_that_other_tools_ignore(world: World, name: str) -> None:
    world.skill(f".agents/skills/{name}")
    assert names(world.discover("codelia")) == [name]


@pytest.mark.behaviour("C-003")
def test_the_users_folder_is_searched_at_any_depth_with_the_scope_user(world: World) -> None:
    world.skill("~/.agents/skills/mine")
    world.skill("~/.agents/skills/group/deep")
    assert {skill.name: skill.scope for skill in world.discover("codelia")} == {"deep": "user", "mine": "user"}


@pytest.mark.behaviour("C-004")
def test_nothing_beside_the_chain_is_searched(world: World) -> None:
    world.skill("../.agents/skills/above-the-root")
    world.skill("a/sibling/.agents/skills/beside")
    world.skill("a/b/below/.agents/skills/below")
    world.skill("a/b/.codelia/skills/other-folder")
    world.skill("skills/bare")
    world.skill("a/b/.agents/skills/here")
    skills = world.discover("codelia", world.project / "a/b")
    assert names(skills) == ["here"]
    assert skills.counts.found == 1


@pytest.mark.behaviour("C-005")
@pytest.mark.parametrize("base", ["", "~/"])
def test_the_folders_of_claude_are_not_searched(world: World, base: str) -> None:
    path = world.skill(f"{base}.claude/skills/foreign")
    skills = world.discover("codelia")
    assert len(skills) == skills.counts.found == 0
    with pytest.raises(SkillNotFound):
        skills["foreign"]
    with pytest.raises(SkillNotFound):
        skills.at(path)
    assert "foreign" in metier(world, "show", str(path), "--profile", "codelia", code=1)


@pytest.mark.behaviour("C-006")
def test_every_skill_is_of_the_repository_or_of_the_user(world: World) -> None:
    world.skill(".agents/skills/one")
    world.skill("~/.agents/skills/two")
    extra = world.skill("~/elsewhere/three").parent.parent
    listed = metier(world, "list", "--profile", "codelia", "--skills", str(extra))
    assert {skill["name"]: skill["scope"] for skill in listed["skills"]} == {
        "one": "repo",
        "two": "user",
        "three": "repo",
    }
    assert {root["scope"] for root in listed["roots"]} == {"repo", "user"}


# --- where the repository begins ---


@pytest.fixture
def chain(world: World) -> Path:
    """A working directory three levels below a project without any marker, with a skill on each level."""
    shutil.rmtree(world.project / ".git")
    for level, where in enumerate(("", "a/", "a/b/", "a/b/c/")):
        world.skill(f"{where}.agents/skills/level-{level}")
    return world.project / "a/b/c"


@pytest.mark.behaviour("C-008")
def test_the_variable_names_the_root_and_outranks_markers(world: World, chain: Path) -> None:
    (world.project / ".git").mkdir()
    (chain / ".codelia").mkdir()
    env = {"CODELIA_AGENTS_ROOT": str(world.project / "a")}
    assert names(world.discover("codelia", chain, env=env)) == ["level-1", "level-2", "level-3"]


@pytest.mark.behaviour("C-009")
@pytest.mark.parametrize("marker", [".codelia", ".git", ".jj"])
@pytest.mark.parametrize(("where", "first"), [("a", 1), ("a/b/c", 3)])
def test_the_root_is_the_nearest_folder_with_a_marker(
    world: World, chain: Path, marker: str, where: str, first: int
) -> None:
    (world.project / ".git").mkdir()
    (world.project / where / marker).mkdir()
    assert names(world.discover("codelia", chain, env={})) == [f"level-{n}" for n in range(first, 4)]


@pytest.mark.behaviour("C-009")
def test_a_marker_may_be_a_file(world: World, chain: Path) -> None:
    (world.project / "a/b/.git").write_text("gitdir: elsewhere\n")
    assert names(world.discover("codelia", chain, env={})) == ["level-2", "level-3"]


@pytest.mark.behaviour("C-010")
@pytest.mark.parametrize(("markers", "first"), [(".hg", 0), (".hg,.git", 2), (" .other , .hg ", 0)])
def test_a_variable_replaces_the_markers(world: World, chain: Path, markers: str, first: int) -> None:
    (world.project / ".hg").mkdir()
    (world.project / "a/b/.git").mkdir()
    found = world.discover("codelia", chain, env={"CODELIA_AGENTS_MARKERS": markers})
    assert names(found) == [f"level-{n}" for n in range(first, 4)]


@pytest.mark.behaviour("C-011")
def test_without_variable_and_marker_the_working_directory_is_the_root(world: World, chain: Path) -> None:
    world.skill("~/.agents/skills/mine")
    skills = world.discover("codelia", chain, env={})
    assert names(skills) == ["level-3", "mine"]
    assert [root.path for root in skills.roots] == [f"{chain}/.agents/skills", f"{world.home}/.agents/skills"]


# --- what is a skill ---


@pytest.mark.behaviour("C-013")
def test_a_folder_without_a_skill_file_is_no_skill(world: World) -> None:
    (world.project / ".agents/skills/notes").mkdir(parents=True)
    (world.project / ".agents/skills/notes/README.md").write_text("---\nname: notes\ndescription: No.\n---\n")
    world.skill(".agents/skills/real", files={"references/more.md": "---\nname: more\ndescription: No.\n---\n"})
    skills = world.discover("codelia")
    assert names(skills) == ["real"]
    assert skills.counts.found == 1


@pytest.mark.behaviour("C-014")
def test_a_linked_folder_is_not_followed(world: World) -> None:
    world.skill("elsewhere/behind")
    world.skill("elsewhere/group/further")
    world.skill(".agents/skills/real")
    for name in ("behind", "group"):
        (world.project / ".agents/skills" / name).symlink_to(world.project / "elsewhere" / name)
    skills = world.discover("codelia")
    assert names(skills) == ["real"]
    assert [s.reason for s in skills.skipped] == ["link"]


def test_a_skill_file_that_is_a_link_is_left_out(world: World) -> None:
    target = world.skill("elsewhere/probe")
    link = world.project / ".agents/skills/probe/SKILL.md"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    skills = world.discover("codelia")
    assert names(skills) == []
    assert [(s.path, s.reason) for s in skills.skipped] == [(str(link), "link")]


# --- what is refused ---


@pytest.mark.behaviour("C-015", "C-023")
@pytest.mark.parametrize(
    "text",
    [
        "# Only a body\n",
        "",
        "name: bad\ndescription: No fences.\n",
        "Intro.\n---\nname: bad\ndescription: Too late.\n---\n",
        "---\nname: bad\ndescription: Never closed.\n",
        "---\ndescription: No name.\n---\n",
        "---\nname:\ndescription: An empty name.\n---\n",
        "---\nname: bad\ndescription: [unclosed\n---\n",
        "---\n- name\n- description\n---\n",
    ],
)
def test_a_file_without_usable_frontmatter_gives_one_error_and_no_skill(world: World, text: str) -> None:
    path = world.skill(".agents/skills/bad", text=text)
    listed = metier(world, "list", "--profile", "codelia")
    assert listed["skills"] == []
    assert [(error["path"], bool(error["message"].strip())) for error in listed["errors"]] == [(str(path), True)]


NAMES = {
    **dict.fromkeys(("a1-b2", "7", "a", "a" * 64), True),
    **dict.fromkeys(("a" * 65, "", "Upper", "a_b", "a.b", "a b", "é", "名", "-a", "a-", "a--b", "-"), False),
}


@pytest.mark.behaviour("C-016", "C-017")
@pytest.mark.parametrize(("name", "good"), NAMES.items())
def test_a_name_is_1_to_64_lower_case_letters_digits_and_single_inner_hyphens(
    world: World, name: str, good: bool
) -> None:
    path = world.skill(f".agents/skills/{name or 'empty'}", name)
    skills = world.discover("codelia")
    assert names(skills) == ([name] if good else [])
    assert [error.path for error in skills.errors] == ([] if good else [str(path)])


@pytest.mark.parametrize("name", ["ﬁx", " fix", "fix\n", "f\u200bix"])
def test_a_name_is_judged_as_it_is_written(world: World, name: str) -> None:
    world.skill(".agents/skills/fix", name)
    assert names(world.discover("codelia")) == []


@pytest.mark.behaviour("C-018")
def test_a_name_must_be_that_of_its_folder(world: World) -> None:
    path = world.skill(".agents/skills/folder", "other")
    skills = world.discover("codelia")
    assert names(skills) == []
    assert [error.path for error in skills.errors] == [str(path)]
    assert "other" in skills.errors[0].message
    assert "folder" in skills.errors[0].message


@pytest.mark.behaviour("C-019")
@pytest.mark.parametrize(
    ("description", "good"),
    [("x", True), ("x" * 1024, True), ("é" * 1024, True), (None, False), ("", False), ("x" * 1025, False)],
)
def test_a_description_has_1_to_1024_characters(world: World, description: str | None, good: bool) -> None:
    world.skill(".agents/skills/probe", description=description)
    skills = world.discover("codelia")
    assert [skill.description for skill in skills] == ([description] if good else [])
    assert len(skills.errors) == (0 if good else 1)


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


def test_an_invalid_skill_is_not_in_the_catalog_and_cannot_be_asked_for(world: World) -> None:
    """The catalog's part of C-022; search, prompt and load are the rest of it."""
    path = world.skill(".agents/skills/bad", description=None)
    world.skill(".agents/skills/good")
    skills = world.discover("codelia")
    assert names(skills) == ["good"]
    assert "bad" not in skills
    for ask in (lambda: skills["bad"], lambda: skills.at(path)):
        with pytest.raises(InvalidSkill) as refused:
            ask()
        assert [d.code for d in refused.value.diagnostics] == ["description-missing"]
    assert "description" in metier(world, "show", "bad", "--profile", "codelia", code=1)


# --- what the catalog holds ---


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
@pytest.mark.parametrize("seed", range(4))
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


@pytest.mark.behaviour("C-028")
def test_a_file_that_two_routes_reach_is_one_skill_wherever_it_is_shown(world: World, tmp_path: Path) -> None:
    """The home is in the chain, the working directory is reached through a link, and a root is named twice."""
    path = world.skill(".agents/skills/probe", description="Probe it.", body="BODY")
    (world.project / "other").symlink_to(world.project / ".agents")
    (tmp_path / "way").symlink_to(world.project)
    at_home = World(world.project, tmp_path / "way")
    spelled = [path, tmp_path / "way/.agents/skills/probe/SKILL.md"]
    listed = metier(at_home, "list", "--profile", "codelia")
    assert [skill["name"] for skill in listed["skills"]] == ["probe"]
    assert listed["skills"][0]["path"] in map(str, spelled)
    for roots in ([], [".agents/skills", "other/skills", ".agents/./skills", str(path.parents[1])]):
        opened = at_home.discover("codelia", roots=roots).session()
        assert opened.prompt().text.count("<skill>") == 1
        assert opened.call("skill_search", {"query": "probe"}).text.startswith("count: 1, ")
        # The user's folder is searched under its own path; a root that is named is searched as it is spelled.
        known = spelled if roots else spelled[:1]
        first, *others = [opened.call("skill_load", {"path": str(one)}) for one in known]
        assert "BODY" in first.text
        assert all(one.data["already_loaded"] and "BODY" not in one.text for one in others)
        assert opened.call("skill_load", {"name": "probe"}).data["already_loaded"] is True
        assert len(opened.loaded_versions()) == 1


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


def test_switched_off_as_a_whole_nothing_is_found(world: World) -> None:
    """The catalog's part of C-090; prompt and load are the rest of it."""
    path = world.skill(".agents/skills/one")
    assert names(world.discover("codelia")) == ["one"]
    skills = world.discover("codelia", settings={"skills": {"enabled": False}})
    assert skills.counts.found == 0
    with pytest.raises(SkillNotFound):
        skills.at(path)


@pytest.mark.behaviour("C-091")
@pytest.mark.parametrize(
    ("key", "default"),
    [("initial.maxEntries", 200), ("initial.maxBytes", 32 * 1024), ("search.defaultLimit", 8), ("search.maxLimit", 50)],
)
def test_the_limits_have_the_defaults_of_the_seed(world: World, key: str, default: int) -> None:
    def values(profile: Profile) -> list[int]:
        prompt, search = profile.prompt, profile.search
        return [prompt.max_entries, prompt.max_bytes, search.default_limit, search.max_limit]

    before = values(world.discover("codelia").profile)
    after = values(world.discover("codelia", settings={"skills": {key: default + 1}}).profile)
    assert [(old, new) for old, new in zip(before, after, strict=True) if old != new] == [(default, default + 1)]
