"""Remembered answers: one file for every session and process, each rule once, taken back at once, never lost."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metier.errors import ConfigError
from metier.hosts.settings import resolve
from metier.policy.decide import Policy, Request, Rule
from metier.policy.remembered import RememberedRules
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from worlds import World

SCRIPT = {"scripts/x.sh": "#!/bin/sh\n"}
RUN = ("skill_run", {"name": "one", "script": "scripts/x.sh"})


def answers(world: World) -> Path:
    file = world.home / ".config/metier/permissions.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def remembered(world: World) -> RememberedRules:
    config = resolve(world.project, home=world.home)
    return RememberedRules(config.answers_file, config.profile)


def session(world: World, answer: str = "") -> Session:
    """A session in which a script can be run; somebody can be asked only if there is an answer."""
    approve = (lambda _: answer) if answer else None
    opened = world.discover().session(approve=approve, runner=FakeRunner(default=Outcome(0, "exit", 1)))
    opened.load("one")
    return opened


def test_an_answer_holds_at_once_in_a_session_that_is_open(world: World) -> None:
    world.skill(".agents/skills/one", files=SCRIPT)
    waiting, asking = session(world), session(world, "always")
    assert not waiting.call(*RUN).ok
    assert asking.call(*RUN).ok
    assert waiting.call(*RUN).ok
    remembered(world).revoke()
    assert not waiting.call(*RUN).ok


def test_equal_answers_that_are_given_at_once_leave_one_rule_each(world: World) -> None:
    def remember(_: int) -> None:
        policy = Policy.configured(resolve(world.project, home=world.home))
        for number in range(20):
            policy.remember(Request("skill_load", f"skill-{number}"))

    with ThreadPoolExecutor(4) as several:
        list(several.map(remember, range(4)))
    assert answers(world).read_text().count("[[allow]]") == 20
    assert {rule.skill_name for rule in remembered(world).current().allow} == {f"skill-{n}" for n in range(20)}


def test_sessions_that_share_a_policy_share_answers_where_there_is_no_file(world: World) -> None:
    skills = world.discover()
    shared = Policy(on_remember=lambda _: None)
    first, second = skills.session(policy=shared), skills.session(policy=shared)
    first.policy.remember(Request("skill_run", "one"))
    assert second.policy.decide(Request("skill_run", "one")).verdict == "allow"
    assert not answers(world).exists()


def test_a_rule_that_a_person_writes_into_the_file_holds_at_the_next_decision(world: World) -> None:
    policy = Policy.configured(resolve(world.project, home=world.home))
    file = answers(world)
    coarse = time.time_ns() + 10**10  # a clock that does not tick between two writes
    for name in ("aaa", "bbb", "ccc"):  # of equal size, written in place
        file.write_text(f'[[deny]]\ntool = "skill_load"\nskill_name = "{name}"\n')
        os.utime(file, ns=(coarse, coarse))
        assert policy.decide(Request("skill_load", name)).verdict == "deny"
        assert policy.as_dict()["deny"] == [{"tool": "skill_load", "skill_name": name}]
    file.unlink()
    assert policy.decide(Request("skill_load", "ccc")).verdict == "allow"


def test_a_skill_that_the_file_denies_by_now_is_gone_from_an_open_session(world: World) -> None:
    world.skill(".agents/skills/one", files=SCRIPT)
    opened = session(world)
    assert "one" in opened.prompt().text
    answers(world).write_text('[[deny]]\ntool = "skill_load"\nskill_name = "one"\n')
    assert opened.prompt().text == ""
    assert not opened.call("skill_load", {"name": "one"}).ok
    answers(world).unlink()
    assert "one" in opened.prompt().text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[allow]\n", "permissions.toml:1: is not TOML"),
        ('allow = "skill_run"\n', "permissions.toml: permissions.allow must be a list"),
        (
            '[[allow]]\nskill_name = "one"\n',
            "permissions.toml: a rule in permissions.allow must be a table with a tool",
        ),
        ('profile = "full-auto"\n', "permissions.toml: unknown key profile"),
        ("[[allow]]\ntool = 1\n", "permissions.toml: a rule in permissions.allow must be a table with a tool"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it_and_no_rule_is_lost(world: World, text: str, says: str) -> None:
    world.skill(".agents/skills/one", files=SCRIPT)
    opened = session(world, "always")
    answers(world).write_text(text)
    with pytest.raises(ConfigError, match=says):
        opened.policy.decide(Request("skill_load", "one"))
    with pytest.raises(ConfigError, match=says):
        opened.load("one")
    with pytest.raises(ConfigError, match=says):
        remembered(world).revoke()
    with pytest.raises(ConfigError, match=says):
        opened.policy.remember(Request("skill_run", "one"))
    assert answers(world).read_text() == text


def test_comments_of_other_rules_survive_a_revocation_byte_for_byte(world: World) -> None:
    file = answers(world)
    file.write_text(
        "# Mine.\n\n# about one\n[[allow]]\ntool = \"skill_load\" # loads\nskill_name = 'one'\n\n"
        '# about two\n[[allow]] # two\ntool = "skill_load"\n# inside\nskill_name = "two"\n\n# On its own.\n\n'
        '[[deny]]\ntool = "skill_load"\nskill_name = "\u2028[[allow]]"\n'
    )
    two = Rule("skill_load", "two")
    assert remembered(world).revoke([two.id[:8]]) == [two]
    assert file.read_text() == (
        "# Mine.\n\n# about one\n[[allow]]\ntool = \"skill_load\" # loads\nskill_name = 'one'\n"
        '\n# On its own.\n\n[[deny]]\ntool = "skill_load"\nskill_name = "\u2028[[allow]]"\n'
    )


def test_a_rule_in_another_form_is_not_taken_out_by_force(world: World) -> None:
    text = 'allow = [{ tool = "skill_read" }]\n'
    answers(world).write_text(text)
    with pytest.raises(ConfigError, match="cannot be taken out safely"):
        remembered(world).revoke()
    assert answers(world).read_text() == text


def test_a_file_that_is_a_link_stays_one_and_keeps_its_mode(world: World, tmp_path: Path) -> None:
    mine = tmp_path / "dotfiles.toml"
    mine.write_text("# mine\n")
    mine.chmod(0o640)
    answers(world).symlink_to(mine)
    policy = Policy.configured(resolve(world.project, home=world.home))
    policy.remember(Request("skill_run", "one"))
    assert answers(world).is_symlink()
    assert mine.read_text() == '# mine\n\n[[allow]]\ntool = "skill_run"\nskill_name = "one"\n'
    assert mine.stat().st_mode & 0o777 == 0o640


def test_an_operation_goes_by_one_reading_of_the_file_and_by_what_it_adds_itself(world: World) -> None:
    mine, other = remembered(world), remembered(world)
    first, second, third = (Rule("skill_run", name) for name in ("first", "second", "third"))
    mine.add(first)

    def known() -> set[str | None]:
        return {rule.skill_name for rule in mine.current().allow}

    with mine.held():
        assert known() == {"first"}
        other.add(second)
        assert known() == {"first"}, "one operation, one set of rules"
        mine.add(third)
        assert known() == {"first", "second", "third"}, "what it added itself holds at once"
        other.revoke()
        mine.look_again()
        assert known() == set(), "after it waited for something, the file is read again"
    other.add(first)
    assert known() == {"first"}
