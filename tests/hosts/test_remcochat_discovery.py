"""RemcoChat: off until it is switched on, an ordered list of folders, one level each, the first of a name."""

from pathlib import Path
from typing import Any

import pytest

from hosts.asking import codes, listening, metier, names
from metier import ConfigError, Skills
from worlds import World

DEFAULTS = ["./.skills", "./.agents/skills", "~/.agents/skills", "~/.remcochat/skills"]
EXAMPLES = Path(__file__).parents[2] / "examples" / "skills"


def discover(world: World, **settings: Any) -> Skills:
    return world.discover("remcochat", settings={"app": {"skills": {"enabled": True, **settings}}})


def configure(world: World, text: str) -> None:
    world.configure(f'profile = "remcochat"\n{text}')


# --- configuration ---


@pytest.mark.behaviour("K-001")
@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("", []),
        ("[app.skills]\n", []),
        ("[app.skills]\nmax_skills = 5\n", []),
        ("[app.skills]\nenabled = false\n", []),
        ("[app.skills]\nenabled = true\n", ["probe"]),
    ],
)
def test_skills_are_off_until_the_configuration_switches_them_on(
    world: World, section: str, expected: list[str]
) -> None:
    world.skill(".skills/probe")
    configure(world, section)
    listed = metier(world, "list")
    assert listed["profile"] == "remcochat"
    assert [skill["name"] for skill in listed["skills"]] == expected
    assert listed["counts"]["found"] == len(expected)


def test_while_off_no_folder_is_looked_into(world: World) -> None:
    """The catalog's part of K-002; prompt and tools are the rest of it."""
    world.skill(".skills/probe")
    folder = str(world.project / ".skills")
    with listening() as heard:
        world.discover("remcochat")
    assert not [path for _, path in heard if path.startswith(folder)]
    with listening() as heard:
        discover(world)
    assert [path for _, path in heard if path.startswith(folder)]


@pytest.mark.behaviour("K-003")
def test_the_default_folders_are_searched_in_their_order(world: World) -> None:
    skills = discover(world)
    home, project = str(world.home), str(world.project)
    expected = [d.replace("~", home) if d[0] == "~" else f"{project}/{d[2:]}" for d in DEFAULTS]
    assert [root.path for root in skills.roots] == expected
    for number, folder in enumerate(DEFAULTS):
        world.skill(f"{folder}/skill-{9 - number}")
    assert names(discover(world)) == ["skill-9", "skill-8", "skill-7", "skill-6"]


@pytest.mark.behaviour("K-004")
def test_folders_may_be_absolute_relative_to_the_project_or_to_the_home(world: World) -> None:
    written = [
        world.skill(f"{where}/{name}") for where, name in (("~/abs", "one"), ("lib/rel", "two"), ("~/own", "three"))
    ]
    world.skill(".skills/default")
    world.skill("sub/lib/rel/wrong")
    configure(world, f'[app.skills]\nenabled = true\ndirectories = ["{world.home}/abs", "./lib/rel", "~/own"]\n')
    listed = metier(world, "list", cwd=world.project / "sub")
    assert [skill["path"] for skill in listed["skills"]] == [str(path) for path in written]


LIMITS = {
    "max_skills": (200, 1, 10_000),
    "max_skill_md_bytes": (200_000, 1_000, 50_000_000),
    "max_resource_bytes": (2_000_000, 1_000, 200_000_000),
}


@pytest.mark.behaviour("K-005")
def test_the_limits_have_the_defaults_of_the_seed(world: World) -> None:
    profile = discover(world).profile
    found = (profile.catalog.max_skills, profile.load.max_bytes, profile.resources.max_bytes)
    assert found == tuple(default for default, _, _ in LIMITS.values())


@pytest.mark.behaviour("K-006")
@pytest.mark.parametrize("key", LIMITS)
def test_a_limit_out_of_its_range_is_an_error_that_names_the_key(world: World, key: str) -> None:
    _, low, high = LIMITS[key]
    for value in (low, high):
        discover(world, **{key: value})
    for value in (low - 1, high + 1, 0, -1):
        with pytest.raises(ConfigError, match=key) as refused:
            discover(world, **{key: value})
        assert refused.value.key == f"app.skills.{key}"
    configure(world, f"[app.skills]\nenabled = true\n{key} = {high + 1}\n")
    said = metier(world, "list", code=2)
    assert key in said
    assert "config.toml:4" in said


# --- discovery ---


def test_a_change_on_disk_shows_only_after_a_restart(world: World) -> None:
    """The catalog's part of K-008; the prompt is the rest of it."""
    path = world.skill(".skills/edited", description="Before")
    world.skill(".skills/removed")
    skills = discover(world)
    before = list(skills)
    path.write_text(path.read_text().replace("Before", "After"))
    (world.project / ".skills/removed/SKILL.md").unlink()
    world.skill(".skills/added")
    assert not skills.refresh()
    assert list(skills) == before
    assert [(s.name, s.description) for s in discover(world) if s.name == "edited"] == [("edited", "After")]
    assert names(discover(world)) == ["added", "edited"]


