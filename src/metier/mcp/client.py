"""A connection to another MCP server, for callers that are not asynchronous.

All connections of a process live in one background thread, so that a session can read a file without knowing of event
loops. A connection is made when it is first needed and made again, once, when it turns out to be broken.
"""

import base64
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import anyio
import mcp_types as types
from anyio.from_thread import BlockingPortal
from mcp import Client, StdioServerParameters
from mcp.client.extension import advertise
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from metier.errors import ResourceError
from metier.mcp import EXTENSION

SECONDS: Final = 30.0
"""For one answer of a server."""
PAGES: Final = 1_000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A server that the user named: how to reach it, and what the user grants it."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    prefer: bool = False
    """Its skills win over local ones of the same name."""
    allowed_tools: tuple[str, ...] = ()
    """Its skills whose `allowed-tools` counts."""


class _ListSkills(types.Request[types.PaginatedRequestParams, str]):
    method: str = "skills/list"
    params: types.PaginatedRequestParams


class _Listed(types.Result):
    """The wire's own words; entries are judged one by one, so that a bad one costs no other."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    skills: list[Any]
    nextCursor: str | None = None  # noqa: N815 - the wire's name
    ttlMs: int = 0  # noqa: N815


class Thread:
    """The background thread with its event loop; it ends with the process, or when it is closed."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._portal: BlockingPortal | None = None
        self._thread = threading.Thread(target=anyio.run, args=(self._serve,), name="metier-mcp", daemon=True)
        self._thread.start()

    async def _serve(self) -> None:
        async with BlockingPortal() as self._portal:
            self._ready.set()
            await self._portal.sleep_until_stopped()

    @property
    def portal(self) -> BlockingPortal:
        self._ready.wait()
        assert self._portal is not None
        return self._portal

    def close(self) -> None:
        portal = self.portal
        portal.call(portal.stop)
        self._thread.join(SECONDS)


class Link:
    """One server. Every failure is a `ResourceError` with the reason `unreachable` or `server`."""

    def __init__(self, config: ServerConfig, thread: Thread) -> None:
        self.config = config
        self._thread = thread
        self._lock = threading.RLock()
        self._manager: AbstractContextManager[Client] | None = None
        self._client: Client | None = None

    def skills(self) -> tuple[list[Any], int]:
        """The entries of all pages as they came, and for how many milliseconds they may be taken for current."""
        return self._call(_list_skills)

    def read(self, uri: str) -> bytes:
        """The bytes of a resource of this server."""

        async def fetch(client: Client) -> bytes:
            result = await client.read_resource(uri, cache_mode="bypass")
            if len(result.contents) != 1:
                raise ResourceError(f"{uri} is {len(result.contents)} contents, not one", path=uri, reason="server")
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
            fresh = self._client is None
            try:
                return self._thread.portal.call(ask, self._connected())
            except (ResourceError, MCPError) as error:
                if isinstance(error, ResourceError) or error.code != types.CONNECTION_CLOSED:
                    raise self._failure(error) from error
                self._forget()
                if fresh:
                    raise self._failure(error) from error
            except Exception as error:
                self._forget()
                raise self._failure(error) from error
            return self._call(ask)

    def _connected(self) -> Client:
        if self._client is None:
            self._manager = self._thread.portal.wrap_async_context_manager(_open(self.config))
            self._client = self._manager.__enter__()
        return self._client

    def _forget(self) -> None:
        try:
            self.close()
        except ResourceError:
            return  # it is gone, which is what was wanted

    def _failure(self, error: Exception) -> ResourceError:
        if isinstance(error, ResourceError):
            return error
        cause = _cause(error)
        if isinstance(cause, MCPError) and cause.code != types.CONNECTION_CLOSED:
            return ResourceError(f"the server {self.config.name} says: {cause.message}", reason="server")
        detail = str(cause) or type(cause).__name__
        return ResourceError(f"the server {self.config.name} cannot be reached: {detail}", reason="unreachable")


def _cause(error: BaseException) -> BaseException:
    """What went wrong first, out of the groups that tasks put it into."""
    if isinstance(error, BaseExceptionGroup):
        return _cause(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error


@asynccontextmanager
async def _open(config: ServerConfig) -> AsyncGenerator[Client, None]:
    extensions = [advertise(EXTENSION)]
    if config.url:
        async with Client(config.url, read_timeout_seconds=SECONDS, extensions=extensions, cache=None) as client:
            yield client
        return
    command, *arguments = config.command
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(config.env) or None)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        pipe = stdio_client(parameters, errlog=nowhere)
        async with Client(pipe, read_timeout_seconds=SECONDS, extensions=extensions, cache=None) as client:
            yield client


async def _list_skills(client: Client) -> tuple[list[Any], int]:
    if EXTENSION not in (client.server_capabilities.extensions or {}):
        raise ResourceError("the server does not offer skills", reason="server")
    entries: list[Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    ttl: int | None = None
    for _ in range(PAGES):
        request = _ListSkills(params=types.PaginatedRequestParams(cursor=cursor))
        page = await client.session.send_request(request, _Listed)
        entries += page.skills
        ttl = page.ttlMs if ttl is None else min(ttl, page.ttlMs)
        cursor = page.nextCursor
        if not cursor or cursor in seen:
            break
        seen.add(cursor)
    return entries, max(ttl or 0, 0)
