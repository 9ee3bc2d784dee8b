"""The protocol of 2026, and both over HTTP, answer any input; `test_nasty_messages` has the pipe of 2025."""

import itertools
import json
import random
import re

import httpx2
import pytest
from clients import ERAS, open_app, serve_http

from bench.attack.nasty import Nasty, mcp_message
from metier.surfaces.mcp.http import http_app
from patience import PATIENCE
from test_nasty_messages import BATCH, EACH, HELLO, INTERNAL, code, pipe
from worlds import World

pytestmark = pytest.mark.system

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
NO_REQUESTS = (
    *(b"[" * 5_000, b"{}", b"[]", b"null", b'"x"', b"\xff\x00", b'{"jsonrpc":"2.0"}', b'{"id":1,"result":7}'),
    *(b'{"jsonrpc":"2.0","id":9,"method":"\\ud800"}', b'{"jsonrpc":"1.0","id":1}', random.Random(7).randbytes(200)),
)


@pytest.fixture
def library(world: World) -> World:
    world.skill(".agents/skills/notes", files={"references/a.md": "x", "scripts/say.sh": "echo said\n"})
    return world


def nasty_lines(era: str) -> list[bytes]:
    """Requests of an era, with a real method and arguments that no client should send."""
    nasty = Nasty(19)
    made = [mcp_message(nasty, number) for number in range(EACH)]
    opened = b'"params": {'
    meta = opened + b'"_meta": ' + json.dumps(META).encode() + b", "
    return [line.replace(opened, meta, 1).replace(b", }", b"}") for line in made] if era == "2026" else made


def test_every_nasty_message_of_2026_on_a_pipe_is_answered_and_the_next_call(library: World) -> None:
    good = {"method": "skills/list", "params": {"_meta": META}}
    lines = nasty_lines("2026")
    with pipe(library, "mcp") as server:
        server.ask({"method": "server/discover", "params": {"_meta": META}})
        for start in range(0, EACH, BATCH):
            batch = lines[start : start + BATCH]
            answers = list(itertools.islice(server.send(*batch), BATCH))  # in any order
            assert {answer["id"] for answer in answers} <= {None, *range(start, start + BATCH)}
            assert INTERNAL not in map(code, answers), (answers, batch)
            assert server.ask(good)["result"]["skills"][0]["uri"] == "skill://notes/SKILL.md"


@pytest.mark.parametrize("era", list(ERAS))
async def test_nasty_messages_over_http_leave_the_server_answering(library: World, era: str) -> None:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    async with (
        serve_http(http_app(open_app(library), watch=False)) as url,
        httpx2.AsyncClient(timeout=PATIENCE) as client,
    ):

        async def post(body: bytes, method: str) -> httpx2.Response:
            named = {"mcp-protocol-version": "2026-07-28", "mcp-method": method} if era == "2026" else {}
            return await client.post(url, content=body, headers={**headers, **named})

        if era == "2025":
            hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
            opened = await post(json.dumps(hello).encode(), "initialize")
            headers |= {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
            await post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', "")
        for line in (*nasty_lines(era), *NO_REQUESTS):
            named = re.search(rb'"method": "([a-z/]+)"', line)
            answer = await post(line, named[1].decode() if named else "ping")
            assert answer.status_code < 500, (line[:300], answer.text)
        last = {"jsonrpc": "2.0", "id": 1, "method": "skills/list", "params": {"_meta": META} if era == "2026" else {}}
        answer = await post(json.dumps(last).encode(), "skills/list")
        assert (answer.status_code, "skill://notes/SKILL.md" in answer.text) == (200, True)
