"""`metier policy list` and `revoke`: every rule in force with its origin, and answers that are taken back for good."""

import re
from pathlib import Path

import pytest

from calling import Run
from metier.policy.rules import Rule
from worlds import World

DIGEST = f"sha256:{'ab' * 32}"


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
    long = "release-notes-of-today"
    assert shown["rules"] == [
        {"verdict": "deny", "tool": "skill_load", "skill_name": "bad", "origin": str(file)},
        {
            "verdict": "allow",
            "tool": "skill_read",
            "path": "references/*",
            "origin": str(world.home / ".config/metier/config.toml"),
        },
        {
            "verdict": "allow",
            "tool": "skill_run",
            "skill_name": long,
            "digest": DIGEST,
            "origin": str(file),
            "id": Rule("skill_run", long, digest=DIGEST).id,
        },
        {
            "verdict": "allow",
            "tool": "skill_load",
            "skill_name": "pdf",
            "origin": str(file),
            "id": Rule("skill_load", "pdf").id,
        },
        {"verdict": "ask", "tool": "skill_load", "origin": str(world.project / ".metier/config.toml")},
    ]


def test_the_table_has_short_ids_and_whole_digests_follow_it(world: World, file: Path, run: Run) -> None:
    text = run("policy", "list").out
    table = text[: text.index("answers: ")]
    assert "sha256" not in table
    assert re.search(rf": only {DIGEST}$", text, re.MULTILINE)
    assert re.search(rf"^{Rule('skill_load', 'pdf').id[:8]} +allow +skill_load +answers +pdf$", text, re.MULTILINE)
    assert re.search(r"^ +deny +skill_load +answers +bad$", text, re.MULTILINE)
    assert "\nanswers: ~/.config/metier/permissions.toml\n" in text
    assert f"\nproject: {world.project}/.metier/config.toml\n" in text


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("0123456789",), "no remembered answer has the id '0123456789' (see `metier policy list`)"),
        ((), "name the answers to take back (either ID... or --all)"),
        (("abc", "--all"), "name the answers to take back (either ID... or --all)"),
        (("",), "no remembered answer has the id ''"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(file: Path, run: Run, arguments: tuple[str, ...], says: str) -> None:
    before = file.read_text()
    done = run("policy", "revoke", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err
    assert file.read_text() == before


def test_a_broken_file_is_named(file: Path, run: Run) -> None:
    file.write_text("[[allow]\n")
    for command in (("list",), ("show",), ("revoke", "--all"), ("explain", "skill_load")):
        done = run("policy", *command)
        assert done.code == 2
        assert f"{file}:1: is not TOML" in done.err


def test_explain_says_what_the_active_skills_of_a_session_leave_usable(world: World, run: Run) -> None:
    world.skill(".agents/skills/reader", allowed_tools="Read")
    run("load", "reader", "--session", "s")
    assert run("policy", "explain", "Bash").code == 0
    refused = run("policy", "explain", "Bash", "--session", "s")
    assert refused.code == 3
    assert refused.out.startswith("deny: the skill reader is active")
    assert run("policy", "explain", "skill_run", "--session", "s").code == 3
    assert run("policy", "explain", "Read", "--session", "s").code == 0
    assert run("policy", "explain", "skill_load", "--session", "s").code == 0, "skills stay under policy alone"
    run("session", "end-turn", "--session", "s")
    assert run("policy", "explain", "Bash", "--session", "s").code == 0
