"""Codelia: what its search finds, in which order, and that nothing is fetched for it."""

import socket
from pathlib import Path
from typing import Any

import pytest

from calling import caller
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


TRAIN = ("release-train", 700, "prefix")
REPO = [("release", 900, "exact_name"), ("release-notes", 700, "prefix"), ("changelog", 101, "token_overlap")]
FOUND: list[tuple[dict[str, str], list[tuple[str, int, str]]]] = [
    ({"query": "release"}, [*REPO[:2], TRAIN, REPO[2]]),
    ({"query": "release", "scope": "user"}, [TRAIN]),
    ({"query": "release", "scope": "repo"}, REPO),
    ({"query": "pdf-fill"}, [("pdf-fill", 900, "exact_name")]),
    ({"query": "pdf"}, [("pdf-fill", 700, "prefix")]),
    ({"query": "form"}, [("pdf-fill", 101, "token_overlap")]),
    ({"query": "Pdf"}, [("pdf-fill", 101, "token_overlap")]),
    ({"query": "Commits, COMMITS! commits"}, [("release-notes", 101, "token_overlap")]),
    ({"query": "announce the NOTES"}, [("changelog", 102, "token_overlap"), ("release-notes", 101, "token_overlap")]),
    *(({"query": query}, []) for query in ("orm", "nothing-of-the-kind", "...", "", " ", "\n\t")),
]


@pytest.mark.behaviour("C-035", "C-036", "C-037", "C-038", "C-039", "C-040", "C-041", "C-042", "C-046")
def test_each_skill_has_the_score_of_the_highest_rule_it_meets(world: World, shelf: Skills) -> None:
    for given, expected in FOUND:
        found = shelf.session().call("skill_search", given).data
        assert (hits(found), found["count"], found["truncated"]) == (expected, len(expected), False), given
    beside = world.discover("codelia", world.project / ".agents/skills")  # where a folder of that name lies
    assert [(hit.score, hit.reason) for hit in beside.search("changelog").results] == [(900, "exact_name")]


def test_words_of_every_script_count(world: World) -> None:
    for name, description in (
        ("forms", "PDF フォームに記入します。"),
        ("travel", "Erstellt Übersichten für Reisekosten und Größen."),
        ("summary", "한국어 문서를 요약합니다."),
        ("sales", "Создаёт отчёты по продажам."),
        ("other", "Sends green enamel."),
    ):
        world.skill(f".agents/skills/{name}", description=description)
    skills = world.discover("codelia")
    for query, expected in (
        ("フォーム", ["forms"]),
        ("フォームの記入", ["forms"]),
        ("Größen", ["travel"]),
        ("U\u0308BERSICHTEN", ["travel"]),
        ("한국어", ["summary"]),
        ("Отчёты", ["sales"]),
        ("gr en", []),
        ("日本", []),
    ):
        assert [hit.skill.name for hit in skills.search(query).results] == expected, query


@pytest.mark.behaviour("C-034", "C-039")
def test_a_path_finds_its_skill_before_everything_else(world: World, shelf: Skills) -> None:
    below = ".agents/skills/release-notes/SKILL.md"
    for query in (f"{world.project}/{below}", f"../{below}", f"./../sub/../{below}"):
        found = hits(shelf.session().call("skill_search", {"query": query}).data)
        assert found[0] == ("release-notes", 1000, "exact_path")
        assert {reason for _, _, reason in found[1:]} <= {"token_overlap"}
        assert hits(metier(world, "search", query, "--profile", "codelia", cwd=world.project / "sub"))[0] == found[0]


@pytest.mark.behaviour("C-040")
def test_equal_scores_put_the_repository_first_and_go_by_path(world: World) -> None:
    for where in ("~/.agents/skills/a", "sub/.agents/skills/b", ".agents/skills/z", ".agents/skills/y/c"):
        world.skill(where, description="Common word")
    found = world.discover("codelia", world.project / "sub").search("common")
    assert [hit.skill.name for hit in found.results] == ["c", "z", "b", "a"]


