"""The SDK's client, connected to our server in memory, over a pipe or over HTTP, with both versions of the protocol."""

import base64
import hashlib
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.session import ElicitationFnT
from mcp.client.streamable_http import streamable_http_client

import forking
from mcp_requests import ask
from metier.app import App
from metier.surfaces.mcp.handlers import PAGE
from metier.surfaces.mcp.http import HttpApp, http_app
from metier.surfaces.mcp.server import McpServer
from profile_kinds import KINDS
from worlds import World

ERAS = {"2025": ("legacy", "2025-11-25"), "2026": ("auto", "2026-07-28")}
"""The mode of the SDK's client and the protocol version, for each generation of the protocol."""
BOTH_ERAS = pytest.mark.parametrize("era", list(ERAS))
CONNECTIONS = pytest.mark.parametrize(("transport", "era"), [(t, e) for t in ("memory", "stdio", "http") for e in ERAS])
EVERYWHERE = (".agents/skills", ".omp/skills", "skills", ".rip/skills", ".skills")
"""Where the kinds of hosts that have tools look for skills."""
HOSTS = [kind for kind in KINDS if kind != "claude-code"]


async def all_pages(client: Client, method: str, key: str, **params: object) -> list[Any]:
    found: list[Any] = []
    cursor: dict[str, object] = {}
    while True:
        result = await ask(client, method, **params, **cursor)
        found += result[key]
        if not result.get("nextCursor"):
            return found
        cursor = {"cursor": result["nextCursor"]}


def bytes_of(result: types.ReadResourceResult) -> bytes:
    (content,) = result.contents
    if isinstance(content, types.TextResourceContents):
        return content.text.encode()
    return base64.b64decode(content.blob)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def open_app(world: World, *, profile: str | None = None, settings: Mapping[str, object] | None = None) -> App:
    return App(world.project, home=world.home, profile=profile, settings=settings, store="memory:", surface="mcp")


def command(world: World, *more: str) -> list[str]:
    """The command that starts our server on a pipe."""
    return [
        *forking.program("mcp"),
        "--cwd",
        str(world.project),
        "--home",
        str(world.home),
        "--store",
        "memory:",
        *more,
    ]


@asynccontextmanager
async def serve_http(application: HttpApp) -> AsyncGenerator[str, None]:
    """Serve the application on a free loopback port. Yields its URL."""
    config = uvicorn.Config(application, "127.0.0.1", 0, log_level="error", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        while not server.started:
            await anyio.sleep(0.01)
        (socket,) = server.servers[0].sockets
        try:
            yield f"http://127.0.0.1:{socket.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True


@asynccontextmanager
async def connected(
    world: World,
    transport: str,
    era: str,
    app: App | None = None,
    *,
    page_size: int = PAGE,
    asked: ElicitationFnT | None = None,
) -> AsyncGenerator[Client, None]:
    """A client of our server, which answers questions if it has `asked`. `stdio` has no `app` and no `page_size`."""
    mode, version = ERAS[era]
    if transport == "stdio":
        first, *rest = command(world)
        python_path = os.pathsep.join(path for path in sys.path if path)  # the same package as in this process
        target = StdioServerParameters(command=first, args=rest, env={"PYTHONPATH": python_path})
        async with Client(target, mode=mode, cache=None, elicitation_callback=asked) as client:
            assert client.protocol_version == version
            yield client
        return
    shared = app or open_app(world)
    if transport == "memory":
        server = McpServer(shared, watch=False, page_size=page_size)
        async with Client(server, mode=mode, cache=None, elicitation_callback=asked) as client:
            assert client.protocol_version == version
            yield client
        return
    async with (
        serve_http(http_app(shared, watch=False, page_size=page_size)) as url,
        Client(streamable_http_client(url), mode=mode, cache=None, elicitation_callback=asked) as client,
    ):
        assert client.protocol_version == version
        yield client
