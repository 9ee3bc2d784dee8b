"""MyCodeAgent on the interfaces: a model reads the envelope, and skills that call skills are tracked in it."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from mcp import Client, types
from starlette.testclient import TestClient

from metier.app import App
from metier.replay import from_store, replay
from metier.surfaces.mcp.server import McpServer
from metier.surfaces.rpc import Dispatcher
from metier.surfaces.web.api import build
from surfaces.chat.openai_server import ModelServer, calls, text
from surfaces.chat.serving import app_of, serving
from worlds import World

Envelope = dict[str, Any]

CALLS = [
    {"name": "s0", "args": "ä"},
    {"name": "s1", "parent": "s0"},
    {"name": "s0", "parent": "s1"},
    {"name": "s1", "parent": "s1"},
    *({"name": f"s{n}", "parent": f"s{n - 1}"} for n in range(2, 9)),
    {"name": "absent"},
    {"args": "x"},
]
"""What a model sends: two skills that call each other, one that calls itself, a chain of nine, and two mistakes."""


@pytest.fixture
def project(world: World) -> World:
    for number in range(9):
        world.skill(f"skills/s{number}", body=f"Body {number} for $ARGUMENTS.\n")
    return world


def check(read: Iterable[str], world: World) -> None:
    """Whether these are the answers to `CALLS`, as texts for a model."""
    answers: list[Envelope] = [json.loads(one) for one in read]
    codes = [one.get("error", {}).get("code") for one in answers]
    assert codes == [None] * 2 + ["INVALID_PARAM"] * 2 + [None] * 6 + ["INVALID_PARAM", "NOT_FOUND", "INVALID_PARAM"]
    assert [one["status"] for one in answers] == ["error" if code else "success" for code in codes]
    base = f"{world.project}/skills/s0"
    content = f"Base directory for this skill: {base}\n\nBody 0 for ä.\n"
    assert answers[0]["data"] == {"name": "s0", "base_dir": base, "content": content}
    assert answers[0]["context"]["params_input"] == CALLS[0]
    for number, chain in ((2, "s0 -> s1 -> s0"), (3, "s0 -> s1 -> s1")):
        message = f"skills call each other in a cycle: {chain}"
        assert (answers[number]["text"], answers[number]["error"]["message"]) == (message, message)
    deep = answers[10]["error"]["message"]
    assert deep.startswith("skills call each other more than 8 deep")
    assert "s0 -> s1 -> s2 -> s3 -> s4 -> s5 -> s6 -> s7 -> s8" in deep
    assert "'absent'" in answers[11]["text"]
    assert "`name` is missing" in answers[12]["text"]


@pytest.mark.behaviour("M-052", "M-053", "N-050", "N-057")
def test_over_mcp_http_and_json_rpc_the_text_of_a_result_is_the_envelope(project: World) -> None:
    app = App(project.project, home=project.home, profile="mycodeagent", store="memory:")

    async def talk() -> list[types.CallToolResult]:
        async with Client(McpServer(app, watch=False, session_id="mine")) as client:
            return [await client.call_tool("Skill", given) for given in CALLS]

    results = asyncio.run(talk())
    texts = [block.text for one in results for block in one.content if isinstance(block, types.TextContent)]
    check(texts, project)
    for read, result in zip(texts, results, strict=True):
        assert result.structured_content in (None, json.loads(read)), "no client shows the model something else"
    assert [one.is_error for one in results] == ['"status": "error"' in one for one in texts]
    outcome = replay(from_store(app.store, "mine"))
    assert outcome.identical, outcome.differences
    client = Dispatcher(app)

    def by_rpc(given: object) -> str:
        params = {"tool": "Skill", "args": given}
        said = client.handle(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session.call", "params": params}))
        return json.dumps(json.loads(said or "")["result"])

    check([by_rpc(given) for given in CALLS], project)
    with TestClient(build(app, watch=False), base_url="http://127.0.0.1") as http:
        path = f"/api/sessions/{http.post('/api/sessions', json={}).json()['session_id']}/call"
        answers = [http.post(path, json={"tool": "Skill", "args": given}).json() for given in CALLS]
    check([one["text"] for one in answers], project)
    assert [json.loads(one["text"]) for one in answers] == [one["result"] for one in answers]
    app.close()


@pytest.mark.system
@pytest.mark.behaviour("M-052", "M-053", "N-050", "N-057")
def test_in_the_chat_the_model_reads_the_envelope_and_the_person_its_content(project: World) -> None:
    with ModelServer(calls(*(("Skill", given) for given in CALLS)), text("Done.")) as model:
        app = app_of(project, profile="mycodeagent", provider="openai", name="scripted", base_url=model.url)
        with serving(app) as chatting:
            chat = chatting.chat()
            chatting.say(chat, "Go.")
            check([one["content"] for one in model.requests[-1]["messages"] if one["role"] == "tool"], project)
            cards = chatting.items(chat, "tool")
            page = chatting.http.get(f"/chat/{chat}").text
    check([card["text"] for card in cards], project)
    assert [card["state"] for card in cards] == ["done"] * 2 + ["failed"] * 2 + ["done"] * 6 + ["failed"] * 3
    assert cards[2]["code"] == "INVALID_PARAM"
    assert "Body 0 for ä." in page
    assert "skills call each other in a cycle: s0 -&gt; s1 -&gt; s0" in page
    assert "params_input" not in page
