"""The standard profile: project before user, lenient with fields, strict about nothing being lost."""

from pathlib import Path
from typing import Any

import pytest

from hosts.asking import codes, metier, names
from worlds import World

HERE, USER = ".agents/skills", "~/.agents/skills"

# --- where it looks ---


def test_the_chain_up_to_the_root_and_the_home_are_searched(world: World) -> None:
    for where in ("../.agents/skills/above", f"{HERE}/top", f"a/{HERE}/mid", f"a/b/{HERE}/low", f"{USER}/mine"):
        world.skill(where)
    (world.project / "a/b/c").mkdir()
    found = {s.name: s.scope for s in world.discover(cwd=world.project / "a/b/c")}
    assert found == {"low": "repo", "mid": "repo", "top": "repo", "mine": "user"}


@pytest.mark.parametrize(
    ("where", "scope", "source"),
    [
        (".claude/skills", "repo", "claude"),
        (".github/skills", "repo", "copilot"),
        (".codex/skills", "repo", "codex"),
        ("~/.claude/skills", "user", "claude"),
        ("~/.codex/skills", "user", "codex"),
    ],
)
def test_folders_of_other_clients_are_searched_when_asked_for(
    world: World, where: str, scope: str, source: str
) -> None:
    world.skill(f"{where}/foreign")
    assert names(world.discover()) == []
    skills = world.discover(settings={"toggles": {"client_folders": True}})
    assert [(s.name, s.scope, s.source) for s in skills] == [("foreign", scope, source)]


def test_skills_of_the_home_are_the_users_also_in_a_project_that_contains_it(world: World) -> None:
    inside = World(world.project / "me", world.project)
    inside.skill(f"{USER}/mine")
    inside.skill(f"{HERE}/ours")
    skills = inside.discover(cwd=world.project / "me")
    assert {s.name: s.scope for s in skills} == {"mine": "user", "ours": "repo"}


# --- what is a skill ---


@pytest.mark.parametrize(
    ("given", "name", "said"),
    [
        ({}, "probe", []),
        ({"name": "Other"}, "Other", ["name-invalid", "name-mismatch"]),
        ({"name": "x" * 65}, "x" * 65, ["name-mismatch", "name-too-long"]),
        ({"text": "---\ndescription: No name.\n---\n"}, "probe", ["name-missing"]),
        ({"description": "x" * 1025}, "probe", ["description-too-long"]),
        ({"compatibility": "x" * 501}, "probe", ["compatibility-length"]),
        ({"metadata": {"deep": {"er": 1}}}, "probe", ["metadata-values"]),
        ({"text": "---\nname: probe\ndescription: Use when: always\n---\n"}, "probe", ["yaml-repaired"]),
        ({"text": "# Title\n---\nname: probe\ndescription: Late.\n---\n"}, "probe", ["fence-repaired"]),
    ],
)
def test_most_breaches_are_warnings_and_the_skill_loads(
    world: World, given: dict[str, Any], name: str, said: list[str]
) -> None:
    path = world.skill(f"{HERE}/probe", **given)
    skills = world.discover()
    assert names(skills) == [name]
    assert sorted(codes(skills, path, "warning")) == said
    assert skills.errors == ()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("---\nname: probe\n---\n", "description-missing"),
        ("---\nname: probe\ndescription: '  '\n---\n", "description-missing"),
        ("Only a body.\n", "frontmatter-missing"),
        ("---\nname: probe\n", "frontmatter-unclosed"),
        (b"---\nname: probe\ndescription: \xff\n---\n", "not-utf8"),
        ("---\nname: probe\ndescription: a\x00b\n---\n", "nul-byte"),
        ("---\nname: ../../evil\ndescription: Leaves.\n---\n", "name-invalid"),
    ],
)
def test_what_cannot_be_used_is_an_error_and_harms_no_other(world: World, text: str | bytes, code: str) -> None:
    path = world.skill(f"{HERE}/probe", text=text)
    world.skill(f"{HERE}/good")
    skills = world.discover()
    assert names(skills) == ["good"]
    assert code in codes(skills, path, "error")
    assert (skills.counts.found, skills.counts.errors) == (2, 1)


@pytest.mark.parametrize(
    ("field", "model", "user", "enabled"),
    [
        ({"disable-model-invocation": True}, False, True, True),
        ({"user-invocable": False}, True, False, True),
        ({"hide": True}, False, True, True),
        ({"enabled": False}, True, True, False),
        ({"enabled": "false"}, True, True, True),
    ],
)
def test_a_skill_says_who_may_call_it(
    world: World, field: dict[str, Any], model: bool, user: bool, enabled: bool
) -> None:
    world.skill(f"{HERE}/probe", **field)
    skill = world.discover()["probe"]
    assert (skill.model_invocable, skill.user_invocable, skill.enabled) == (model, user, enabled)


# --- collisions and switches ---


@pytest.fixture
def rivals(world: World) -> dict[str, Path]:
    """One name on four levels, best first."""
    places = {"near": f"a/{HERE}/same", "far": f"{HERE}/x/same", "farther": f"{HERE}/y/same", "user": f"{USER}/same"}
    return {level: world.skill(where, body=f"{level}\n") for level, where in places.items()}


def test_the_nearest_scope_wins_and_the_losers_stay_within_reach(world: World, rivals: dict[str, Path]) -> None:
    cwd = world.project / "a"
    order = list(rivals.values())
    for number, winner in enumerate(order):
        skills = world.discover(cwd=cwd)
        assert [skill.path for skill in skills] == [str(winner)]
        assert sorted(e.skill.path for e in skills.shadowed) == sorted(str(path) for path in order[number + 1 :])
        for loser in order[number + 1 :]:
            assert codes(skills, loser) == ["collision"]
            assert skills.at(loser).path == str(loser)
        winner.unlink()


# --- the listing ---


def test_a_listing_accounts_for_every_file(world: World) -> None:
    world.skill(f"{HERE}/good", license="MIT", colour="green")
    winner, loser = world.skill(f"{HERE}/same"), world.skill(f"{USER}/same", body="Other.\n")
    ignored = world.skill(f"{HERE}/build")
    bad = world.skill(f"{HERE}/bad", text="Nothing.\n")
    listed = metier(world, "list")
    assert listed["profile"] == "standard"
    assert [(r["path"], r["scope"], r["source"], r["exists"], r["count"]) for r in listed["roots"]] == [
        (f"{world.project}/{HERE}", "repo", "agents", True, 2),
        (f"{world.home}/.agents/skills", "user", "agents", True, 1),
    ]
    good = listed["skills"][0]
    assert (good["name"], good["license"], good["extra"], good["enabled"]) == ("good", "MIT", {"colour": "green"}, True)
    assert [(s["path"], s["shadowed_by"]) for s in listed["shadowed"]] == [(str(loser), str(winner))]
    assert [s["path"] for s in listed["skipped"]] == [str(ignored)]
    assert [(d["path"], d["code"]) for d in listed["diagnostics"] if d["severity"] == "error"] == [
        (str(bad), "frontmatter-missing")
    ]
    assert listed["counts"] == {"found": 5, "loaded": 2, "shadowed": 1, "skipped": 1, "errors": 1}


def test_a_listing_can_be_limited_to_a_scope(world: World) -> None:
    world.skill(f"{HERE}/ours")
    world.skill(f"{USER}/mine")
    for scope, expected in (("repo", "ours"), ("user", "mine")):
        assert [skill["name"] for skill in metier(world, "list", "--scope", scope)["skills"]] == [expected]
