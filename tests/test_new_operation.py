"""An operation that is declared and registered is on every surface, without another edit."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

import jsonschema
import pytest
from mcp import Client
from starlette.testclient import TestClient

from calling import caller
from mcp_requests import ask
from metier.app import App
from metier.replay import from_store, replay
from metier.session.context import SessionContext, Steps
from metier.session.operation import Operation, about
from metier.session.operations import OPERATIONS, RECORDED, register
from metier.surfaces.mcp.server import McpServer
from metier.surfaces.rpc import Dispatcher
from metier.surfaces.web.api import build
from metier.values.value import Count, Value
from worlds import World


class Pong(Value):
    """What came back."""

    text: str
    times: Count


class Ping(Operation[Pong], kw_only=True):
    """Say something back"""

    operation: ClassVar[str] = "ping"

    message: Annotated[str, about("What to say.", minLength=1)]
    times: Annotated[int, about("How often.", minimum=1)] = 1
    words: Annotated[Sequence[str], about("What follows.")] = ()
    loud: Annotated[bool, about("Whether to shout.")] = False

    def perform(self, context: SessionContext) -> Steps[Pong]:
        yield
        text = " ".join([*[self.message] * self.times, *self.words])
        return Pong(text.upper() if self.loud else text, self.times)


GIVEN = {"message": "hello", "times": 2, "words": ["you", "there"], "loud": True}
ANSWER = {"text": "HELLO HELLO YOU THERE", "times": 2}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    assert register(Ping) is Ping
    yield
    del OPERATIONS["ping"], RECORDED["ping"]


@pytest.fixture
def app(world: World) -> App:
    return App(world.project, home=world.home, store="memory:")


def test_python_and_replay(app: App) -> None:
    session = app.session()
    assert session.perform(Ping.from_dict(GIVEN)).as_dict() == ANSWER
    assert replay(from_store(app.store, session.id)).identical


def test_json_rpc(app: App) -> None:
    def call(**params: object) -> dict[str, object]:
        message = {"jsonrpc": "2.0", "id": 1, "method": "session.ping", "params": params}
        return json.loads(Dispatcher(app).handle(json.dumps(message)) or "")

    assert call(**GIVEN)["result"] == ANSWER
    assert "times must be at least 1" in json.dumps(call(message="a", times=0))
    unknown = Dispatcher(app).handle('{"jsonrpc": "2.0", "id": 1, "method": "session.pong"}') or ""
    assert "session.ping" in json.loads(unknown)["error"]["data"]["methods"]


def test_http_and_its_document(app: App) -> None:
    with TestClient(build(app, watch=False), base_url="http://127.0.0.1") as client:
        session = client.post("/api/sessions").json()["session_id"]
        path = f"/api/sessions/{session}/ping"
        assert client.post(path, json=GIVEN).json() == ANSWER
        assert client.post(path, json={"message": ""}).status_code == 400
        described = client.get("/openapi.json").json()["paths"]["/api/sessions/{session_id}/ping"]["post"]
    assert described["summary"] == "Say something back"
    body = described["requestBody"]["content"]["application/json"]["schema"]
    assert (list(body["properties"]), body["required"]) == (list(GIVEN), ["message"])
    answer = described["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(ANSWER, answer)
    assert answer["properties"] == {"text": {"type": "string"}, "times": {"type": "integer", "minimum": 0}}


def test_mcp(app: App) -> None:
    async def talk() -> dict[str, object]:
        async with Client(McpServer(app, watch=False)) as client:
            return await ask(client, "metier/ping", **GIVEN)

    assert ANSWER.items() <= asyncio.run(talk()).items()


def test_the_command_line(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run = caller(world, capsys, monkeypatch)
    line = ["session", "ping", "hello", "--times", "2", "--words", "you", "--words", "there", "--loud"]
    assert run(*line).out == f"{ANSWER['text']}\n"
    assert run(*line, "--json").json == ANSWER
    shown = run("session", "ping", "--help").out
    assert "Say something back" in shown
    assert "How often." in shown
    assert run("session", "ping", "hello", "--times", "0").code == 2
    assert run("session", "pong").code == 2
