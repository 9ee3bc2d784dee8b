"""What servers share: catalogs by directory, sessions by id, one store for many hosts."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metier.app import CHANGED, App
from metier.record.store import open_store
from metier.replay import from_store, replay
from metier.session.session import Session
from patience import PATIENCE
from worlds import World

SKILLS = ".agents/skills"


def host(world: World, store: str) -> App:
    return App(world.project, home=world.home, store=store)


@pytest.fixture
def trail(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/trail.db"


def test_a_change_of_the_catalog_reaches_other_hosts_of_the_store(world: World, trail: str) -> None:
    world.skill(f"{SKILLS}/early")
    one, other = host(world, trail), host(world, trail)
    ear = other.store.listen(CHANGED)
    one.skills()
    assert not one.refresh()
    assert ear.get(0) == []
    world.skill(f"{SKILLS}/late")
    assert one.refresh().added == ("late",)
    assert ear.get(PATIENCE) == ["+1 / -0 / ~0"]


def test_a_session_goes_on_in_another_host_where_the_first_left_it(world: World, trail: str) -> None:
    world.skill(f"{SKILLS}/notes", body="# Notes\n")
    one, other = host(world, trail), host(world, trail)
    first = one.session()
    assert not first.load("notes").already_loaded
    second = other.session(first.id)
    assert second.activated == ["notes"]
    assert second.load("notes").already_loaded
    world.skill(f"{SKILLS}/more")
    other.skills(reload=True)
    second.load("more")
    assert one.session(first.id).activated == ["notes", "more"]


def test_whoever_goes_on_with_a_session_leaves_no_new_beginning_in_its_record(world: World, trail: str) -> None:
    world.skill(f"{SKILLS}/notes")
    session = host(world, trail).session()
    session.load("notes")
    for number in range(3):
        host(world, trail).session(session.id).load("notes", arguments=str(number))
    with open_store(trail) as store:
        kinds = [frame["type"] for frame in store.read(session.id)]
        assert kinds.count("session_started") == kinds.count("skill_catalog_updated") == 1
        assert replay(from_store(store, session.id)).identical


def test_what_is_different_when_a_session_goes_on_is_in_its_record(world: World, trail: str) -> None:
    world.skill(f"{SKILLS}/notes")
    session = host(world, trail).session()
    session.load("notes")
    world.skill(f"{SKILLS}/late")
    host(world, trail).session(session.id).load("late")
    other = App(world.project, home=world.home, store=trail, surface="http")
    other.session(session.id).load("notes")
    with open_store(trail) as store:
        frames = store.read(session.id)
        started = [frame["surface"] for frame in frames if frame["type"] == "session_started"]
        assert started == ["python", "http"]
        counts = [frame["count"] for frame in frames if frame["type"] == "skill_catalog_updated"]
        assert counts == [1, 2]
        assert replay(from_store(store, session.id)).identical


def test_two_hosts_at_work_on_a_session_at_once_lose_nothing_of_each_other(world: World, trail: str) -> None:
    names = [f"skill-{number}" for number in range(12)]
    for name in names:
        world.skill(f"{SKILLS}/{name}")
    hosts = [host(world, trail), host(world, trail)]
    shared = hosts[0].session()
    taken_up = [one.session(shared.id) for one in hosts]  # each knows only what it did itself

    def work(number: int) -> None:
        for name in names[number::2]:
            taken_up[number].load(name)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert sorted(host(world, trail).session(shared.id).activated) == sorted(names)
    with open_store(trail) as store:
        frames = store.read(shared.id)
        assert [frame["seq"] for frame in frames] == list(range(len(frames)))
        inside = ""
        for frame in frames:  # what belongs to one step is never torn apart by another's
            if frame["type"] == "session_called":
                inside = frame["args"]["name"]
            if frame["type"] in ("skill_loaded", "skill_invoked"):
                assert frame["name"] == inside


def test_what_a_turn_opened_and_put_in_holds_in_another_host(world: World, trail: str) -> None:
    world.skill(".skills/notes", body="# Notes for today\n")

    def taken_up(session_id: str | None = None) -> Session:
        app = App(world.project, home=world.home, store=trail, profile="remcochat", settings={"enabled": True})
        return app.session(session_id, tools=False)

    one = taken_up()
    one.invoke("/notes now")
    assert "# Notes for today" in one.system_prompt("base")
    other = taken_up(one.id)
    assert other.system_prompt("base") == one.system_prompt("base")
    other.end_turn()
    assert "# Notes for today" not in taken_up(one.id).system_prompt("base")
