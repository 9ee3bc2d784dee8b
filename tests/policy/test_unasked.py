"""Where nobody can be asked: what a person requests needs no confirmation, and a model is told what would allow it."""

from typing import Any

import pytest

from metier.errors import ConfigError, PolicyDenied
from metier.policy.decide import Policy
from metier.record.store.memory import MemoryStore
from metier.replay import from_store, replay
from metier.running.sandbox import Outcome
from metier.running.sandbox.fake import FakeRunner
from metier.session.session import Session
from worlds import World

ASK = [{"tool": tool} for tool in ("skill_load", "skill_read", "skill_run")]
CALLS: dict[str, tuple[str, dict[str, object]]] = {
    "skill_load": ("skill_load", {"name": "one"}),
    "skill_read": ("skill_read", {"name": "one", "path": "a.md"}),
    "skill_run": ("skill_run", {"name": "one", "script": "scripts/x.sh"}),
}


def opened(world: World, policy: dict[str, Any], store: MemoryStore | None = None) -> Session:
    world.skill(".agents/skills/one", files={"scripts/x.sh": "#!/bin/sh\n", "a.md": "TEXT"})
    runner = FakeRunner(default=Outcome(0, "exit", 1, b"RAN"))
    return world.discover().session(policy=policy, store=store, runner=runner)


def test_what_a_person_names_is_its_own_yes_and_a_rule_still_denies_it(world: World) -> None:
    session = opened(world, policy={"ask": ASK})
    assert session.load("one").text
    assert session.read("one", "a.md").text == "TEXT"
    assert session.run("one", "scripts/x.sh").stdout == "RAN"
    assert session.invoke("/one now").skill is not None
    denied = opened(world, policy={"ask": ASK, "deny": [{"tool": "skill_read"}, {"tool": "skill_run"}]})
    with pytest.raises(PolicyDenied, match="deny rule"):
        denied.run("one", "scripts/x.sh")
    with pytest.raises(PolicyDenied, match="deny rule"):
        denied.read("one", "a.md")


@pytest.mark.parametrize(
    ("unasked", "allowed"),
    [("refuse", []), ("loads", ["skill_load", "skill_read"]), ("allow", ["skill_load", "skill_read", "skill_run"])],
)
def test_a_models_call_follows_the_setting(world: World, unasked: str, allowed: list[str]) -> None:
    store = MemoryStore()
    session = opened(world, policy={"ask": ASK, "unasked": unasked}, store=store)
    session.load("one")
    assert [tool for tool, call in CALLS.items() if session.call(*call).ok] == allowed
    assert replay(from_store(store, session.id)).identical


@pytest.mark.parametrize("tool", list(CALLS))
def test_a_refused_model_is_told_the_rule_that_would_allow_it_and_that_rule_does(world: World, tool: str) -> None:
    session = opened(world, policy={"ask": ASK})
    session.load("one")
    refused = session.call(*CALLS[tool])
    assert not refused.ok
    assert "nobody can be asked here" in refused.text
    rule = refused.text.partition("allow = [")[2].partition("]")[0]
    asks = ", ".join(f'{{ tool = "{one}" }}' for one in CALLS)
    world.configure_user(f"[permissions]\nask = [{asks}]\nallow = [{rule}]\n")
    after = world.discover().session(runner=FakeRunner(default=Outcome(0, "exit", 1)))
    after.load("one")
    assert [one for one, call in CALLS.items() if after.call(*call).ok] == [tool]


def test_a_wrong_value_is_a_configuration_error(world: World) -> None:
    with pytest.raises(ConfigError, match=r"permissions\.unasked cannot be 'maybe'"):
        Policy.from_settings({"unasked": "maybe"}, world.discover().profile)


def test_a_call_that_a_rule_or_the_default_denies_says_how_to_lift_that(world: World) -> None:
    denied = opened(world, policy={"deny": [{"tool": "skill_read"}]})
    told = denied.call(*CALLS["skill_read"]).text
    assert "deny rule: tool = 'skill_read'); only the user or the host can lift that rule; `metier policy list`" in told
    for policy in ({"profile": "read-only"}, {}):
        session = opened(world, policy=policy)
        session.load("one")
        told = session.call(*CALLS["skill_run"]).text
        rule = told.partition("allow = [")[2].partition("]")[0]
        world.configure_user(
            "[permissions]\n" + "".join(f'{k} = "{v}"\n' for k, v in policy.items()) + f"allow = [{rule}]"
        )
        after = world.discover().session(runner=FakeRunner(default=Outcome(0, "exit", 1)))
        after.load("one")
        assert after.call(*CALLS["skill_run"]).ok, told


def test_a_script_that_allowed_tools_leave_out_says_what_would_let_it_run(world: World) -> None:
    world.skill(".agents/skills/one", files={"scripts/x.sh": "#!/bin/sh\n"}, **{"allowed-tools": "Read"})
    session = world.discover().session(runner=FakeRunner(default=Outcome(0, "exit", 1)), policy={"unasked": "allow"})
    session.load("one")
    told = session.call(*CALLS["skill_run"]).text
    assert told.endswith("; whoever maintains the skill can add skill_run to allowed-tools in its SKILL.md")
    world.skill(".agents/skills/one", files={"scripts/x.sh": "#!/bin/sh\n"}, **{"allowed-tools": "Read skill_run"})
    after = world.discover().session(runner=FakeRunner(default=Outcome(0, "exit", 1)), policy={"unasked": "allow"})
    after.load("one")
    assert after.call(*CALLS["skill_run"]).ok
