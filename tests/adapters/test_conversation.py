"""A request contains each loaded skill once: in the messages, put back, or by its ref if it does not fit."""

import json

from scenario import LOAD, MARK, RUN, runner, skills

from metier.adapters.conversation import Conversation, describe, shown
from metier.policy.decide import Request
from metier.session.approvals import Answers
from worlds import World


def test_what_does_not_fit_is_named_by_its_ref_and_the_newest_comes_first(world: World) -> None:
    found = skills(world)
    one = Conversation(found.session(), restore=450)
    old, new = (one.call("skill_load", {"name": name}) for name in ("carpentry", "knots"))
    assert len(old.text) + len(new.text) > 450
    back = one.restored([])
    assert "Over, under, through." in back
    assert MARK not in back
    assert f"as ref {old.data['ref']}. Read it again with `skill_output`" in back
    assert Conversation(one.session, restore=10).restored([]) == ""


def test_a_skill_that_changed_on_disk_is_not_put_back_in_its_new_form(world: World) -> None:
    found = skills(world)
    session = found.session()
    session.call(*LOAD)
    again = found.session(state=json.loads(json.dumps(session.state())))
    world.skill(".agents/skills/carpentry", body="# Other\nWords.\n")
    one = Conversation(again)
    assert one.restored([]) == ""
    assert "Words." in one.call(*LOAD).text


def test_a_call_that_waits_is_shown_the_same_until_it_is_answered(world: World) -> None:
    one = Conversation(skills(world).session(approve=Answers(), runner=runner()))
    one.call(*LOAD)
    (asked,) = one.questions(*RUN)
    assert asked.command == "scripts/saw.sh oak"
    (world.project / ".agents/skills/carpentry/scripts/saw.sh").write_text("#!/bin/sh\necho other\n")
    assert one.questions(*RUN) == (asked,)
    assert not one.call(*RUN, answer=True).ok
    (fresh,) = one.questions(*RUN)
    assert fresh.digest != asked.digest
    assert one.call(*RUN, answer=True).ok


def test_a_refusal_of_the_framework_is_recorded_once(world: World) -> None:
    one = Conversation(skills(world).session(approve=Answers(), runner=runner()))
    one.call(*LOAD)
    assert one.questions(*RUN, call_id="7")
    one.settle(["6"])
    one.settle(["7"])
    one.settle(["7"])
    assert [frame["answer"] for frame in one.session.events if frame["type"] == "policy_asked"] == ["no"]


def test_the_arguments_of_an_approval_are_quoted_wherever_they_are_shown() -> None:
    given = ("two words", "; rm -rf /", "")
    path = "scripts/cut it.sh"
    for arguments, quoted in ((given, r"'scripts/cut it.sh' 'two words' '; rm -rf /' ''"), ((), "'scripts/cut it.sh'")):
        request = Request("skill_run", "saw", path, " ".join((path, *arguments)), arguments=arguments)
        assert shown([request])[0]["command"] == quoted
        assert f"Command {quoted}" in describe([request]).split("\n")
