"""What a model reads of a search through every adapter: enough to tell skills of one name apart, and to load one."""

import pytest
from driver_base import Driver
from drivers import DRIVERS, names
from scenario import Model

from worlds import World


@pytest.mark.behaviour("C-043", "N-001", "N-002", "N-003")
@pytest.mark.parametrize("driver", DRIVERS, ids=names(DRIVERS))
def test_the_model_reads_path_scope_reason_score_and_count_and_loads_one_by_its_path(
    driver: type[Driver], world: World
) -> None:
    first = world.skill(".agents/skills/twin", description="Draft release notes.", body="FIRST BODY")
    second = world.skill("~/.agents/skills/twin", description="Draft release notes.", body="SECOND BODY")
    model = Model(
        [
            ("skill_search", {"query": "release", "limit": 2}),
            ("skill_load", {"name": "twin"}),
            ("skill_load", {"path": str(second)}),
            "Done.",
        ]
    )
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
