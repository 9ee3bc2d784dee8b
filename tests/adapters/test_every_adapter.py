"""Tests for every adapter: it shows, records and refuses the same as the library."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import pytest
from driver_base import Driver
from drivers import DRIVERS, names
from scenario import DENIED, ESCAPE, LOAD, MARK, POLICY, READ, RUN, TURN, Model, Step, plain, record, runner, skills

from metier import replay
from metier.policy.decide import Request
from metier.record.store.memory import MemoryStore
from metier.session.approvals import Answers
from worlds import World

RUN_DENIED = {"tool": "skill_run", "skill_name": "carpentry"}

each = pytest.mark.parametrize("driver", DRIVERS, ids=names(DRIVERS))
KINDS = [driver for driver in DRIVERS if not driver.__name__.endswith("Async")]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@each
def test_a_whole_turn_goes_from_the_catalog_to_the_answer(driver: type[Driver], world: World) -> None:
    model = Model([*TURN])
    agent = driver(skills(world), model, runner=runner(), policy=POLICY)
    assert agent.say("Cut me a plank.") == "The plank is cut."
    first, last = model.shown[0], model.shown[-1]
    assert "You are a joiner." in first.system
    assert "<name>carpentry</name>" in first.system
    assert "locks" not in first.system
    assert first.tools == ("skill_load", "skill_output", "skill_read", "skill_run", "skill_search")
    assert "Skills activated in this conversation: carpentry" in last.system
    assert any("Oak is hard." in text for text in last.texts)
    assert any("cut oak" in text for text in last.texts)
    assert [shown.count() for shown in model.shown] == [0, 0, 1, 1, 1, 1, 1]


@each
def test_the_trail_is_that_of_the_plain_library(driver: type[Driver], world: World) -> None:
    found = skills(world)
    agent = driver(found, Model([*TURN]), runner=runner(), policy=POLICY)
    agent.say("Cut me a plank.")
    assert record(agent.session) == record(plain(found, TURN))
    assert agent.session.events[0]["surface"] != "python"


@each
def test_an_override_that_an_adapter_cannot_apply_is_not_granted(driver: type[Driver], world: World) -> None:
    world.skill(".agents/skills/deep", model="large")
    store = MemoryStore()
    model = Model([("skill_load", {"name": "deep"}), "Done."])
    agent = driver(skills(world), model, policy={"profile": "full-auto"}, store=store)
    agent.say("Think.")
    (proposed,) = [frame for frame in agent.session.events if frame["type"] == "skill_override_proposed"]
    assert (proposed["granted"], agent.session.overrides) == (False, {})
    assert proposed["rule"] == "this host does not apply what a skill proposes for 'model'"
    assert replay.replay(replay.from_store(store, agent.session.id)).identical


@each
def test_a_turn_can_be_run_again_from_its_trail(driver: type[Driver], world: World) -> None:
    store = MemoryStore()
    agent = driver(skills(world), Model([*TURN]), runner=runner(), policy=POLICY, store=store)
    agent.say("Cut me a plank.")
    outcome = replay.replay(replay.from_store(store, agent.session.id))
    assert outcome.identical, outcome.differences
    assert len(outcome.outputs) == len(TURN) - 1


@each
def test_a_refusal_is_a_result_for_the_model(driver: type[Driver], world: World) -> None:
    steps: list[Step] = [LOAD, ESCAPE, DENIED, ("skill_load", {"nome": "carpentry"}), RUN, "I may not."]
    model = Model(steps)
    agent = driver(skills(world), model, policy={"deny": [*POLICY["deny"], RUN_DENIED]}, runner=runner())
    assert agent.say("Cut me a plank.") == "I may not."
    told = model.shown[-1].texts
    assert any("traversal" in text for text in told)
    assert any("there is no skill 'locks'" in text for text in told)
    assert any("`name` is missing" in text for text in told)
    assert any("policy refuses skill_run for carpentry" in text for text in told)


@each
def test_a_person_who_says_no_is_heard_and_recorded(driver: type[Driver], world: World) -> None:
    found = skills(world)
    fake = runner()
    model = Model([LOAD, RUN, "Then I leave it."])
    agent = driver(found, model, approves=False, runner=fake, policy=POLICY)
    assert agent.say("Cut me a plank.") == "Then I leave it."
    assert fake.jobs == []
    assert len(model.shown[-1].texts) == 3  # the question, the skill, the refusal
    assert record(agent.session) == record(plain(found, [LOAD, RUN], approve=False))


@each
def test_an_asynchronous_no_is_a_no(driver: type[Driver], world: World) -> None:
    async def approve(_: Request) -> bool:
        return False

    fake = runner()
    model = Model([LOAD, RUN, "Then I leave it."])
    agent = driver(skills(world), model, runner=fake, approve=approve)
    if driver.__name__ == "LangChain":  # its calls are not asynchronous
        with pytest.raises(TypeError, match="approve is asynchronous"):
            agent.say("Cut me a plank.")
    else:
        assert agent.say("Cut me a plank.") == "Then I leave it."
        assert any("the answer was no" in text for text in model.shown[-1].texts)
    assert fake.jobs == []


@each
def test_where_nobody_can_be_asked_the_model_hears_so(driver: type[Driver], world: World) -> None:
    session = skills(world).session(runner=runner(), surface="mine")
    model = Model([LOAD, RUN, "Nobody is there."])
    assert driver(session, model).say("Cut me a plank.") == "Nobody is there."
    assert "nobody can be asked" in model.shown[-1].texts[-1]
    assert session.events[0]["surface"] == "mine"


@each
def test_a_session_that_asks_by_itself_is_left_to_it(driver: type[Driver], world: World) -> None:
    asked: list[str] = []
    session = skills(world).session(runner=runner(), approve=lambda request: not asked.append(request.command))
    model = Model([LOAD, RUN, "Done."])
    assert driver(session, model, approves=False).say("Cut me a plank.") == "Done."
    assert asked == ["scripts/saw.sh oak"]
    assert "cut oak" in model.shown[-1].texts[-1]


@pytest.mark.parametrize("driver", KINDS, ids=names(KINDS))
def test_after_many_turns_of_a_trimmed_history_a_loaded_skill_is_still_there_once(
    driver: type[Driver], world: World
) -> None:
    turns: list[list[Step]] = [[READ, f"Turn {number}."] for number in range(16)]
    turns[0] = [LOAD, "Loaded."]
    turns[9] = [LOAD, "Loaded again."]
    turns[15] = [RUN, "Cut."]
    model = Model([step for turn in turns for step in turn])
    agent = driver(skills(world), model, window=2, runner=runner())
    for number, turn in enumerate(turns):
        assert agent.say(f"Turn {number}: what about oak?") == turn[-1]
    counts = [shown.count() for shown in model.shown]
    assert counts == [0] + [1] * 31
    assert MARK in model.shown[-1].system
    assert not any(MARK in text for text in model.shown[-1].texts)
    assert any("is already loaded and unchanged" in text for text in model.shown[19].texts)
    assert "cut oak" in model.shown[-1].texts[-1]
    restored = [one for one in agent.session.events if one.get("operation") == "output"]
    assert len(restored) == 2  # one call and its result: the text was read once, not for every request


@each
def test_the_names_of_the_tools_are_yours(driver: type[Driver], world: World) -> None:
    found = skills(world, tools={"load": "use_skill", "search": ""})
    model = Model([("use_skill", {"name": "carpentry"}), "Loaded."])
    agent = driver(found, model, runner=runner())
    assert agent.say("Cut me a plank.") == "Loaded."
    assert model.shown[0].tools == ("skill_output", "skill_read", "skill_run", "use_skill")
    assert "`use_skill`" in model.shown[0].system
    assert "skill_load" not in model.shown[0].system
    assert agent.session.activated == ["carpentry"]


@each
def test_the_catalog_follows_the_message_and_the_budget(driver: type[Driver], world: World) -> None:
    for number in range(40):
        world.skill(f".agents/skills/filler-{number}", description="Fills a catalog with many words. " * 4)
    model = Model(["One.", "Two."])
    agent = driver(skills(world), model, budget=2400)
    agent.say("How do I tie knots?")
    agent.say("How do I work with wood?")
    first, second = (shown.system for shown in model.shown)
    assert len(first) < 2700
    assert "<name>knots</name>" in first
    assert "<name>carpentry</name>" in second
    assert "<name>knots</name>" in second
    assert "of 43 skills are not shown" in first


@each
def test_a_skill_that_the_user_names_is_in_the_request(driver: type[Driver], world: World) -> None:
    model = Model(["Cutting.", "Still cutting."])
    session = skills(world).session()
    agent = driver(session, model)
    session.invoke("/carpentry oak")
    assert agent.say("/carpentry oak") == "Cutting."
    assert agent.say("Go on.") == "Still cutting."
    assert [shown.count() for shown in model.shown] == [1, 1]


@each
def test_a_child_has_its_own_skills(driver: type[Driver], world: World) -> None:
    model = Model([("skill_load", {"name": "knots"}), "I cannot tie knots."])
    child = driver(skills(world), model, only=["carpentry"], preload=["carpentry"])
    assert child.say("Tie a knot.") == "I cannot tie knots."
    assert model.shown[0].count() == model.shown[1].count() == 1
    assert "<preloaded_skills>" in model.shown[0].system
    assert "knots" not in model.shown[0].system
    assert "there is no skill 'knots'" in model.shown[1].texts[-1]


@each
@pytest.mark.parametrize("changed", ["scripts/saw.sh", "scripts/blade.sh", "references/wood.md"])
def test_an_approval_is_of_the_skill_that_was_shown(driver: type[Driver], world: World, changed: str) -> None:
    """The script changes while the person reads it, or a file beside it, which it may use."""
    fake = runner()
    model = Model([LOAD, RUN, "Odd."])
    found = skills(world)

    class Slow(Answers):
        @contextmanager
        def given(self, requests: Sequence[Request], answer: bool) -> Generator[None, None, None]:
            file = world.project / ".agents/skills/carpentry" / changed
            file.write_text("#!/bin/sh\nrm -rf /\n")
            with super().given(requests, answer):
                yield

    agent = driver(found.session(approve=Slow(), runner=fake), model)
    assert agent.say("Cut me a plank.") == "Odd."
    assert fake.jobs == []
    assert "policy refuses skill_run" in model.shown[-1].texts[-1]


@each
def test_a_changed_catalog_is_seen_by_the_next_request(driver: type[Driver], world: World) -> None:
    found = skills(world)
    model = Model(["One.", ("skill_load", {"name": "glue"}), "Two."])
    agent = driver(found, model)
    agent.say("Hello.")
    world.skill(".agents/skills/glue", description="Glues wood.", body="# Glue\n")
    found.refresh()
    agent.say("Glue it.")
    assert "<name>glue</name>" not in model.shown[0].system
    assert "<name>glue</name>" in model.shown[1].system
    assert agent.session.activated == ["glue"]
