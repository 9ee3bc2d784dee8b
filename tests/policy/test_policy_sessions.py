"""Policy in a session: what is denied is not there, whatever a skill says or proposes."""

import pytest

from metier import replay
from metier.errors import PolicyDenied
from metier.policy.decide import Policy
from metier.record.store.memory import MemoryStore
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from people import frames
from worlds import World

SCRIPT = {"scripts/x.sh": "#!/bin/sh\n"}


def ran() -> FakeRunner:
    return FakeRunner(default=Outcome(0, "exit", 1, b"ran", b""))


def test_sessions_share_rules_but_no_window(world: World) -> None:
    world.skill(".agents/skills/one", allowed_tools="Read")
    skills = world.discover()
    rules = Policy.from_settings({"tools": ["Read", "Bash"]}, skills.profile)
    one, two = skills.session(policy=rules), skills.session(policy=rules)
    one.load("one")
    two.end_turn()
    assert (one.may_use("Bash"), two.may_use("Bash")) == (False, True)


def test_a_rule_about_one_skill_holds_in_its_window_also_without_a_hint(world: World) -> None:
    world.skill(".agents/skills/one")
    session = world.discover().session(
        policy={"tools": ["Bash", "Read"], "deny": [{"tool": "Bash", "skill_name": "one"}]}
    )
    assert session.may_use("Bash")
    session.load("one")
    assert not session.may_use("Bash")
    assert frames(session, "skill_invoked")[0]["effective_allowed_tools"] == ["Read"]
    session.end_turn()
    assert session.may_use("Bash")


# --- denied means not there ---


def test_running_a_script_does_not_load_a_skill_that_is_denied(world: World) -> None:
    world.skill(".agents/skills/one", files=SCRIPT)
    rules = {"allow": [{"tool": "skill_run"}], "deny": [{"tool": "skill_load", "skill_name": "one"}]}
    runner = ran()
    session = world.discover().session(policy=rules, runner=runner)
    with pytest.raises(PolicyDenied):
        session.run("one", "scripts/x.sh")
    assert runner.jobs == []
    assert frames(session, "skill_loaded") == []


def test_of_two_skills_of_one_name_the_model_knows_only_the_one_that_is_not_denied(world: World) -> None:
    mine, other = world.skill("~/.agents/skills/twin", body="MINE"), world.skill(".agents/skills/twin", body="OTHER")
    rules = {"deny": [{"tool": "skill_load", "path": f"{world.project}/*"}]}
    session = world.discover("codelia").session(policy=rules)
    result = session.call("skill_load", {"name": "twin"})
    assert "MINE" in result.text
    assert str(other) not in f"{result.data}{session.system_prompt()}"
    both = world.discover("codelia").session(policy={"deny": [{"tool": "skill_load", "skill_name": "twin"}]})
    refused = both.call("skill_load", {"name": "twin"})
    assert not refused.ok
    assert not any(str(path) in str(refused.data) for path in (mine, other))


@pytest.mark.behaviour("R-029")
@pytest.mark.parametrize("name", ["default", "read-only", "full-auto"])
def test_a_policy_other_than_the_default_is_an_event(world: World, name: str) -> None:
    world.skill(".agents/skills/one")
    store = MemoryStore()
    session = world.discover().session(policy={"profile": name}, store=store)
    chosen = [] if name == "default" else [name]
    assert [frame["policy"] for frame in frames(session, "policy_chosen")] == chosen
    again = replay.replay(replay.from_store(store, session.id))
    assert again.identical
    assert [frame["policy"] for frame in again.frames if frame["type"] == "policy_chosen"] == chosen
