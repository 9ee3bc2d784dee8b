"""Codelia's rules and limits in every adapter: who is asked, what the model reads, and what is refused at once."""

import pytest
from driver_base import Driver
from drivers import DRIVERS, names
from scenario import Model

from metier import BadArguments
from worlds import World

KINDS = [driver for driver in DRIVERS if not driver.__name__.endswith("Async")]
each = pytest.mark.parametrize("driver", KINDS, ids=names(KINDS))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def both(world: World) -> World:
    for name in ("a", "b"):
        world.skill(f".agents/skills/{name}", body=f"BODY-{name}")
    return world


@each
@pytest.mark.behaviour("C-083", "N-026")
def test_a_denied_skill_is_refused_and_nobody_is_asked(driver: type[Driver], both: World) -> None:
    config = both.home / ".config/metier/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[permissions]\ndeny = [{ tool = "skill_load", skill_name = "a" }]\n')
    path = str(both.project / ".agents/skills/a/SKILL.md")
    calls = [{"name": "a"}, {"path": path}, {"name": "b"}]
    model = Model([*(("skill_load", dict[str, object](call)) for call in calls), "Done."])
    agent = driver(both.discover("codelia"), model)
    assert agent.say("Load them.") == "Done."
    assert (model.shown[-1].count("BODY-a"), model.shown[-1].count("BODY-b")) == (0, 1)
    asked = [frame["name"] for frame in agent.session.events if frame["type"] == "policy_asked"]
    assert asked == ["b"]


@each
@pytest.mark.behaviour("N-022")
def test_a_skill_outside_of_only_is_not_preloaded(driver: type[Driver], both: World) -> None:
    model = Model(["Done.", "Done."])
    with pytest.raises(BadArguments, match="limited to a by `only`, and 'b' is not one of them"):
        driver(both.discover("codelia"), model, only=["a"], preload=["b"]).say("Hello.")
    assert model.shown == []
    driver(both.discover("codelia"), model, only=["a"], preload=["a"]).say("Hello.")
    assert "BODY-a" in model.shown[0].system
