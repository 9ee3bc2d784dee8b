"""The HTTP API, asked as a client would: what it answers, and whom it refuses."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from metier import ConfigError
from metier.app import App
from metier.web.api import OPERATIONS, build
from metier.web.guard import Gate
from worlds import World

HOST = "http://localhost"


@pytest.fixture
def client(world: World) -> Iterator[TestClient]:
    world.skill(".agents/skills/notes", files={"references/a.md": "the reference"})
    app = App(world.project, home=world.home, store="memory:", surface="http")
    with TestClient(build(app), base_url=HOST, raise_server_exceptions=False) as made:
        yield made


def begin(client: TestClient) -> str:
    return client.post("/api/sessions").json()["session_id"]


def test_the_catalog_one_skill_and_a_search_are_there(client: TestClient) -> None:
    assert client.get("/healthz").json()["status"] == "ok"
    assert [skill["name"] for skill in client.get("/api/skills").json()["skills"]] == ["notes"]
    assert client.get("/api/skills/notes").json()["name"] == "notes"
    assert client.get("/api/search", params={"q": "notes"}).json()["results"][0]["reason"] == "exact_name"


def test_a_session_loads_once_reads_and_shows_its_frames(client: TestClient) -> None:
    session = begin(client)
    call = {"tool": "skill_load", "args": {"name": "notes"}}
    first = client.post(f"/api/sessions/{session}/call", json=call).json()
    again = client.post(f"/api/sessions/{session}/call", json=call).json()
    assert (first["ok"], first["result"]["already_loaded"], again["result"]["already_loaded"]) == (True, False, True)
    read = client.post(f"/api/sessions/{session}/read", json={"name": "notes", "path": "references/a.md"}).json()
    assert read["text"] == "the reference"
    frames = client.get(f"/api/sessions/{session}/events").json()
    assert [frame["seq"] for frame in frames] == list(range(len(frames)))
    assert sum(frame["type"] == "skill_loaded" for frame in frames) == 2
    later = client.get(f"/api/sessions/{session}/events", headers={"last-event-id": "3"}).json()
    assert later == frames[4:]


@pytest.mark.parametrize(
    ("method", "path", "given", "status"),
    [
        ("GET", "/api/skills/nope", {}, 404),
        ("GET", "/api/search", {}, 400),
        ("GET", "/nowhere", {}, 404),
        ("DELETE", "/rpc", {}, 405),
        ("POST", "/api/sessions/nope/call", {"json": {"tool": "skill_load"}}, 404),
        ("POST", "/api/sessions", {"content": b"{"}, 400),
        ("GET", "/healthz", {"headers": {"host": "evil.example"}}, 421),
        ("GET", "/healthz", {"headers": {"origin": "http://evil.example"}}, 403),
        ("POST", "/rpc", {"content": b"x" * (5 << 20)}, 413),
    ],
)
def test_what_cannot_be_answered_gets_its_status_and_one_shape(
    client: TestClient, method: str, path: str, given: dict[str, Any], status: int
) -> None:
    answer = client.request(method, path, **given)
    assert answer.status_code == status
    assert answer.json()["error"].keys() == {"code", "message"}


def test_a_path_that_leaves_the_skill_is_refused(client: TestClient) -> None:
    answer = client.post(f"/api/sessions/{begin(client)}/read", json={"name": "notes", "path": "../../x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "ACCESS_DENIED")


def test_an_address_that_others_can_reach_needs_a_token_and_checks_it(world: World) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        Gate.for_address("0.0.0.0")
    token = "a-token-of-some-length"
    app = App(world.project, home=world.home, store="memory:")
    with TestClient(build(app, Gate.for_address("0.0.0.0", token)), base_url=HOST) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/api/skills").status_code == 401
        assert client.get("/api/skills", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/api/skills", headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_the_document_describes_every_operation(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {(o.method.lower(), o.path) for o in OPERATIONS} == {(m, path) for path in paths for m in paths[path]}
