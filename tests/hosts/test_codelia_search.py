"""Codelia: what its search finds, in which order, and that nothing is fetched for it."""

import os
import socket
from typing import Any

import pytest

from hosts.asking import left, listening, metier
from metier import Skills
from worlds import World


@pytest.fixture
def shelf(world: World) -> Skills:
    world.skill(".agents/skills/release-notes", description="Draft notes from commits")
    world.skill(".agents/skills/changelog", description="Prepare a Release, with notes; then announce.")
    world.skill(".agents/skills/release", description="Ship it.")
    world.skill("~/.agents/skills/release-train", description="Plan trains.")
    world.skill("~/.agents/skills/pdf-fill", description="Fill a form.")
    (world.project / "sub").mkdir()
    return world.discover("codelia", world.project / "sub")


def hits(found: Any) -> list[tuple[str, int, str]]:
    return [(hit["skill"]["name"], hit["score"], hit["reason"]) for hit in found["results"]]


NOTES = "../.agents/skills/release-notes/SKILL.md"


@pytest.mark.behaviour("C-035", "C-036", "C-037", "C-038", "C-039", "C-040", "C-046")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "release",
            [
                ("release", 900, "exact_name"),
                ("release-notes", 700, "prefix"),
                ("release-train", 700, "prefix"),
                ("changelog", 101, "token_overlap"),
            ],
        ),
        ("pdf-fill", [("pdf-fill", 900, "exact_name")]),
        ("pdf", [("pdf-fill", 700, "prefix")]),
        ("form", [("pdf-fill", 101, "token_overlap")]),
        ("Commits, COMMITS! commits", [("release-notes", 101, "token_overlap")]),
        ("announce the NOTES", [("changelog", 102, "token_overlap"), ("release-notes", 101, "token_overlap")]),
        ("orm", []),
        ("Pdf", [("pdf-fill", 101, "token_overlap")]),
        ("nothing-of-the-kind", []),
        ("...", []),
    ],
)
def test_each_skill_has_the_score_of_the_highest_rule_it_meets(
    shelf: Skills, query: str, expected: list[tuple[str, int, str]]
) -> None:
    assert hits(shelf.session().call("skill_search", {"query": query}).data) == expected


@pytest.mark.behaviour("C-034", "C-039")
@pytest.mark.parametrize("form", ["absolute", "relative", "roundabout"])
def test_a_path_finds_its_skill_before_everything_else(world: World, shelf: Skills, form: str) -> None:
    path = str(world.project / ".agents/skills/release-notes/SKILL.md")
    query = {"absolute": path, "relative": NOTES, "roundabout": f"./../sub/{NOTES}"}[form]
    found = hits(shelf.session().call("skill_search", {"query": query}).data)
    assert found[0] == ("release-notes", 1000, "exact_path")
    assert [reason for _, _, reason in found[1:]] == ["token_overlap"] * (len(found) - 1)
    assert hits(metier(world, "search", query, "--profile", "codelia", cwd=world.project / "sub"))[0] == found[0]


@pytest.mark.behaviour("C-035")
def test_a_name_is_a_name_even_where_a_folder_of_that_name_lies_beside_it(world: World, shelf: Skills) -> None:
    here = world.discover("codelia", world.project / ".agents/skills")
    assert [(hit.score, hit.reason) for hit in here.search("changelog").results] == [(900, "exact_name")]


@pytest.mark.behaviour("C-040")
def test_equal_scores_put_the_repository_first_and_go_by_path(world: World) -> None:
    for where in (
        "~/.agents/skills/a",
        "sub/.agents/skills/b",
        ".agents/skills/z",
        ".agents/skills/y/c",
        "~/.agents/skills/d",
    ):
        world.skill(where, description="Common word")
    found = world.discover("codelia", world.project / "sub").search("common")
    assert [hit.skill.name for hit in found.results] == ["c", "z", "b", "a", "d"]


@pytest.mark.behaviour("C-041")
@pytest.mark.parametrize("query", ["", " ", "\n\t"])
def test_an_empty_query_finds_nothing(shelf: Skills, query: str) -> None:
    found = shelf.session().call("skill_search", {"query": query}).data
    assert (found["count"], found["results"], found["truncated"]) == (0, [], False)


