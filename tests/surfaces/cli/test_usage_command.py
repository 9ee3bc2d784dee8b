"""`metier usage` on a terminal: a table that fits, what to do where there is nothing, and what the record lacks."""

import pytest

from calling import Run, narrow_terminal
from worlds import World

SKILLS = ".agents/skills"


def test_an_empty_record_and_wrong_options_say_what_to_do(run: Run, world: World) -> None:
    empty = run("usage")
    assert (empty.code, empty.out) == (0, "")
    assert "no session is recorded; load a skill, or give your agent `metier mcp`" in empty.err
    assert "since 7d" in run("usage", "--since", "7d").err
    for option, code, says in (
        ("--since soon", 2, "30m, 12h, 7d"),
        ("--sort x", 2, "'context'"),
        ("--session x", 1, "metier session store stats"),
    ):
        result = run("usage", *option.split())
        assert (result.code, result.out, says in result.err) == (code, "", True), option


def test_one_skill_is_shown_alone_and_what_the_record_does_not_say_is_said(mixed: World, run: Run) -> None:
    run("load", "pdf", "--session", "first")
    unknown = run("usage", "--skill", "nope")
    assert (unknown.code, unknown.out) == (1, "")
    assert "none of 1 session offered, found or used the skill 'nope'" in unknown.err
    mixed.configure_user("[permissions]\nredact = true\n")
    run("load", "xlsx", "--session", "second")
    shown = " ".join(run("usage", "--skill", "pdf").out.split())
    assert ("pdf" in shown, "xlsx" in shown) == (True, False)
    assert "note: 1 session kept no texts, so their characters are not counted" in " ".join(run("usage").out.split())


def test_only_a_prompt_for_a_session_is_an_offer(mixed: World, run: Run) -> None:
    """A person who looks at a prompt is no model."""
    for options in ([], ["--full"], ["--session", "talk"], ["--session", "talk", "--full"]):
        assert run("prompt", *options).code == 0
    found = run("usage", "--json").json
    assert (found["sessions"], {one["offered"] for one in found["skills"]}) == (3, {1})
    assert run("usage", "--session", "talk", "--json").json["sessions"] == 1


def test_the_table_has_a_row_for_each_skill_and_names_the_dead_weight(
    mixed: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow_terminal(monkeypatch)
    mixed.skill(f"{SKILLS}/a-skill-with-a-name-that-is-much-longer-than-a-column", description="Waits. " * 20)
    run("prompt", "--session", "talk")
    run("search", "forms", "--session", "talk")
    run("session", "call", "skill_load", '{"name": "pdf"}', "--session", "talk")
    shown = run("usage").out
    lines = shown.splitlines()
    assert lines[0].split() == ["SKILL", "OFFERED", "FOUND", "LOADED", "READ", "RAN", "REFUSED", "CONTEXT", "LAST"]
    assert max(map(len, lines)) <= 80
    (row,) = [line.split() for line in lines if line.startswith("pdf")]
    assert row[:4] == ["pdf", "1", "1", "1"]
    assert row[-1] == "now"
    assert "offered and never loaded: a-skill-with-a-name-that-is-much-longer-than-a-column," in shown
    assert "note:" not in shown
    cut = run("usage", "--limit", "1").out
    assert "2 more skills are not shown; --limit 0 shows all" in cut
    assert len(run("usage", "-q").out.splitlines()) == 4
    assert run("usage", "--limit", "0", "--sort", "name").out.index("\npdf") > 0