@pytest.mark.behaviour("K-009")
def test_a_missing_folder_is_skipped_with_one_warning(world: World) -> None:
    world.skill("second/probe")
    skills = discover(world, directories=["./first", "./second", "./first", "~/third"])
    for _ in range(3):
        assert names(skills) == ["probe"]
        skills.refresh()
    missing = [str(world.home / "third"), str(world.project / "first")]
    assert [(d.path, d.severity) for d in skills.diagnostics] == [(path, "warning") for path in missing]


@pytest.mark.behaviour("K-010")
def test_only_immediate_child_folders_count(world: World) -> None:
    world.skill(".skills", "itself")
    (world.project / ".skills/notes.md").write_text("---\nname: notes\ndescription: A file.\n---\n")
    world.skill(".skills/group/x")
    world.skill(".skills/direct/inner")
    world.skill(".skills/direct")
    assert names(discover(world)) == ["direct"]


@pytest.mark.behaviour("K-010")
@pytest.mark.parametrize("name", ["build", "dist"])
def test_every_child_folder_counts_whatever_its_name(world: World, name: str) -> None:
    world.skill(f".skills/{name}")
    assert names(discover(world)) == [name]


@pytest.mark.behaviour("K-011")
@pytest.mark.parametrize("file", ["skill.md", "Skill.md", "SKILL.MD", "SKILL.md.txt", "SKILL"])
def test_the_file_must_be_named_exactly(world: World, file: str) -> None:
    world.skill(".skills/good")
    written = world.skill(".skills/probe")
    written.rename(written.with_name(file))
    skills = discover(world)
    assert names(skills) == ["good"]
    assert codes(skills, written.with_name(file)) == (["wrong-case"] if file.lower() == "skill.md" else [])


@pytest.mark.behaviour("K-011")
def test_a_folder_of_that_name_is_no_skill(world: World) -> None:
    world.skill(".skills/good")
    (world.project / ".skills/probe/SKILL.md").mkdir(parents=True)
    assert names(discover(world)) == ["good"]


# --- collisions ---


@pytest.mark.behaviour("K-012")
@pytest.mark.parametrize("order", [["./a", "./b"], ["./b", "./a"]])
def test_the_first_folder_in_the_declared_order_wins(world: World, order: list[str]) -> None:
    written = {where: world.skill(f"{where}/same") for where in ("./a", "./b")}
    skills = discover(world, directories=order)
    assert [skill.path for skill in skills] == [str(written[order[0]].resolve())]
    (lost,) = skills.shadowed
    assert (lost.skill.path, lost.winner.path) == (str(written[order[1]].resolve()), skills["same"].path)
    assert codes(skills, written[order[1]].resolve(), "warning") == ["collision"]


def test_a_collision_is_in_the_listing_with_winner_and_loser(world: World) -> None:
    """The listing's part of K-013; the server's log is the rest of it."""
    winner, loser = world.skill(".skills/same"), world.skill("~/.agents/skills/same")
    configure(world, "[app.skills]\nenabled = true\n")
    (lost,) = metier(world, "list")["shadowed"]
    assert (lost["name"], lost["path"], lost["shadowed_by"]) == ("same", str(loser), str(winner))


# --- validation ---

HEAD = "name: probe\ndescription: Probes.\n"


@pytest.mark.behaviour("K-014")
@pytest.mark.parametrize(
    ("text", "good"),
    [
        (f"---\n{HEAD}---\n# Body\n", True),
        (f"\ufeff---\r\n{HEAD}---\r\n", True),
        (f"---\n{HEAD}---", True),
        (f"{HEAD}\n# Body\n", False),
        (f"\n---\n{HEAD}---\n", False),
        (f"<!-- note -->\n---\n{HEAD}---\n", False),
        (f"---\n{HEAD}# Body\n", False),
        (f"---\n{HEAD}---# Body\n", False),
        (f"----\n{HEAD}----\n", False),
        (f"+++\n{HEAD}+++\n", False),
        ("---\nname: [probe\n---\n", False),
    ],
)
def test_the_file_begins_with_frontmatter_between_fences(world: World, text: str, good: bool) -> None:
    path = world.skill(".skills/probe", text=text)
    skills = discover(world)
    assert names(skills) == (["probe"] if good else [])
    assert len(codes(skills, path, "error")) == (0 if good else 1)