@pytest.mark.behaviour("C-042")
@pytest.mark.parametrize(
    ("scope", "expected"), [("user", ["release-train"]), ("repo", ["release", "release-notes", "changelog"])]
)
def test_a_scope_limits_the_search(shelf: Skills, scope: str, expected: list[str]) -> None:
    found = shelf.session().call("skill_search", {"query": "release", "scope": scope}).data
    assert [hit["skill"]["name"] for hit in found["results"]] == expected


@pytest.mark.behaviour("C-033", "C-099")
def test_the_search_tool_takes_query_limit_and_scope(world: World, shelf: Skills) -> None:
    tools = {tool["name"]: tool["input_schema"] for tool in metier(world, "tools", "--profile", "codelia")}
    kinds = {key: value["type"] for key, value in tools["skill_search"]["properties"].items()}
    assert kinds.pop("limit") in ("integer", "number")
    assert kinds == {"query": "string", "scope": "string"}
    assert tools["skill_search"]["properties"]["scope"]["enum"] == ["repo", "user"]
    assert tools["skill_search"]["required"] == ["query"]
    load = {key: value["type"] for key, value in tools["skill_load"]["properties"].items()}
    assert load == {"name": "string", "path": "string"}
    assert tools["skill_load"]["required"] == []


@pytest.mark.behaviour("C-033")
@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "query"),
        ({"query": 5}, "query"),
        ({"query": "a", "limit": "3"}, "limit"),
        ({"query": "a", "scope": "all"}, "repo"),
    ],
)
def test_a_wrong_argument_of_a_search_gives_a_result_that_names_it(
    shelf: Skills, given: dict[str, Any], word: str
) -> None:
    result = shelf.session().call("skill_search", given)
    assert (result.ok, result.data["ok"]) == (False, False)
    assert word in result.data["error"]


@pytest.mark.behaviour("C-043")
def test_a_search_result_has_the_shape_of_the_seed(shelf: Skills) -> None:
    found = shelf.session().call("skill_search", {"query": "form"}).data
    assert list(found) == ["query", "count", "truncated", "results"]
    (hit,) = found["results"]
    assert {"score", "reason", "skill"} == set(hit)
    assert {key: hit["skill"][key] for key in ("name", "description", "path", "scope")} == {
        "name": "pdf-fill",
        "description": "Fill a form.",
        "path": f"{os.environ['HOME']}/.agents/skills/pdf-fill/SKILL.md",
        "scope": "user",
    }


@pytest.mark.behaviour("C-044", "C-045", "C-092")
@pytest.mark.parametrize(
    ("limit", "settings", "count"),
    [
        (None, {}, 8),
        (0, {}, 1),
        (-7, {}, 1),
        (1, {}, 1),
        (49.0, {}, 49),
        (50, {}, 50),
        (51, {}, 50),
        (10**9, {}, 50),
        (None, {"defaultLimit": 2, "maxLimit": 3}, 2),
        (40, {"defaultLimit": 2, "maxLimit": 3}, 3),
        (60, {"maxLimit": 60}, 55),
        (55, {"maxLimit": 60}, 55),
    ],
)
def test_the_limit_is_clamped_and_a_cut_is_said(
    world: World, limit: float | None, settings: dict[str, int], count: int
) -> None:
    for number in range(55):
        world.skill(f".agents/skills/skill-{number}")
    given = {"query": "skill"} if limit is None else {"query": "skill", "limit": limit}
    skills = world.discover("codelia", settings={"skills": {"search": settings}})
    found = skills.session().call("skill_search", given).data
    assert (found["count"], len(found["results"]), found["truncated"]) == (count, count, count < 55)


@pytest.mark.behaviour("C-007")
def test_nothing_is_fetched_by_discovery_search_and_load(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def refuse(*given: object) -> None:
        tried.append(given)
        raise OSError("no network")

    def everything() -> tuple[object, ...]:
        opened = world.discover("codelia").session()
        unknown = opened.call("skill_load", {"name": "remote-only"})
        found, loaded = opened.call("skill_search", {"query": "remote"}), opened.call("skill_load", {"name": "probe"})
        return opened.prompt(), found.data, loaded.data, unknown.data

    world.skill(".agents/skills/probe", description="See https://example.invalid/remote", body="git@example.invalid:x")
    before = everything()
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with listening() as heard:
        assert everything() == before
    assert (tried, left(heard)) == ([], [])
