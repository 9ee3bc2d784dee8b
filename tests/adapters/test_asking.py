"""The questions before a call are the questions that the call asks."""

import random

import pytest
from scenario import LOAD, RUN, runner, skills

from metier.policy.decide import Request
from metier.session.approvals import Answers, questions
from metier.session.session import Session
from recording import PROFILES, discover, fake_runner
from worlds import World

ASK_ALL = {"ask": [{"tool": "skill_load"}, {"tool": "skill_read"}, {"tool": "skill_run"}]}


def calls(seed: int, session: Session) -> list[tuple[str, dict[str, object]]]:
    chance = random.Random(seed)
    tools = session.profile.tools
    names = [tools.load, tools.read, tools.run, tools.search, tools.output, "nothing", ""]
    paths = ["references/a.md", "../x", "none", ".", "SKILL.md", "./references//a.md", "%2e%2e/x", "scripts/x.sh"]
    made: list[tuple[str, dict[str, object]]] = []
    for _ in range(300):
        name = f"s{chance.randrange(14)}"
        cases: list[dict[str, object]] = [
            {"name": name},
            {"name": name, "path": chance.choice(paths)},
            {"path": f"skill://{name}/references/a.md"},
            {"path": f"skill://{name}"},
            {"name": "broken"},
            {},
            {"name": 3},
            {"query": "body"},
            {"path": str(session.skills.catalog.skills[0].path)},
            {"ref": "none"},
            {"name": name, "script": "scripts/x.sh"},
            {"name": name, "script": "scripts/x.sh", "arguments": ["1"]},
            {"name": name, "script": "../x.sh"},
            {"name": name, "script": "bin.dat", "arguments": "1"},
        ]
        given = chance.choice(cases)
        made.append((chance.choice(list(filter(None, names[:3])) if chance.random() < 0.8 else names), given))
    return made


@pytest.mark.parametrize("profile", PROFILES)
def test_the_question_ahead_is_the_question_of_the_call(world: World, profile: str) -> None:
    asked: list[Request] = []
    session = discover(world, profile).session(
        policy=ASK_ALL, runner=fake_runner(), approve=lambda request: not asked.append(request)
    )
    count = 0
    for tool, given in calls(1, session):
        asked.clear()
        ahead = questions(session, tool, given)
        before = len(session.events)
        assert questions(session, tool, given) == ahead
        assert len(session.events) == before
        session.call(tool, given)
        assert asked == list(ahead), (tool, given)
        count += len(ahead)
    assert count >= 10


def test_an_answer_holds_for_one_request_and_one_call(world: World) -> None:
    answers = Answers()
    fake = runner()
    session = skills(world).session(approve=answers, runner=fake)
    session.call(*LOAD)
    with answers.given(questions(session, *RUN), True):
        assert not session.call("skill_run", {**RUN[1], "arguments": ["elm"]}).ok
        assert session.call(*RUN).ok
        assert not session.call(*RUN).ok
    with answers.given(questions(session, *RUN), True):
        pass
    assert not session.call(*RUN).ok
    assert [job.argv for job in fake.jobs] == [("oak",)]
    said = [frame["answer"] for frame in session.events if frame["type"] == "policy_asked"]
    assert said == ["unanswered", "once", "unanswered", "unanswered"]


def test_a_rule_that_allows_or_denies_leaves_no_question(world: World) -> None:
    found = skills(world)
    for rules in ({"allow": [{"tool": "skill_run"}]}, {"deny": [{"tool": "skill_run"}]}):
        session = found.session(policy=rules, approve=Answers(), runner=runner())
        session.call(*LOAD)
        assert questions(session, *RUN) == ()
