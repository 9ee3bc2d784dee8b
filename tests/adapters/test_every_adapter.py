"""Tests for every adapter: it shows, records and refuses the same as the library."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from driver_base import Driver
from drivers import each, each_kind
from scenario import LOAD, MARK, POLICY, READ, RUN, TURN, Model, Step, plain, record, runner, skills

from metier import ConfigError, replay
from metier.adapters.conversation import Conversation, Conversations
from metier.adapters.langchain import SkillsMiddleware, skill_tools
from metier.adapters.openai_agents import AgentSkills
from metier.adapters.pydantic_ai import SkillsCapability, SkillsToolset
from metier.policy.decide import Request
from metier.record.store.memory import MemoryStore
from metier.session.approvals import Answers
from worlds import World


@each
def test_a_whole_turn_leaves_the_trail_of_the_plain_library(driver: type[Driver], world: World) -> None:
    found, model, store = skills(world), Model([*TURN]), MemoryStore()
    agent = driver(found, model, runner=runner(), policy=POLICY, store=store)
    assert agent.say("Cut me a plank.") == "The plank is cut."
    first, last = model.shown[0], model.shown[-1]
    assert "You are a joiner." in first.system
    assert "<name>carpentry</name>" in first.system
    assert "locks" not in first.system
    assert first.tools == ("skill_load", "skill_output", "skill_read", "skill_run", "skill_search", "skill_unload")
    assert "Skills activated in this conversation: carpentry" in last.system
    for said in ("Oak is hard.", "cut oak", "traversal", "there is no skill 'locks'"):
        assert any(said in text for text in last.texts), said
    assert [shown.count() for shown in model.shown] == [0, 0, 1, 1, 1, 1, 1]
    assert record(agent.session) == record(plain(found, TURN))
    assert agent.session.events[0]["surface"] != "python"
    outcome = replay.replay(replay.from_store(store, agent.session.id))
    assert outcome.identical, outcome.differences
    assert len(outcome.outputs) == len(TURN) - 1


@each_kind
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
def test_a_person_who_says_no_is_heard_and_recorded(driver: type[Driver], world: World) -> None:
    found, fake, model = skills(world), runner(), Model([LOAD, RUN, "Then I leave it."])
    agent = driver(found, model, approves=False, runner=fake, policy=POLICY, store=MemoryStore())
    assert agent.say("Cut me a plank.") == "Then I leave it."
    assert len(model.shown[-1].texts) == 3  # the question, the skill, the refusal
    assert record(agent.session) == record(plain(found, [LOAD, RUN], approve=False))

    async def approve(_: Request) -> bool:
        return False

    model = Model([LOAD, RUN, "Then I leave it."])
    agent = driver(found, model, runner=fake, approve=approve)
    if driver.__name__ == "LangChain":  # its calls are not asynchronous
        with pytest.raises(TypeError, match="approve is asynchronous"):
            agent.say("Cut me a plank.")
    else:
        assert agent.say("Cut me a plank.") == "Then I leave it."
        assert any("the answer was no" in text for text in model.shown[-1].texts)
    assert fake.jobs == []


@each
def test_a_session_of_your_own_asks_as_it_was_told_to(driver: type[Driver], world: World) -> None:
    found = skills(world)
    session = found.session(runner=runner(), surface="mine")
    model = Model([LOAD, RUN, "Nobody is there."])
    assert driver(session, model).say("Cut me a plank.") == "Nobody is there."
    assert "nobody can be asked" in model.shown[-1].texts[-1]
    assert session.events[0]["surface"] == "mine"
    asked: list[str] = []
    session = found.session(runner=runner(), approve=lambda request: not asked.append(request.command))
    model = Model([LOAD, RUN, "Done."])
    assert driver(session, model, approves=False).say("Cut me a plank.") == "Done."
    assert (asked, "cut oak" in model.shown[-1].texts[-1]) == (["scripts/saw.sh oak"], True)


@each_kind
def test_after_many_trimmed_turns_a_loaded_skill_is_still_there_once(driver: type[Driver], world: World) -> None:
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


@each_kind
def test_a_skill_that_the_user_names_is_shown_and_a_child_has_its_own(driver: type[Driver], world: World) -> None:
    found, model = skills(world), Model(["Cutting.", "Still cutting."])
    session = found.session()
    agent = driver(session, model)
    session.invoke("/carpentry oak")
    assert [agent.say("/carpentry oak"), agent.say("Go on.")] == ["Cutting.", "Still cutting."]
    assert [shown.count() for shown in model.shown] == [1, 1]

    model = Model([("skill_load", {"name": "knots"}), "I cannot tie knots."])
    child = driver(found, model, only=["carpentry"], preload=["carpentry"])
    assert child.say("Tie a knot.") == "I cannot tie knots."
    assert model.shown[0].count() == model.shown[1].count() == 1
    assert "<preloaded_skills>" in model.shown[0].system
    assert "knots" not in model.shown[0].system
    assert "there is no skill 'knots'" in model.shown[1].texts[-1]


@each
def test_an_approval_is_of_the_skill_that_was_shown(driver: type[Driver], world: World) -> None:
    """The script changes while the person reads it, or a file beside it, which it may use."""
    for changed in ("scripts/saw.sh", "scripts/blade.sh", "references/wood.md"):
        fake, model, found = runner(), Model([LOAD, RUN, "Odd."]), skills(world)
        file = world.project / ".agents/skills/carpentry" / changed

        class Slow(Answers):
            @contextmanager
            def given(
                self, requests: Sequence[Request], answer: bool, file: Path = file
            ) -> Generator[None, None, None]:
                file.write_text("#!/bin/sh\nrm -rf /\n")
                with super().given(requests, answer):
                    yield

        agent = driver(found.session(approve=Slow(), runner=fake), model)
        assert agent.say("Cut me a plank.") == "Odd."
        assert fake.jobs == [], changed
        assert "policy refuses skill_run" in model.shown[-1].texts[-1]
        file.unlink()


ADAPTERS: dict[str, Callable[..., Any]] = {
    "AgentSkills": AgentSkills,
    "SkillsMiddleware": SkillsMiddleware,
    "SkillsToolset": SkillsToolset,
    "SkillsCapability": SkillsCapability,
    "Conversation.of": lambda given, **options: Conversation.of(given, "test", asks=True, **options),
    "skill_tools": skill_tools,
    "Conversations": lambda given, **options: Conversations(given, "test", **options),
}


def test_options_reach_the_session_and_a_misspelled_one_is_a_type_error(world: World) -> None:
    """`tests/test_types.py` asks a type checker the same."""
    found = skills(world)
    for number, (name, adapter) in enumerate(ADAPTERS.items()):
        for given in (found, found.session()):
            with pytest.raises(TypeError, match="unexpected keyword argument 'onyl'"):
                adapter(given, onyl=["carpentry"])
        with pytest.raises(ConfigError, match="only: pass this to the session itself"):
            adapter(found.session(), only=["knots"])
        if number < 5:
            session = adapter(found, only=["knots"], surface="my-app").session
            assert [skill.name for skill in session.visible()] == ["knots"], name
            assert session.events[0]["surface"] == "my-app", name
