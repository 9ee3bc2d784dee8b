"""`metier usage` on a terminal: a table that fits, what to do where there is nothing, and what the record lacks."""

import pytest

from calling import Run, narrow_terminal
from worlds import World

SKILLS = ".agents/skills"
HOSTILE = "evil\x1b[31m\u202ename"


def test_an_empty_record_says_what_to_do(run: Run, world: World) -> None:
    empty = run("usage")
    assert (empty.code, empty.out) == (0, "")
    assert "no session is recorded; load a skill, or give your agent `metier mcp`" in empty.err
    assert run("usage", "--json").json["skills"] == []
    assert "since 7d" in run("usage", "--since", "7d").err


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


def test_one_skill_is_shown_alone(mixed: World, run: Run) -> None:
    run("load", "pdf", "--session", "talk")
    run("load", "xlsx", "--session", "talk")
    shown = run("usage", "--skill", "pdf").out
    assert "pdf" in shown
    assert "xlsx" not in shown
    unknown = run("usage", "--skill", "nope")
    assert (unknown.code, unknown.out) == (1, "")
    assert "none of 1 session offered, found or used the skill 'nope'" in unknown.err
    assert run("usage", "--skill", "nope", "--json").code == 1


def test_what_the_record_does_not_say_is_said(mixed: World, run: Run) -> None:
    run("load", "pdf", "--session", "first")
    config = mixed.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("[permissions]\nredact = true\n")
    run("load", "xlsx", "--session", "second")
    shown = " ".join(run("usage").out.split())
    assert "note: 1 session kept no texts, so their characters are not counted" in shown


def test_only_a_prompt_for_a_session_is_an_offer(mixed: World, run: Run) -> None:
    """A person who looks at a prompt is no model."""
    for options in ([], ["--full"], ["--session", "talk"], ["--session", "talk", "--full"]):
        assert run("prompt", *options).code == 0
    found = run("usage", "--json").json
    assert found["sessions"] == 3
    assert {one["offered"] for one in found["skills"]} == {1}
    assert run("usage", "--session", "talk", "--json").json["sessions"] == 1


@pytest.mark.parametrize(("option", "code"), [(["--since", "soon"], 2), (["--sort", "x"], 2), (["--session", "x"], 1)])
def test_wrong_options_end_with_a_line_that_says_what_works(run: Run, option: list[str], code: int) -> None:
    result = run("usage", *option)
    assert (result.code, result.out) == (code, "")
    assert any(word in result.err for word in ("30m, 12h, 7d", "'context'", "metier session store stats"))


def test_no_control_character_of_a_name_reaches_the_terminal(world: World, run: Run) -> None:
    world.skill(f"{SKILLS}/evil", name=HOSTILE, description="Turns \x1b[2J.")
    run("prompt", "--session", "talk")
    for options in ([], ["--skill", HOSTILE]):
        shown = run("usage", *options)
        assert not set("\x1b\u202e") & set(shown.out + shown.err)
