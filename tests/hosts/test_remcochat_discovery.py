"""RemcoChat: off until it is switched on, an ordered list of folders, one level each, the first of a name."""

from typing import Any

import pytest

from hosts.asking import codes, metier, names
from metier import ConfigError, Skills
from worlds import World

DEFAULTS = ["./.skills", "./.agents/skills", "~/.agents/skills", "~/.remcochat/skills"]


def discover(world: World, **settings: Any) -> Skills:
    return world.discover("remcochat", settings={"app": {"skills": {"enabled": True, **settings}}})


def configure(world: World, text: str) -> None:
    world.configure(f'profile = "remcochat"\n{text}')


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


@pytest.mark.behaviour("K-005", "K-006")
def test_a_limit_has_its_default_and_out_of_its_range_is_an_error_that_names_the_key(world: World) -> None:
    profile = discover(world).profile
    found = (profile.catalog.max_skills, profile.load.max_bytes, profile.resources.max_bytes)
    assert found == tuple(default for default, _, _ in LIMITS.values())
    for key, (_, low, high) in LIMITS.items():
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
        configure(world, "")


@pytest.mark.behaviour("K-010", "K-011")
def test_only_immediate_child_folders_with_a_file_of_exactly_that_name_count(world: World) -> None:
    world.skill(".skills", "itself")
    (world.project / ".skills/notes.md").write_text("---\nname: notes\ndescription: A file.\n---\n")
    for where in ("group/x", "direct/inner", "direct", "build", "dist"):
        world.skill(f".skills/{where}")
    (world.project / ".skills/folder/SKILL.md").mkdir(parents=True)
    files = ("skill.md", "Skill.md", "SKILL.MD", "SKILL.md.txt", "SKILL")
    written = [world.skill(f".skills/probe-{number}") for number in range(len(files))]
    renamed = [path.rename(path.with_name(name)) for path, name in zip(written, files, strict=True)]
    skills = discover(world)
    assert names(skills) == ["build", "direct", "dist"]
    assert [codes(skills, path) for path in renamed] == [["wrong-case"]] * 3 + [[]] * 2


@pytest.mark.behaviour("K-012")
@pytest.mark.parametrize("order", [["./a", "./b"], ["./b", "./a"]])
def test_the_first_folder_in_the_declared_order_wins(world: World, order: list[str]) -> None:
    written = {where: world.skill(f"{where}/same") for where in ("./a", "./b")}
    skills = discover(world, directories=order)
    assert [skill.path for skill in skills] == [str(written[order[0]].resolve())]
    (lost,) = skills.shadowed
    assert (lost.skill.path, lost.winner.path) == (str(written[order[1]].resolve()), skills["same"].path)
    assert codes(skills, written[order[1]].resolve(), "warning") == ["collision"]


@pytest.mark.behaviour("K-015", "K-022")
def test_a_record_holds_every_supported_field_and_where_it_lies_and_needs_none(world: World) -> None:
    given: dict[str, Any] = {
        "description": "Probes.",
        "license": "MIT",
        "compatibility": "Needs git",
        "metadata": {"author": "someone", "version": "1.0"},
    }
    path = world.skill(".skills/probe", **given, allowed_tools="Bash(git add *) Read")
    world.skill(".skills/bare")
    skills = discover(world)
    shown = skills["probe"].as_dict()
    assert {key: shown[key] for key in given} == given
    assert shown["allowed_tools"] == ["Bash(git add *)", "Read"]
    assert (shown["name"], shown["dir"], shown["path"]) == ("probe", str(path.parent), str(path))
    assert skills["probe"].root.path == str(world.project / ".skills")
    bare = skills["bare"].as_dict()
    assert [bare[key] for key in ("license", "compatibility", "metadata", "allowed_tools")] == [None, None, {}, None]


@pytest.mark.behaviour("K-016")
def test_an_unknown_key_is_ignored_with_a_warning(world: World) -> None:
    path = world.skill(".skills/probe", model="large", enabled=False)
    skills = discover(world)
    assert [(s.name, s.enabled, s.extra) for s in skills] == [("probe", True, {})]
    (warning,) = (d for d in skills.diagnostics if d.path == str(path))
    assert (warning.code, warning.severity) == ("unknown-key", "warning")
    assert "model" in warning.message
    assert "enabled" in warning.message
