"""Two servers on one PostgreSQL are one service: either answers any call, and nothing acknowledged is lost."""

import signal
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
from processes import JsonObject, Process, messages, serve

import parts
from record.store.server import PostgresServer, programs
from watching import wait_for
from worlds import World

pytestmark = pytest.mark.system

SKILLS = ".agents/skills"


@pytest.fixture(scope="module")
def database() -> Generator[PostgresServer, None, None]:
    if programs() is None:
        parts.missing("postgres")
    with PostgresServer(durable=True) as running:
        yield running


@pytest.fixture
def replicas(world: World, database: PostgresServer, tmp_path: Path) -> Generator[tuple[Process, Process], None, None]:
    """Two servers with the same skills, each with a home of its own."""
    for name in ("alpha", "beta"):
        world.skill(f"{SKILLS}/{name}", files={"references/a.md": f"the reference of {name}"})
    other = World(tmp_path / "other-home", world.project)
    other.home.mkdir()
    with (
        serve(world, store=database.url) as one,
        serve(other, store=database.url) as two,
    ):
        yield one, two


def loaded(answer: JsonObject) -> bool:
    return answer["ok"] and not answer["result"]["already_loaded"]


def test_either_answers_any_call_of_a_session_and_shows_the_same_frames(
    replicas: tuple[Process, Process], tmp_path: Path
) -> None:
    one, two = replicas
    session = one.begin()
    assert loaded(two.call(session, "skill_load", name="alpha"))
    assert not loaded(one.call(session, "skill_load", name="alpha"))
    assert loaded(one.call(session, "skill_load", name="beta"))
    ref = two.call(session, "skill_load", name="beta")["result"]["ref"]
    for replica in replicas:
        assert "beta" in replica.call(session, "skill_output", ref=ref)["text"]
        read = replica.call(session, "skill_read", name="alpha", path="references/a.md")
        assert read["text"] == "the reference of alpha"
        state = replica.client.post(f"/api/sessions/{session}/state").json()
        assert state["activated_skill_names"] == ["alpha", "beta"]
    frames = one.frames(session)
    assert frames == two.frames(session)
    assert [frame["seq"] for frame in frames] == list(range(len(frames)))
    assert sum(frame["type"] == "skill_loaded" for frame in frames) == 4
    # A session stays in its folder, whoever answers.
    (tmp_path / "elsewhere" / ".git").mkdir(parents=True)
    World(tmp_path / "home", tmp_path / "elsewhere").skill(f"{SKILLS}/gamma")
    session = one.client.post("/api/sessions", json={"cwd": str(tmp_path / "elsewhere")}).json()["session_id"]
    assert loaded(two.call(session, "skill_load", name="gamma"))
    assert not two.call(session, "skill_load", name="alpha")["ok"]


def test_while_the_database_restarts_calls_wait_or_are_refused_and_then_go_on(
    replicas: tuple[Process, Process], database: PostgresServer
) -> None:
    one, two = replicas
    session = one.begin()
    path, accept = f"/api/sessions/{session}/events", {"accept": "text/event-stream"}
    statuses: list[int] = []

    def load() -> bool:
        given = {"tool": "skill_load", "args": {"name": "alpha"}}
        statuses.append(one.client.post(f"/api/sessions/{session}/call", json=given).status_code)
        return statuses[-1] == 200

    with two.client.stream("GET", path, headers=accept) as stream:
        arriving = messages(stream.iter_lines())
        seen = [next(arriving)]
        database.stop(signal.SIGQUIT)
        waiting = threading.Thread(target=load)
        waiting.start()
        with one.connected() as other:
            assert [skill["name"] for skill in other.get("/api/skills").json()["skills"]] == ["alpha", "beta"]
        database.start()
        waiting.join()
        wait_for(lambda: 200 in statuses or load(), "a server that goes on")
        assert set(statuses) <= {200, 503}
        while seen[-1]["event"] != "skill_loaded" and (message := next(arriving, None)):
            seen.append(message)
    while seen[-1]["event"] != "skill_loaded":  # the stream ended, since the database was away for long
        with two.client.stream("GET", path, headers={**accept, "last-event-id": str(seen[-1]["id"])}) as stream:
            seen += [next(messages(stream.iter_lines()))]
    assert [message["id"] for message in seen] == list(range(len(seen)))
