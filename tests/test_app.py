"""What servers share: catalogs by directory, sessions by id, one store for many hosts, one policy and who answers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from calling import Run, caller
from in_process import SURFACES, Ask, in_python, over_json_rpc
from metier import App, ConfigError, Request
from metier.app import CHANGED
from metier.record.store import open_store
from metier.replay import from_store, replay
from metier.session.session import Session
from metier.surfaces.rpc import Dispatcher
from metier.surfaces.web.api import build
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


# --- one policy for all surfaces, and one way to ask ---


@pytest.fixture
def run(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return caller(world, capsys, monkeypatch)


RULES = {"deny": [{"tool": "skill_load", "skill_name": "locks"}], "ask": [{"tool": "skill_load", "skill_name": "gate"}]}


@pytest.mark.parametrize("surface", SURFACES[:-1])
@pytest.mark.parametrize("answer", [True, False, "async yes", "async no"])
def test_the_policy_and_the_answers_of_an_app_hold_on_every_surface(
    world: World, run: Run, surface: Callable[..., None], answer: bool | str
) -> None:
    for name in ("gate", "locks", "open"):
        world.skill(f"{SKILLS}/{name}", body=f"# The body of {name}\n")
    asked: list[str | None] = []

    def approve(request: Request) -> bool:
        asked.append(request.skill_name)
        return bool(answer)

    async def asynchronous(request: Request) -> bool:
        asked.append(request.skill_name)
        return answer == "async yes"

    is_async = isinstance(answer, str)
    app = App(
        world.project, home=world.home, store="memory:", policy=RULES, approve=asynchronous if is_async else approve
    )

    def steps(say: Ask) -> None:
        assert "The body of open" in say("load", {"name": "open", "by": "model"})
        assert "The body of locks" not in say("load", {"name": "locks", "by": "model"})
        assert "locks" not in say("prompt", {})
        can_await = surface not in (in_python, over_json_rpc)
        if is_async and not can_await:
            with pytest.raises(TypeError, match="approve is asynchronous") if surface is in_python else nullcontext():
                assert "something went wrong" in say("load", {"name": "gate", "by": "model"})
        else:
            shown = "The body of gate" in say("load", {"name": "gate", "by": "model"})
            assert shown == (answer in (True, "async yes"))
        assert asked == ([] if is_async and not can_await else ["gate"])

    surface(world, run, steps, app)


@pytest.mark.parametrize("answer", [True, False])
def test_a_client_that_can_answer_is_not_asked_instead_of_the_app(world: World, answer: bool) -> None:
    world.skill(f"{SKILLS}/gate", body="# The body of gate\n")
    app = App(world.project, home=world.home, store="memory:", policy=RULES, approve=lambda request: answer)

    class Client:
        def ask(self, params: object, seconds: int) -> str:
            raise AssertionError("the client was asked")

    client = Dispatcher(app, questions=Client())  # pyright: ignore[reportArgumentType]
    session = client.create(None, asks=True, seconds=5)
    assert session.call("skill_load", {"name": "gate"}).ok == answer


def test_search_and_the_page_of_rules_follow_the_policy_of_the_app(world: World) -> None:
    world.skill(f"{SKILLS}/gate")
    app = App(world.project, home=world.home, store="memory:", policy={"deny": [{"tool": "skill_search"}]})
    with TestClient(build(app, watch=False), base_url="http://127.0.0.1") as client:
        assert client.get("/api/search", params={"q": "gate"}).status_code == 403
        page = client.get("/rules").text
    assert "skill_search" in page
    assert "program" in page


def test_a_mistake_in_the_policy_of_an_app_is_raised_at_once(world: World) -> None:
    with pytest.raises(ConfigError, match="skill_laod"):
        App(world.project, home=world.home, store="memory:", policy={"deny": [{"tool": "skill_laod"}]})