@pytest.mark.behaviour("C-033", "C-099")
def test_the_search_tool_takes_query_limit_and_scope(world: World, shelf: Skills) -> None:
    tools = {one["name"]: one["input_schema"] for one in metier(world, "session", "tools", "--profile", "codelia")}
    search, load = tools["skill_search"], tools["skill_load"]
    kinds = {key: value["type"] for key, value in search["properties"].items()}
    assert kinds.pop("limit") in ("integer", "number")
    assert kinds == {"query": "string", "scope": "string"}
    assert (search["properties"]["scope"]["enum"], search["required"]) == (["repo", "user"], ["query"])
    assert {key: value["type"] for key, value in load["properties"].items()} == {"name": "string", "path": "string"}
    assert load["required"] == []
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "query"),
        ({"query": 5}, "query"),
        ({"query": "a", "limit": "3"}, "limit"),
        ({"query": "a", "scope": "all"}, "repo"),
    ]
    for given, word in wrong:
        result = shelf.session().call("skill_search", given)
        assert (result.ok, result.data["ok"], word in result.data["error"]) == (False, False, True), given


@pytest.fixture
def twins(world: World) -> list[Path]:
    """Two skills of one name."""
    about = "Draft release notes."
    return [world.skill(f"{root}.agents/skills/twin", description=about) for root in ("", "~/")]


@pytest.mark.behaviour("C-043", "N-001", "N-002")
def test_a_search_says_name_description_path_scope_reason_score_and_count(world: World, twins: list[Path]) -> None:
    session = world.discover("codelia").session()
    result = session.call("skill_search", {"query": "release"})
    found = result.data
    assert (found["query"], found["count"], found["truncated"]) == ("release", 2, False)
    for hit, path, scope in zip(found["results"], twins, ("repo", "user"), strict=True):
        assert (hit["score"], hit["reason"]) == (101, "token_overlap")
        expected = {"name": "twin", "description": "Draft release notes.", "path": str(path), "scope": scope}
        assert {key: hit["skill"][key] for key in expected} == expected
    assert result.text.split("\n") == [
        "count: 2, truncated: false",
        *("- twin: Draft release notes.", f"  path: {twins[0]}", "  scope: repo, reason: token_overlap, score: 101"),
        *("- twin: Draft release notes.", f"  path: {twins[1]}", "  scope: user, reason: token_overlap, score: 101"),
    ]
    none = session.call("skill_search", {"query": "zzz"})
    assert none.text == "count: 0, truncated: false\nNo skill matches 'zzz'."


@pytest.mark.behaviour("N-001", "N-002", "N-012", "N-013")
def test_hits_of_one_name_are_told_apart_and_a_disabled_skill_is_in_the_list_alone(
    world: World, twins: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.skill(".agents/skills/away", description="Gone release.")
    world.discover("codelia").disable("away")
    skills = world.discover("codelia")
    assert next((skill.name, skill.enabled) for skill in skills) == ("away", False)
    opened = skills.session()
    for text in (opened.system_prompt(), opened.call("skill_search", {"query": "release"}).text):
        assert ("away" in text, text.count(f"{twins[0]}")) == (False, 1)
    assert opened.call("skill_load", {"name": "away"}).ok is False
    assert "by name, or by path if names repeat.</rule>" in opened.system_prompt()
    text = opened.call("skill_search", {"query": "release", "limit": 1}).text
    assert text.startswith("count: 1, truncated: true\n")
    assert str(twins[1]) not in text
    monkeypatch.setenv("HOME", str(world.home))
    run = caller(world, capsys, monkeypatch)
    printed = run("search", "release", "--profile", "codelia").out.splitlines()
    places = [line.split()[-2:] for line in printed if "SKILL.md" in line]
    assert places == [[scope, str(path)] for path, scope in zip(twins, ("repo", "user"), strict=True)]
    found = run("search", "release", "--profile", "codelia", "--json").json
    assert [(hit["skill"]["path"], hit["skill"]["scope"], hit["reason"], hit["score"]) for hit in found["results"]] == [
        (str(path), scope, "token_overlap", 101) for path, scope in zip(twins, ("repo", "user"), strict=True)
    ]


@pytest.mark.behaviour("C-044", "C-045", "C-092")
def test_the_limit_is_clamped_and_a_cut_is_said(world: World) -> None:
    for number in range(55):
        world.skill(f".agents/skills/skill-{number}")
    both, higher = {"defaultLimit": 2, "maxLimit": 3}, {"maxLimit": 60}
    cases: list[tuple[dict[str, int], dict[float | None, int]]] = [
        ({}, {None: 8, 0: 1, -7: 1, 1: 1, 49.0: 49, 50: 50, 51: 50, 10**9: 50}),
        (both, {None: 2, 40: 3}),
        (higher, {60: 55, 55: 55}),
    ]
    for settings, counts in cases:
        session = world.discover("codelia", settings={"skills": {"search": settings}}).session()
        for limit, count in counts.items():
            given = {"query": "skill"} if limit is None else {"query": "skill", "limit": limit}
            found = session.call("skill_search", given).data
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
