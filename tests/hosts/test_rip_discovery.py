"""rip: the strict standard, explicit precedence, and a catalog that depends on nothing but the files."""

import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from hosts.asking import codes, left, listening, metier, names
from metier import Skills, limits
from worlds import World

WORKSPACE, USER = ".rip/skills", "~/.rip/skills"
MARKER = "marker-that-only-the-body-holds"


def discover(world: World, *roots: str, **given: Any) -> Skills:
    settings = {"skills": {"roots": list(roots)}} if roots else {}
    return world.discover("rip", settings=settings, **given)


@pytest.mark.behaviour("R-001", "N-080")
def test_without_configuration_the_workspaces_and_the_users_folder_are_searched_recursively(world: World) -> None:
    world.skill(f"{WORKSPACE}/shallow")
    world.skill(f"{WORKSPACE}/shallow/inner")
    world.skill(f"{WORKSPACE}/build/b/deep")
    world.skill(f"{USER}/mine")
    world.skill(".agents/skills/foreign")
    (world.project / "sub").mkdir()
    skills = discover(world, cwd=world.project / "sub")
    assert {s.name: s.scope for s in skills} == {"deep": "repo", "inner": "repo", "mine": "user", "shallow": "repo"}


@pytest.mark.behaviour("R-001", "N-080")
def test_configured_roots_are_searched_instead(world: World) -> None:
    for where in (f"{WORKSPACE}/default", "tools/x/one", "~/mine/two"):
        world.skill(where)
    (world.project / "tools/three").mkdir()
    (world.project / "tools/three/README.md").write_text("---\nname: three\ndescription: No skill.\n---\n")
    skills = discover(world, "tools", "~/mine", str(world.home / "absent"))
    assert names(skills) == ["one", "two"]


@pytest.mark.behaviour("R-002")
def test_bodies_are_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read = os.read

    def counted(descriptor: int, size: int) -> bytes:
        data = read(descriptor, size)
        sizes.append(len(data))
        return data

    for n in range(3):
        world.skill(f"{WORKSPACE}/skill-{n}", body=f"{MARKER}\n" + "padding " * 200_000 + MARKER)
    monkeypatch.setattr(os, "read", counted)
    skills = discover(world)
    monkeypatch.undo()
    assert len(skills) == 3
    assert sum(sizes) == 3 * limits.HEAD_BYTES


@pytest.mark.behaviour("R-002")
def test_nothing_of_a_body_is_kept(world: World) -> None:
    world.skill(f"{WORKSPACE}/probe", body=f"{MARKER}\n", description="probe-description")
    world.skill(f"{WORKSPACE}/broken", text=f"---\nname: broken\n---\n{MARKER}\n")
    skills = discover(world)
    assert MARKER not in repr([vars_of(skill) for skill in skills]) + repr(skills.diagnostics)
    assert MARKER not in json.dumps(metier(world, "list", "--all", "--profile", "rip"))
    cached = [file.read_bytes() for file in world.home.rglob("*") if file.is_file() and file.name != "SKILL.md"]
    assert any(b"probe-description" in content for content in cached)
    assert not any(MARKER.encode() in content for content in cached)


def vars_of(skill: Any) -> dict[str, Any]:
    return {name: getattr(skill, name) for name in skill.__slots__}


@pytest.mark.behaviour("R-003")
def test_discovery_executes_nothing(world: World) -> None:
    trap = world.project / "executed"
    script = f"#!/bin/sh\ntouch {trap}\n"
    path = world.skill(
        f"{WORKSPACE}/armed",
        body=f"!`touch {trap}`\n",
        hooks={"load": f"touch {trap}"},
        files={"scripts/run.sh": script, "scripts/setup.py": f"open({str(trap)!r}, 'w')", "SKILL.sh": script},
    )
    path.chmod(0o755)
    (path.parent / "__init__.py").write_text(f"open({str(trap)!r}, 'w')")
    (path.parent / "conftest.py").write_text(f"open({str(trap)!r}, 'w')")
    with listening() as heard:
        skills = discover(world)
        skills.refresh()
    assert names(skills) == ["armed"]
    assert left(heard) == []
    assert metier(world, "list", "--profile", "rip")["counts"]["loaded"] == 1
    assert metier(world, "validate", "--profile", "rip", WORKSPACE)["valid"] is True
    assert metier(world, "show", "armed", "--profile", "rip")["name"] == "armed"
    assert not trap.exists()


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


def test_roots_are_normalised(world: World) -> None:
    """The catalog's part of R-006; events come with the session."""
    path = world.skill("tools/skills/probe")
    spellings = ["tools/skills", "./tools/skills/", "tools/../tools/./skills", f"{world.project}//tools/skills/."]
    for spelling in spellings:
        found = [(s.path, s.dir, s.root.path, s.id) for s in discover(world, spelling)]
        assert [entry[:3] for entry in found] == [(str(path), str(path.parent), str(path.parent.parent))]
    assert [s.path for s in discover(world, *spellings)] == [str(path)]
    assert len(discover(world, *spellings).roots) == 1


