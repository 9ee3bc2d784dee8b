"""`metier policy list` and `revoke`: every rule in force with its origin, and answers that are taken back for good."""

import re
from pathlib import Path

import pytest

from calling import Run
from metier.policy.rules import Rule
from worlds import World

DIGEST = f"sha256:{'ab' * 32}"
LONG = "release-notes-of-today"


@pytest.fixture
def file(world: World) -> Path:
    """The user's answers: two rules and a comment; and rules of the user and the project beside them."""
    user, project = world.home / ".config/metier", world.project / ".metier"
    user.mkdir(parents=True)
    project.mkdir()
    (user / "config.toml").write_text('[permissions]\nallow = [{ tool = "skill_read", path = "references/*" }]\n')
    (project / "config.toml").write_text('[permissions]\nask = [{ tool = "skill_load" }]\nallow = [{ tool = "x" }]\n')
    answers = user / "permissions.toml"
    answers.write_text(
        '# kept\n\n[[allow]]\ntool = "skill_run"\nskill_name = "release-notes-of-today"\n'
        f'digest = "{DIGEST}"\n'
        '\n[[allow]]\ntool = "skill_load"\nskill_name = "pdf"\n\n[[deny]]\ntool = "skill_load"\nskill_name = "bad"\n'
    )
    return answers


def test_every_rule_in_force_is_listed_with_its_origin(world: World, file: Path, run: Run) -> None:
    shown = run("policy", "list", "--json").json
    assert (shown["policy"], shown["unasked"], len(shown["warnings"])) == ("default", "refuse", 3), "no skill is here"
    by_user, by_project = str(world.home / ".config/metier/config.toml"), str(world.project / ".metier/config.toml")
    run_rule, load_rule = Rule("skill_run", LONG, digest=DIGEST), Rule("skill_load", "pdf")
    assert shown["rules"] == [
        {"verdict": "deny", "tool": "skill_load", "skill_name": "bad", "origin": str(file)},
        {"verdict": "allow", "tool": "skill_read", "path": "references/*", "origin": by_user},
        {"verdict": "allow", **run_rule.as_dict(), "origin": str(file), "id": run_rule.id},
        {"verdict": "allow", **load_rule.as_dict(), "origin": str(file), "id": load_rule.id},
        {"verdict": "ask", "tool": "skill_load", "origin": by_project},
    ]
    text = run("policy", "list").out
    assert "sha256" not in text[: text.index("answers: ")]
    assert re.search(rf": only {DIGEST}$", text, re.MULTILINE), "whole digests follow the table"
    assert re.search(rf"^{load_rule.id[:8]} +allow +skill_load +answers +pdf$", text, re.MULTILINE)
    assert f"\nproject: {by_project}\n" in text


def test_a_revoked_answer_is_gone_and_nothing_else(world: World, file: Path, run: Run) -> None:
    wanted = Rule("skill_load", "pdf").id
    done = run("policy", "revoke", wanted[:8])
    assert (done.code, done.out) == (0, f"revoked {wanted[:8]}: tool = 'skill_load', skill_name = 'pdf'\n")
    assert 'skill_name = "pdf"' not in file.read_text()
    assert file.read_text().startswith('# kept\n\n[[allow]]\ntool = "skill_run"\n')
    assert [rule["tool"] for rule in run("policy", "list", "--json").json["rules"]] == [
        "skill_load",
        "skill_read",
        "skill_run",
        "skill_load",
    ]
    everything = run("policy", "revoke", "--all", "--json").json["revoked"]
    assert [rule["tool"] for rule in everything] == ["skill_run"]
    assert file.read_text() == '# kept\n\n[[deny]]\ntool = "skill_load"\nskill_name = "bad"\n'
    assert run("policy", "revoke", "--all").out == "there are no remembered answers\n"


def test_a_mistake_is_one_line_and_changes_nothing(file: Path, run: Run) -> None:
    before = file.read_text()
    for arguments, says in (
        (("0123456789",), "no remembered answer has the id '0123456789'"),
        (("",), "no remembered answer has the id ''"),
        ((), "either ID... or --all"),
        (("abc", "--all"), "either ID... or --all"),
    ):
        done = run("policy", "revoke", *arguments)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), arguments
        assert says in done.err
    assert file.read_text() == before
    file.write_text("[[allow]\n")
    for line in ("list", "show", "revoke --all", "explain skill_load"):
        done = run("policy", *line.split())
        assert (done.code, f"{file}:1: is not TOML" in done.err) == (2, True), line


def test_explain_says_what_the_active_skills_of_a_session_leave_usable(world: World, run: Run) -> None:
    world.skill(".agents/skills/reader", allowed_tools="Read")
    run("load", "reader", "--session", "s")
    of_s = ("--session", "s")
    for tool, session, code in (
        ("Bash", (), 0),
        ("Bash", of_s, 3),
        ("skill_run", of_s, 3),
        ("Read", of_s, 0),
        ("skill_load", of_s, 0),  # skills stay under policy alone
    ):
        assert run("policy", "explain", tool, *session).code == code, tool
    assert run("policy", "explain", "Bash", *of_s).out.startswith("deny: the skill reader is active")
    run("session", "end-turn", *of_s)
    assert run("policy", "explain", "Bash", *of_s).code == 0
