"""RemcoChat's server: the registry is made once, and what is wrong with it stands in the log."""

import logging

import pytest

from hosts.asking import metier
from metier.app import App
from worlds import World


def server(world: World) -> App:
    return App(world.project, profile="remcochat", home=world.home, settings={"enabled": True}, store="memory:")


@pytest.mark.behaviour("K-007")
def test_discovery_runs_once_with_the_effect_of_a_start(world: World) -> None:
    world.skill(".skills/early")
    app = server(world)
    assert [skill.name for skill in app.skills()] == ["early"]
    world.skill(".skills/late")
    assert [skill.name for skill in app.session().visible()] == ["early"]
    assert [skill.name for skill in app.skills(reload=True)] == ["early"]


@pytest.mark.behaviour("K-013", "K-021")
def test_collisions_and_invalid_skills_are_in_the_log_and_in_the_listing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    winner = world.skill(".skills/pdf", description="The one that counts.")
    loser = world.skill(".agents/skills/pdf", description="The other one.")
    broken = world.skill(".skills/broken", name="Not_This")
    with caplog.at_level(logging.WARNING, "metier"):
        skills = server(world).skills()
    assert [skill.name for skill in skills] == ["pdf"]
    assert any(str(winner) in line and str(loser) in line for line in caplog.messages)
    assert any(str(broken) in line and "name" in line for line in caplog.messages)
    world.configure('profile = "remcochat"\n[app.skills]\nenabled = true\n')
    listed = metier(world, "list")
    assert [(s["name"], s["path"], s["shadowed_by"]) for s in listed["shadowed"]] == [("pdf", str(loser), str(winner))]
    assert {d["path"] for d in listed["diagnostics"] if d["severity"] == "error"} == {str(broken)}