# --- what is a skill ---

NAMES = {
    **dict.fromkeys(("a", "7", "a-b-1", "x" * 64, "é", "名前", "हिन्दी"), True),
    **dict.fromkeys(("x" * 65, "", "Upper", "a_b", "a.b", "a b", "-a", "a-", "a--b"), False),
}


@pytest.mark.behaviour("R-007", "R-011")
@pytest.mark.parametrize(("name", "good"), NAMES.items())
def test_a_name_is_that_of_the_standard_or_the_skill_is_excluded(world: World, name: str, good: bool) -> None:
    path = world.skill(f"{WORKSPACE}/{name or 'empty'}", name)
    world.skill(f"{WORKSPACE}/other")
    skills = discover(world)
    assert names(skills) == sorted(["other", *([name] if good else [])])
    assert [(e.path, bool(e.message)) for e in skills.errors] == ([] if good else [(str(path), True)])


@pytest.mark.behaviour("R-007", "R-008", "R-011")
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"name": "other-name"}, "name-mismatch"),
        ({"text": "---\ndescription: No name.\n---\n"}, "name-missing"),
        ({"description": None}, "description-missing"),
        ({"description": ""}, "description-missing"),
        ({"description": "x" * 1025}, "description-too-long"),
        ({"text": "No frontmatter.\n"}, "frontmatter-missing"),
        ({"text": "---\nname: probe\ndescription: a: b\n---\n"}, "yaml-invalid"),
    ],
)
def test_what_breaks_a_required_rule_is_excluded_with_the_reason(
    world: World, given: dict[str, Any], code: str
) -> None:
    path = world.skill(f"{WORKSPACE}/probe", **given)
    world.skill(f"{WORKSPACE}/whole", description="x" * 1024)
    listed = metier(world, "list", "--profile", "rip")
    assert [skill["name"] for skill in listed["skills"]] == ["whole"]
    assert [(d["path"], d["code"]) for d in listed["diagnostics"] if d["severity"] == "error"] == [(str(path), code)]
    assert listed["counts"]["errors"] == 1


@pytest.mark.behaviour("R-009")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"compatibility": "x" * 500}, None),
        ({"compatibility": "x" * 501}, "compatibility-length"),
        ({"compatibility": ""}, "compatibility-length"),
        ({"metadata": {"author": "someone", "version": "1.0"}}, None),
        ({"metadata": ["a", "b"]}, "metadata-values"),
        ({"metadata": "text"}, "metadata-values"),
        ({"metadata": {"deep": {"er": "x"}}}, "metadata-values"),
        ({"license": ["MIT"]}, "field-type"),
    ],
)
def test_a_breach_in_an_optional_field_is_reported_and_the_skill_kept(
    world: World, fields: dict[str, Any], code: str | None
) -> None:
    path = world.skill(f"{WORKSPACE}/probe", **fields)
    skills = discover(world)
    assert names(skills) == ["probe"]
    assert codes(skills, path, "warning") == ([code] if code else [])


@pytest.mark.behaviour("R-010", "N-086")
def test_unknown_fields_are_kept_with_their_values(world: World) -> None:
    given: dict[str, Any] = {"tags": ["a", "b"], "deep": {"list": [1, {"x": True}], "none": None}, "on": "off"}
    world.skill(f"{WORKSPACE}/probe", **given)
    skills = discover(world)
    assert skills["probe"].extra == given
    assert skills.errors == ()
    assert metier(world, "show", "probe", "--profile", "rip")["extra"] == given


# --- collisions ---


@pytest.mark.behaviour("R-012")
@pytest.mark.parametrize("order", [["one", "two", "~/three"], ["~/three", "two", "one"], ["two", "~/three", "one"]])
def test_the_first_root_in_the_order_of_precedence_wins(world: World, order: list[str]) -> None:
    written = {where: world.skill(f"{where}/same") for where in ("two", "one", "~/three")}
    for _ in range(2):
        skills = discover(world, *order)
        assert [skill.path for skill in skills] == [str(written[order[0]])]
        assert {e.skill.path for e in skills.shadowed} == {str(written[where]) for where in order[1:]}


def test_a_collision_is_a_warning_with_both_candidates(world: World) -> None:
    """The catalog's part of R-013 and R-014; events come with the session."""
    winner, loser = world.skill(f"{WORKSPACE}/z/same"), world.skill(f"{USER}/same")
    skills = discover(world)
    (warning,) = (d for d in skills.diagnostics if d.code == "collision")
    assert (warning.severity, warning.path) == ("warning", str(loser))
    assert str(winner) in warning.message
    assert skills.at(loser).path == str(loser)


def test_a_second_scan_parses_nothing_again(world: World) -> None:
    """What R-004 asks of the hot path begins here."""
    for n in range(3):
        world.skill(f"{WORKSPACE}/skill-{n}")
    time.sleep(0.05)
    skills = discover(world)
    assert skills.parsed == 3
    skills.refresh()
    assert skills.parsed == 0
    assert Path(skills["skill-0"].path).is_file()
