"""The surfaces of Metier in this process: what a person or a model reads of the answer to an operation.

Each is a function that opens a session on a world, or on an `App` of it, and takes steps in it.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp import Client
from mcp.shared.exceptions import MCPError
from starlette.testclient import TestClient

from calling import Run
from mcp_requests import ask
from metier.app import App
from metier.errors import MetierError
from metier.session.operations import OPERATIONS
from metier.surfaces.cli.registry import COMMANDS
from metier.surfaces.mcp.server import McpServer
from metier.surfaces.rpc import Dispatcher
from metier.surfaces.web.api import build
from worlds import World

Ask = Callable[[str, Mapping[str, object]], str]
"""Takes the name of an operation and its fields, and returns the answer as text."""


def in_python(world: World, run: Run, steps: Callable[[Ask], None], app: App | None = None) -> None:
    session = (app or app_of(world)).session()

    def say(name: str, fields: Mapping[str, object]) -> str:
        kind = OPERATIONS[name]
        operation = kind.from_dict(fields)
        try:
            return json.dumps(operation.data(session.perform(operation)))
        except MetierError as error:
            return str(error)

    steps(say)


def over_json_rpc(world: World, run: Run, steps: Callable[[Ask], None], app: App | None = None) -> None:
    client = Dispatcher(app or app_of(world))
    message = {"jsonrpc": "2.0", "id": 1}
    steps(
        lambda name, fields: (
            client.handle(json.dumps(message | {"method": f"session.{name}", "params": on_wire(fields)})) or ""
        )
    )


def over_http(world: World, run: Run, steps: Callable[[Ask], None], app: App | None = None) -> None:
    with TestClient(build(app or app_of(world), watch=False), base_url="http://127.0.0.1") as client:
        place = f"/api/sessions/{client.post('/api/sessions', json={}).json()['session_id']}"
        steps(lambda name, fields: client.post(f"{place}/{name}", json=on_wire(fields)).text)


def over_mcp(world: World, run: Run, steps: Callable[[Ask], None], app: App | None = None) -> None:
    served = app or app_of(world)

    async def talk(name: str, fields: Mapping[str, object]) -> str:
        async with Client(McpServer(served, watch=False, session_id="mine"), cache=None) as client:
            try:
                return json.dumps(await ask(client, f"metier/{name}", **on_wire(fields)))
            except MCPError as error:
                return error.error.message

    steps(lambda name, fields: asyncio.run(talk(name, fields)))


def on_the_command_line(world: World, run: Run, steps: Callable[[Ask], None]) -> None:
    def say(name: str, fields: Mapping[str, object]) -> str:
        given = fields.get("arguments")
        words = [str(fields["tool"]), json.dumps(given)] if name == "call" else _words(fields)
        command = [name] if name in COMMANDS else ["session", name.replace("_", "-")]
        done = run(*command, *words, "--session", "mine", "--json", "--home", str(world.home))
        return done.out + done.err

    steps(say)


def app_of(world: World) -> App:
    return App(world.project, home=world.home, store="memory:")


def on_wire(fields: Mapping[str, object]) -> dict[str, Any]:
    return {{"arguments": "args"}.get(key, key): value for key, value in fields.items()}


SURFACES: Final = (in_python, over_json_rpc, over_http, over_mcp, on_the_command_line)


def _words(fields: Mapping[str, object]) -> list[str]:
    """Fields as arguments of a command: each by its place, but a path that stands alone."""
    if list(fields) == ["path"]:
        return ["--path", str(fields["path"])]
    return [str(value) for value in fields.values()]
