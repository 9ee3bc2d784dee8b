"""rip: the strict standard, explicit precedence, and a catalog that depends on nothing but the files."""

import json
import os
import random
import shutil
from typing import Any

import pytest

from hosts.asking import metier, names
from metier import Skills, limits
from worlds import World

WORKSPACE, USER = ".rip/skills", "~/.rip/skills"
MARKER = "marker-that-only-the-body-holds"


def discover(world: World, *roots: str, **given: Any) -> Skills:
    settings = {"skills": {"roots": list(roots)}} if roots else {}
    return world.discover("rip", settings=settings, **given)


@pytest.mark.behaviour("R-001", "N-080")
def test_the_workspaces_and_the_users_folder_are_searched_recursively_or_configured_roots_instead(world: World) -> None:
    for where in ("shallow", "shallow/inner", "build/b/deep"):
        world.skill(f"{WORKSPACE}/{where}")
    world.skill(f"{USER}/mine")
    for where in (".agents/skills/foreign", "tools/x/one", "~/mine/two"):
        world.skill(where)
    (world.project / "sub").mkdir()
    skills = discover(world, cwd=world.project / "sub")
    assert {s.name: s.scope for s in skills} == {"deep": "repo", "inner": "repo", "mine": "user", "shallow": "repo"}
    (world.project / "tools/three").mkdir()
    (world.project / "tools/three/README.md").write_text("---\nname: three\ndescription: No skill.\n---\n")
    assert names(discover(world, "tools", "~/mine", str(world.home / "absent"))) == ["one", "two"]


@pytest.mark.behaviour("R-002")
def test_bodies_are_not_read_and_nothing_of_one_is_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read = os.read

    def counted(descriptor: int, size: int) -> bytes:
        data = read(descriptor, size)
        sizes.append(len(data))
        return data

    for n in range(3):
        body = f"{MARKER}\n" + "padding " * 200_000 + MARKER
        world.skill(f"{WORKSPACE}/skill-{n}", body=body, description="probe-description")
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", counted)
        skills = discover(world)
    assert (len(skills), sum(sizes)) == (3, 3 * limits.HEAD_BYTES)
    world.skill(f"{WORKSPACE}/broken", text=f"---\nname: broken\n---\n{MARKER}\n")
    skills = discover(world)
    listed: list[Any] = [*skills]
    kept = [{name: getattr(skill, name) for name in skill.__slots__} for skill in listed]
    assert MARKER not in repr(kept) + repr(skills.diagnostics)
    assert MARKER not in json.dumps(metier(world, "list", "--all", "--profile", "rip"))
    cached = [file.read_bytes() for file in world.home.rglob("*") if file.is_file() and file.name != "SKILL.md"]
    assert any(b"probe-description" in content for content in cached)
    assert not any(MARKER.encode() in content for content in cached)


@pytest.mark.behaviour("R-005", "R-012")
def test_the_same_tree_gives_the_same_catalog_in_whatever_order_it_was_made(world: World) -> None:
    paths = ("a/b", "b/a", "c", "d", "a/a", "x/a", "x/y/c")
    places = [*(f"{WORKSPACE}/{path}" for path in paths), *(f"{USER}/{name}" for name in "abcd"), f"{WORKSPACE}/Bad"]

    def catalog(order: list[str]) -> dict[str, Any]:
        for root in (world.project / ".rip", world.home / ".rip", world.home / ".cache"):
            shutil.rmtree(root, ignore_errors=True)
        for where in order:
            path = world.skill(where)
            os.utime(path, (1_700_000_000, 1_700_000_000))
        return metier(world, "list", "--profile", "rip")

    first = catalog(places)
    winners = [os.path.relpath(skill["dir"], world.project / WORKSPACE) for skill in first["skills"]]
    assert winners == ["a/a", "a/b", "c", "d"]
    assert first["counts"] == {"found": 12, "loaded": 4, "shadowed": 7, "skipped": 0, "errors": 1}
    for seed in range(3):
        assert catalog(random.Random(seed).sample(places, len(places))) == first


@pytest.mark.behaviour("R-010", "N-086")
def test_unknown_fields_are_kept_with_their_values(world: World) -> None:
    given: dict[str, Any] = {"tags": ["a", "b"], "deep": {"list": [1, {"x": True}], "none": None}, "on": "off"}
    world.skill(f"{WORKSPACE}/probe", **given)
    skills = discover(world)
    assert skills["probe"].extra == given
    assert skills.errors == ()
    assert metier(world, "show", "probe", "--profile", "rip")["extra"] == given
