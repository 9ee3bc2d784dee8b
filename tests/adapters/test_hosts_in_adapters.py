"""What a model reads under the rules of Codelia, MyCodeAgent and RemcoChat, through every adapter."""

import json
import re
from typing import Any

import pytest
from driver_base import Driver
from drivers import KINDS, each_kind
from scenario import Model, Step

from metier import Skills, replay
from metier.record.store.memory import MemoryStore
from metier.session.session import Session
from worlds import World


@each_kind
@pytest.mark.behaviour("C-043", "N-001", "N-002", "N-003")
def test_the_model_reads_path_scope_reason_and_score_and_loads_by_path(driver: type[Driver], world: World) -> None:
    first = world.skill(".agents/skills/twin", description="Draft release notes.", body="FIRST BODY")
    second = world.skill("~/.agents/skills/twin", description="Draft release notes.", body="SECOND BODY")
    calls: list[Step] = [("skill_search", {"query": "release", "limit": 2}), ("skill_load", {"name": "twin"})]
    model = Model([*calls, ("skill_load", {"path": str(second)}), "Done."])
    driver(world.discover("codelia"), model).say("Write them.")
    _, searched, refused, loaded = (request.texts for request in model.shown)
    found = (
        f"count: 2, truncated: false\n"
        f"- twin: Draft release notes.\n  path: {first}\n  scope: repo, reason: token_overlap, score: 101\n"
        f"- twin: Draft release notes.\n  path: {second}\n  scope: user, reason: token_overlap, score: 101"
    )
    assert any(found in text for text in searched)
    assert any("ambiguous" in text and str(first) in text and str(second) in text for text in refused[len(searched) :])
    assert any("SECOND BODY" in text for text in loaded)
    assert not any("FIRST BODY" in text for text in loaded)


STEPS: list[Step] = [
    ("Skill", {"name": "outer", "args": "ä"}),
    ("Skill", {"name": "inner", "parent": "outer"}),
    ("Skill", {"name": "outer", "parent": "inner"}),
    ("Skill", {"name": "absent"}),
    "Done.",
]


@each_kind
@pytest.mark.behaviour("M-053", "N-050", "N-057")
def test_the_model_reads_status_code_and_text_in_one_envelope(driver: type[Driver], world: World) -> None:
    outer = world.skill("skills/outer", body="Work on $ARGUMENTS.\n")
    world.skill("skills/inner", body="Within.\n")
    model, store = Model([*STEPS]), MemoryStore()
    agent = driver(world.discover("mycodeagent"), model, store=store)
    assert agent.say("Go.") == "Done."
    assert model.shown[0].tools == ("Skill",)
    read: list[dict[str, Any]] = [json.loads(t) for t in model.shown[-1].texts if t.startswith('{"status"')]
    codes = [(one["status"], one.get("error", {}).get("code")) for one in read]
    assert codes == [("success", None), ("success", None), ("error", "INVALID_PARAM"), ("error", "NOT_FOUND")]
    content = f"Base directory for this skill: {outer.parent}\n\nWork on ä.\n"
    assert read[0]["data"] == {"name": "outer", "base_dir": str(outer.parent), "content": content}
    assert read[0]["context"]["params_input"] == {"name": "outer", "args": "ä"}
    cycle = "skills call each other in a cycle: outer -> inner -> outer"
    assert read[2]["text"] == read[2]["error"]["message"] == cycle
    assert read[3]["text"].startswith("there is no skill 'absent'; available: ")
    outcome = replay.replay(replay.from_store(store, agent.session.id))
    assert outcome.identical, outcome.differences


@each_kind
@pytest.mark.behaviour("N-101", "N-102", "N-104", "N-110")
def test_the_prompt_names_the_tools_that_the_model_has_and_results_are_json(driver: type[Driver], world: World) -> None:
    body = "# Steps\n\nBODY-MARKER: do this first, Größe.\n"
    world.skill(".skills/probe", body=body, files={"references/a.md": "REFERENCE-MARKER"})
    found = world.discover("remcochat", settings={"enabled": True})
    paths = ("references/a.md", "../x")
    reads: list[Step] = [("skills_readResource", {"name": "probe", "path": path}) for path in paths]
    given: list[Skills | Session] = [found, found.session()] if driver is KINDS[0] else [found]
    for skills in given:
        model = Model([("skills_activate", {"name": "probe"}), *reads, "Done."])
        assert driver(skills, model).say("Begin.") == "Done."
        for shown in model.shown:
            assert shown.tools == ("skills_activate", "skills_readResource"), "names that every provider accepts"
            assert set(re.findall(r"`(skills\W?\w+)`", shown.system)) == set(shown.tools)
        results = [json.loads(text) for text in model.shown[-1].texts if text.startswith("{")]
        assert (list(results[0]), results[0]["body"]) == (["name", "frontmatter", "body", "truncated"], body)
        assert results[0]["frontmatter"]["name"] == results[0]["name"] == "probe"
        file = {"name": "probe", "path": "references/a.md", "content": "REFERENCE-MARKER", "truncated": False}
        assert results[1] == file
        assert results[2]["error"]["code"] == "ACCESS_DENIED"
        assert "traversal" in results[2]["error"]["message"]
        assert [shown.count("BODY-MARKER") for shown in model.shown] == [0, 1, 1, 1], "not again in the prompt"