@pytest.mark.behaviour("K-015", "K-022")
def test_a_record_holds_every_supported_field_and_where_it_lies(world: World) -> None:
    given: dict[str, Any] = {
        "description": "Probes.",
        "license": "MIT",
        "compatibility": "Needs git",
        "metadata": {"author": "someone", "version": "1.0"},
    }
    path = world.skill(".skills/probe", **given, allowed_tools="Bash(git add *) Read")
    skill = discover(world)["probe"]
    shown = skill.as_dict()
    assert {key: shown[key] for key in given} == given
    assert shown["allowed_tools"] == ["Bash(git add *)", "Read"]
    assert (shown["name"], shown["dir"], shown["path"]) == ("probe", str(path.parent), str(path))
    assert skill.root.path == str(world.project / ".skills")


@pytest.mark.behaviour("K-015")
def test_a_record_needs_no_optional_field(world: World) -> None:
    world.skill(".skills/probe")
    shown = discover(world)["probe"].as_dict()
    assert [shown[key] for key in ("license", "compatibility", "metadata", "allowed_tools")] == [None, None, {}, None]


@pytest.mark.behaviour("K-015")
@pytest.mark.parametrize("text", ["---\nname: probe\n---\n", "---\ndescription: Probes.\n---\n", "---\n---\n"])
def test_name_and_description_are_required(world: World, text: str) -> None:
    world.skill(".skills/probe", text=text)
    assert names(discover(world)) == []


@pytest.mark.behaviour("K-016")
def test_an_unknown_key_is_ignored_with_a_warning(world: World) -> None:
    path = world.skill(".skills/probe", model="large", enabled=False)
    skills = discover(world)
    assert [(s.name, s.enabled, s.extra) for s in skills] == [("probe", True, {})]
    (warning,) = (d for d in skills.diagnostics if d.path == str(path))
    assert (warning.code, warning.severity) == ("unknown-key", "warning")
    assert "model" in warning.message
    assert "enabled" in warning.message


NAMES = {
    **dict.fromkeys(("a", "7", "a-b-1", "x" * 64), True),
    **dict.fromkeys(("x" * 65, "", "Upper", "a_b", "a.b", "é", "名", "-a", "a-", "a--b", "-"), False),
}


@pytest.mark.behaviour("K-017", "K-018")
@pytest.mark.parametrize(("name", "good"), NAMES.items())
def test_a_name_is_1_to_64_of_a_to_z_digits_and_single_inner_hyphens(world: World, name: str, good: bool) -> None:
    path = world.skill(f".skills/{name or 'empty'}", name)
    skills = discover(world)
    assert names(skills) == ([name] if good else [])
    assert bool(codes(skills, path, "error")) is not good


@pytest.mark.behaviour("K-019")
@pytest.mark.parametrize("folder", ["other", "Probe", "probe-2"])
def test_a_name_must_be_that_of_its_folder(world: World, folder: str) -> None:
    path = world.skill(f".skills/{folder}", "probe")
    skills = discover(world)
    assert names(skills) == []
    assert codes(skills, path, "error") == ["name-mismatch"]


@pytest.mark.behaviour("K-020")
@pytest.mark.parametrize(
    ("description", "good"), [("x", True), ("x" * 1024, True), ("", False), ("   ", False), ("x" * 1025, False)]
)
def test_a_description_has_1_to_1024_characters(world: World, description: str, good: bool) -> None:
    world.skill(".skills/probe", description=description)
    assert [skill.description for skill in discover(world)] == ([description] if good else [])


def test_an_invalid_skill_is_in_the_listing_with_its_error_and_harms_no_other(world: World) -> None:
    """The listing's part of K-021; the server's log is the rest of it."""
    path = world.skill(".skills/bad", description="")
    world.skill(".skills/good")
    configure(world, "[app.skills]\nenabled = true\n")
    listed = metier(world, "list")
    assert [skill["name"] for skill in listed["skills"]] == ["good"]
    assert [(d["path"], d["code"]) for d in listed["diagnostics"] if d["severity"] == "error"] == [
        (str(path), "description-missing")
    ]


def test_no_more_skills_than_the_limit_are_kept(world: World) -> None:
    """The registry's part of K-027; the prompt is the rest of it."""
    for n in range(4):
        world.skill(f".skills/skill-{n}")
    skills = discover(world, max_skills=3)
    assert names(skills) == ["skill-0", "skill-1", "skill-2"]
    assert [d.severity for d in skills.diagnostics if d.code == "too-many-skills"] == ["warning"]
    assert [(s.name, s.reason) for s in skills.skipped] == [("skill-3", "too-many")]
    assert len(discover(world, max_skills=4)) == 4


@pytest.mark.behaviour("K-077")
def test_the_conformance_skill_is_here_with_its_files_and_passes(world: World) -> None:
    skills = discover(world, directories=[str(EXAMPLES)])
    skill = skills["skills-system-validation"]
    assert codes(skills, Path(skill.path)) == []
    for file in ("SKILL.md", "references/REFERENCE.md", "assets/fixture.json", "scripts/echo.sh"):
        assert (Path(skill.dir) / file).stat().st_size > 0
