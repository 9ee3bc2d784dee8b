"""Requests over MCP that the SDK's client has no method for."""

from typing import Any

import mcp_types as types
from mcp import Client
from pydantic import ConfigDict


class Params(types.RequestParams):
    model_config = ConfigDict(extra="allow")


class Answer(types.Result):
    model_config = ConfigDict(extra="allow")


async def ask(client: Client, method: str, **params: Any) -> dict[str, Any]:
    """The result of any method, as it came over the wire."""
    request = types.Request[Params, str](method=method, params=Params(**params))
    answer = await client.session.send_request(request, Answer)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return answer.model_dump(mode="json", by_alias=True)
