"""MyCodeAgent through every adapter: the model reads the whole envelope, and a cycle of skills is refused in it."""

import json
from typing import Any

import pytest
from driver_base import Driver
from drivers import DRIVERS, names
from scenario import Model, Step

from metier import replay
from metier.record.store.memory import MemoryStore
from worlds import World

KINDS = [driver for driver in DRIVERS if not driver.__name__.endswith("Async")]
STEPS: list[Step] = [
    ("Skill", {"name": "outer", "args": "ä"}),
    ("Skill", {"name": "inner", "parent": "outer"}),
    ("Skill", {"name": "outer", "parent": "inner"}),
    ("Skill", {"name": "absent"}),
    "Done.",
]


@pytest.mark.behaviour("M-053", "N-050", "N-057")
@pytest.mark.parametrize("driver", KINDS, ids=names(KINDS))
def test_the_model_reads_status_code_and_text_in_one_envelope(
    driver: type[Driver], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    outer = world.skill("skills/outer", body="Work on $ARGUMENTS.\n")
    world.skill("skills/inner", body="Within.\n")
    model, store = Model([*STEPS]), MemoryStore()
    agent = driver(world.discover("mycodeagent"), model, store=store)
    assert agent.say("Go.") == "Done."
    assert model.shown[0].tools == ("Skill",)
    read: list[dict[str, Any]] = [json.loads(t) for t in model.shown[-1].texts if t.startswith('{"status"')]
    assert [(one["status"], one.get("error", {}).get("code")) for one in read] == [
        ("success", None),
        ("success", None),
        ("error", "INVALID_PARAM"),
        ("error", "NOT_FOUND"),
    ]
    assert read[0]["data"] == {
        "name": "outer",
        "base_dir": str(outer.parent),
        "content": f"Base directory for this skill: {outer.parent}\n\nWork on ä.\n",
    }
    assert read[0]["context"]["params_input"] == {"name": "outer", "args": "ä"}
    assert (
        read[2]["text"] == read[2]["error"]["message"] == "skills call each other in a cycle: outer -> inner -> outer"
    )
    assert read[3]["text"].startswith("there is no skill 'absent'; available: ")
    outcome = replay.replay(replay.from_store(store, agent.session.id))
    assert outcome.identical, outcome.differences
