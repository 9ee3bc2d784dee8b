"""What servers share: catalogs by directory, sessions by id, one store for many hosts."""

from pathlib import Path

import pytest

from metier.app import CHANGED, App
from metier.store import open_store
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
    assert ear.get(10) == ["+1 / -0 / ~0"]


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


def test_frames_of_a_session_in_two_hosts_are_one_stream_without_a_gap(world: World, trail: str) -> None:
    world.skill(f"{SKILLS}/notes")
    one, other = host(world, trail), host(world, trail)
    session = one.session()
    for number in range(6):
        (one if number % 2 else other).session(session.id).load("notes", arguments=str(number))
    with open_store(trail) as store:
        assert [frame["seq"] for frame in store.read(session.id)] == list(range(len(store.read(session.id))))
