"""The server answers or ignores any input, and keeps running."""

import json
import random
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx2
import pytest
from clients import ERAS, command, open_app, serve_http

from metier.surfaces.mcp.http import http_app
from patience import PATIENCE
from worlds import World

pytestmark = pytest.mark.system

SKILLS = ".agents/skills"
MESSAGES = 1_000
METHODS = (
    "skills/list",
    "skills/get",
    "resources/directory/read",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "ping",
    "server/discover",
    "resources/subscribe",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/initialized",
    "no/such/method",
    "",
    "rpc.discover",
)
TEXTS = (
    "",
    "pdf",
    "skill://pdf/SKILL.md",
    "skill://pdf",
    "skill://pdf/../..",
    "skill://%ff",
    "\x00",
    "\u202e",
    "é" * 300,
    "skill_load",
    "skill_run",
    "skill_read",
    "a" * 20_000,
    "../../etc/passwd",
    "ref/prompt",
    "ref/resource",
    "name",
)
KEYS = ("uri", "name", "arguments", "cursor", "ref", "argument", "context", "_meta", "path", "query", "type", "value")
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def value(chance: random.Random, depth: int = 0) -> object:
    kind = chance.randrange(8 if depth < 4 else 6)
    if kind < 3:
        return chance.choice(TEXTS)
    if kind < 6:
        return chance.choice([None, True, -1, 2**70, 1e308, 0.5, [], {}])
    if kind == 6:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(KEYS): value(chance, depth + 1) for _ in range(chance.randrange(5))}


def message(chance: random.Random, number: int, modern: bool) -> bytes:
    """Random bytes, broken JSON, or a request with a real method and random arguments."""
    kind = chance.randrange(10)
    if kind == 0:
        return chance.randbytes(chance.randrange(1, 200)).replace(b"\n", b"").replace(b"\r", b"")
    if kind == 1:
        return chance.choice(
            [
                b"[" * 5_000,
                b"{}",
                b"[]",
                b"null",
                b'"x"',
                b'{"jsonrpc":"2.0"}',
                b'{"id":1,"result":7}',
                b'{"jsonrpc":"2.0","id":9,"method":"\\ud800"}',
                b'{"jsonrpc":"1.0","id":1}',
            ]
        )
    params: object = {chance.choice(KEYS): value(chance, 1) for _ in range(chance.randrange(5))}
    if chance.random() < 0.15:
        params = value(chance)
    if isinstance(params, dict) and modern and chance.random() < 0.9:
        params = {**params, "_meta": META}
    given: dict[str, object] = {"jsonrpc": "2.0", "id": number, "method": chance.choice(METHODS), "params": params}
    if chance.random() < 0.2:
        given["id"] = chance.choice([None, 1.5, "text", [], {"a": 1}])
    if chance.random() < 0.1:
        del given[chance.choice(["jsonrpc", "id", "method", "params"])]
    return json.dumps(given).encode()


def messages(seed: int, era: str) -> Iterator[bytes]:
    chance = random.Random(seed)
    return (message(chance, number, era == "2026") for number in range(MESSAGES))


def opening(era: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first message of a client, and a request that must succeed at the end."""
    info = {"name": "test", "version": "0"}
    if era == "2025":
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        return {"method": "initialize", "params": hello}, {"method": "skills/list", "params": {}}
    return {"method": "server/discover", "params": {"_meta": META}}, {
        "method": "skills/list",
        "params": {"_meta": META},
    }


def is_request(text: bytes) -> bool:
    """Whether a message is a valid JSON-RPC request, which must be answered."""
    try:
        given = json.loads(text)
        json.dumps(given, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # the SDK drops messages that it cannot parse, such as half a surrogate pair
        return False
    shape = {"jsonrpc": str, "id": int, "method": str}
    return (
        isinstance(given, dict)
        and all(type(given.get(key)) is kind for key, kind in shape.items())
        and given["jsonrpc"] == "2.0"
        and isinstance(given.get("params", {}), dict)
    )


@pytest.mark.parametrize("era", list(ERAS))
def test_each_request_among_a_thousand_random_messages_on_a_pipe_is_answered(
    world: World, tmp_path: Path, era: str
) -> None:
    world.skill(f"{SKILLS}/pdf", files={"a.md": "x", "scripts/a.sh": "echo"})
    first, last = opening(era)
    noise = list(messages(7, era))
    owed = {json.loads(text)["id"] for text in noise if is_request(text)} | {"first", "last"}
    assert len(owed) > MESSAGES // 3
    lines = [json.dumps({"jsonrpc": "2.0", "id": "first", **first}).encode()]
    if era == "2025":
        lines.append(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    lines += [*noise, json.dumps({"jsonrpc": "2.0", "id": "last", **last}).encode()]
    with (tmp_path / "stderr").open("wb") as errors:
        server = subprocess.Popen(command(world), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    deadline = threading.Timer(60, server.kill)
    deadline.start()
    with server:
        assert server.stdin is not None
        assert server.stdout is not None
        writer = threading.Thread(target=_write, args=(server.stdin, lines))
        writer.start()
        answers: dict[Any, dict[str, Any]] = {}
        while not owed <= answers.keys() and (line := server.stdout.readline()):
            answer = json.loads(line)
            if not isinstance(answer.get("id"), (list, dict)):
                answers[answer.get("id")] = answer
        writer.join()
        deadline.cancel()
        assert owed - answers.keys() == set()
        assert answers["last"]["result"]["skills"][0]["uri"] == "skill://pdf/SKILL.md"
        server.stdin.close()
        assert server.wait() == 0


def _write(stream: IO[bytes], lines: list[bytes]) -> None:
    for line in lines:
        stream.write(line + b"\n")
    stream.flush()


@pytest.mark.parametrize("era", list(ERAS))
async def test_a_thousand_random_messages_over_http_leave_the_server_answering(world: World, era: str) -> None:
    world.skill(f"{SKILLS}/pdf", files={"a.md": "x"})
    first, last = opening(era)
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    async with (
        serve_http(http_app(open_app(world), watch=False)) as url,
        httpx2.AsyncClient(timeout=PATIENCE) as client,
    ):

        async def post(body: bytes, method: str = "") -> httpx2.Response:
            named = {"mcp-protocol-version": "2026-07-28", "mcp-method": method} if era == "2026" else {}
            return await client.post(url, content=body, headers={**headers, **named})

        opened = await post(json.dumps({"jsonrpc": "2.0", "id": 0, **first}).encode(), first["method"])
        assert opened.status_code == 200
        if "mcp-session-id" in opened.headers:
            headers["mcp-session-id"] = opened.headers["mcp-session-id"]
            headers["mcp-protocol-version"] = "2025-11-25"
            await post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        for number, text in enumerate(messages(11, era)):
            try:
                method = str(json.loads(text)["method"])
            except (ValueError, KeyError, TypeError, RecursionError):
                method = "ping"
            answer = await post(text, method if method.isascii() and method.isprintable() else "ping")
            assert answer.status_code < 500, (number, text[:300], answer.text)
        answer = await post(json.dumps({"jsonrpc": "2.0", "id": 1, **last}).encode(), last["method"])
        assert answer.status_code == 200
        assert "skill://pdf/SKILL.md" in answer.text
