"""A server that offers skills and may lie about them: what it lists and what it serves are two things.

    python stranger.py FILE

FILE is JSON: `entries` is what `skills/list` answers, `files` maps each uri to its text; both are read anew each time.
Every request is written to FILE.log, one method and uri a line.
"""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

FILE = Path(sys.argv[1])


def now() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def log(line: str) -> None:
    with Path(f"{FILE}.log").open("a") as stream:
        stream.write(line + "\n")


async def skills_list(ctx: Any, params: types.PaginatedRequestParams) -> dict[str, Any]:
    log("skills/list")
    return {"resultType": "complete", "skills": now()["entries"], "ttlMs": 0, "cacheScope": "private"}


async def nothing(ctx: Any, params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[])


async def read(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    log(f"resources/read {params.uri}")
    text = now()["files"].get(str(params.uri))
    if text is None:
        raise MCPError(types.INVALID_PARAMS, "no such resource")
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=text)])


async def main() -> None:
    server = Server("stranger", on_list_resources=nothing, on_read_resource=read)
    server.add_request_handler("skills/list", types.PaginatedRequestParams, skills_list)
    if not now().get("plain"):
        server.extensions["io.modelcontextprotocol/skills"] = {}
    async with stdio_server() as (source, sink):
        await server.run(source, sink, server.create_initialization_options())


anyio.run(main)
