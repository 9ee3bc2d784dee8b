"""A server that may serve other files than it lists.

    python untrusted_server.py FILE

FILE is JSON: `entries` is the answer to `skills/list`, `files` maps each uri to its text. It is read for every request.
Each request is appended to FILE.log as one line with its method and uri.
"""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

Context = ServerRequestContext[dict[str, Any], Any]
FILE = Path(sys.argv[1])


def content() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def log(line: str) -> None:
    with Path(f"{FILE}.log").open("a") as stream:
        stream.write(line + "\n")


async def skills_list(ctx: Context, params: types.PaginatedRequestParams) -> dict[str, object]:
    log("skills/list")
    return {"resultType": "complete", "skills": content()["entries"], "ttlMs": 0, "cacheScope": "private"}


async def nothing(ctx: Context, params: object) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[])


async def read(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    log(f"resources/read {params.uri}")
    text = content()["files"].get(str(params.uri))
    if text is None:
        raise MCPError(types.INVALID_PARAMS, "no such resource")
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=text)])


async def main() -> None:
    server = Server("untrusted", on_list_resources=nothing, on_read_resource=read)
    server.add_request_handler("skills/list", types.PaginatedRequestParams, skills_list)
    if not content().get("plain"):
        server.extensions["io.modelcontextprotocol/skills"] = {}
    async with stdio_server() as (source, sink):
        await server.run(source, sink, server.create_initialization_options())


anyio.run(main)
