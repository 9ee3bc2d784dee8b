"""A client of another MCP server, for callers that are not asynchronous.

All connections of a process run in one background thread, so a session can read a file without an event loop of its
own. A client connects on first use, and reconnects once if the connection turns out to be broken.
"""

import base64
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Final, NamedTuple, TypeVar, cast

import httpx2
import mcp_types as types
from anyio.from_thread import BlockingPortal
from mcp import Client, StdioServerParameters
from mcp.client.extension import advertise
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from metier.errors import ResourceError
from metier.sources.mcp_protocol import EXTENSION
from metier.values.value import Value, field

SECONDS: Final = 30.0
"""The timeout of one request."""
_STREAM_SECONDS: Final = 300.0
"""A server may be silent this long on a stream that it holds open."""
PAGES: Final = 1_000
_T = TypeVar("_T")


class ServerConfig(Value):
    """A server from the user's configuration: how to reach it, and what it may do."""

    unshown = ("headers",)
    unhashed = (
        "env",
        "headers",
    )

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sent with every request to the `url`, such as the token that the server asks for."""
    prefer: bool = False
    """Its skills win over local skills of the same name."""
    allowed_tools: tuple[str, ...] = ()
    """The names of its skills whose `allowed-tools` are honoured."""


class ListedSkills(NamedTuple):
    """The answer to `skills/list`."""

    entries: list[object]
    """The entries of all pages, unchecked."""
    ttl_ms: int
    """How long the list stays current, in milliseconds."""


class _ListSkillsRequest(types.Request[types.PaginatedRequestParams, str]):
    method: str = "skills/list"
    params: types.PaginatedRequestParams


class _ListSkillsResult(types.Result):
    """One page, with the protocol's names. Entries are checked later, one by one, so a bad one affects no other."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    skills: list[object]
    nextCursor: str | None = None  # noqa: N815 - the protocol's name
    ttlMs: int = 0  # noqa: N815


class McpClient:
    """The connection to one server. Every failure is a `ResourceError` with the reason `unreachable` or `server`."""

    def __init__(self, config: ServerConfig, portal: BlockingPortal) -> None:
        self.config, self._portal = config, portal
        self._lock = threading.RLock()
        self._manager: AbstractContextManager[Client] | None = None
        self._client: Client | None = None

    def skills(self) -> ListedSkills:
        """The skills that the server offers."""

        async def fetch(client: Client) -> ListedSkills:
            if EXTENSION not in (client.server_capabilities.extensions or {}):
                raise ResourceError(f"the server {self.config.name} does not offer skills", reason="server")
            return await _list_skills(client)

        return self._call(fetch)

    def read(self, uri: str) -> bytes:
        """The bytes of a resource of this server."""

        async def fetch(client: Client) -> bytes:
            result = await client.read_resource(uri, cache_mode="bypass")
            if len(result.contents) != 1:
                message = f"{uri} has {len(result.contents)} contents instead of one"
                raise ResourceError(message, path=uri, reason="server")
            content = result.contents[0]
            if isinstance(content, types.TextResourceContents):
                return content.text.encode()
            return base64.b64decode(content.blob, validate=True)

        return self._call(fetch)

    def close(self) -> None:
        with self._lock:
            manager, self._manager, self._client = self._manager, None, None
            if manager is not None:
                try:
                    manager.__exit__(None, None, None)
                except Exception as error:
                    raise self._failure(error) from error

    def _call(self, ask: Callable[[Client], Awaitable[_T]]) -> _T:
        with self._lock:
            new = self._client is None
            try:
                return self._portal.call(ask, self._connected())
            except (ResourceError, MCPError) as error:
                if isinstance(error, ResourceError) or error.code != types.CONNECTION_CLOSED:
                    raise self._failure(error) from error
                self._disconnect()
                if new:
                    raise self._failure(error) from error
            except Exception as error:
                self._disconnect()
                raise self._failure(error) from error
            return self._call(ask)

    def _connected(self) -> Client:
        if self._client is None:
            self._manager = self._portal.wrap_async_context_manager(_connect(self.config))
            self._client = self._manager.__enter__()
        return self._client

    def _disconnect(self) -> None:
        try:
            self.close()
        except ResourceError:
            return  # the connection is broken, so closing it may fail

    def _failure(self, error: Exception) -> ResourceError:
        if isinstance(error, ResourceError):
            return error
        cause = _first_cause(error)
        if isinstance(cause, MCPError) and cause.code != types.CONNECTION_CLOSED:
            return ResourceError(f"the server {self.config.name} answered: {cause.message}", reason="server")
        detail = str(cause) or type(cause).__name__
        return ResourceError(f"cannot reach the server {self.config.name}: {detail}", reason="unreachable")


def _first_cause(error: BaseException) -> BaseException:
    """The first error of the exception groups that tasks wrap it in."""
    if isinstance(error, BaseExceptionGroup):
        return _first_cause(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error


@asynccontextmanager
async def _connect(config: ServerConfig) -> AsyncGenerator[Client, None]:
    extensions = [advertise(EXTENSION)]
    if config.url:
        timeout = httpx2.Timeout(SECONDS, read=_STREAM_SECONDS)
        async with httpx2.AsyncClient(headers=dict(config.headers), timeout=timeout) as wire:
            stream = streamable_http_client(config.url, http_client=wire)
            async with Client(stream, read_timeout_seconds=SECONDS, extensions=extensions, cache=None) as client:
                yield client
        return
    command, *arguments = config.command
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(config.env) or None)
    with open(os.devnull, "w", encoding="utf-8") as discarded:
        pipe = stdio_client(parameters, errlog=discarded)
        async with Client(pipe, read_timeout_seconds=SECONDS, extensions=extensions, cache=None) as client:
            yield client


async def _list_skills(client: Client) -> ListedSkills:
    entries: list[object] = []
    cursor: str | None = None
    seen: set[str] = set()
    ttl: int | None = None
    for _ in range(PAGES):
        request = _ListSkillsRequest(params=types.PaginatedRequestParams(cursor=cursor))
        page = await client.session.send_request(request, _ListSkillsResult)
        entries += page.skills
        ttl = page.ttlMs if ttl is None else min(ttl, page.ttlMs)
        cursor = page.nextCursor
        if not cursor or cursor in seen:
            break
        seen.add(cursor)
    return ListedSkills(entries, max(ttl or 0, 0))
