"""The MCP server: a server of the official SDK whose handlers ask an `App`, on any of the SDK's transports.

It speaks the 2025 protocol, with its handshake, and the 2026 protocol, without. While it runs, a watcher keeps the
catalog up to date, and clients are notified when skills or their files change. The SDK reads lines of a pipe and drops
those that it cannot parse, such as a request with half a surrogate pair in a text; here they are answered with an
error, because their sender may wait for it.
"""

import contextlib
import io
import os
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import IO, Any, Final, cast

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from metier import __version__, limits
from metier.app import App
from metier.catalog.watch import Watcher
from metier.errors import MetierError
from metier.files.json_text import infinite_in, parse_json
from metier.files.shapes import is_dict
from metier.session.operation import flaw_of
from metier.session.operations import OPERATIONS
from metier.sources.mcp_protocol import EXTENSION
from metier.surfaces.mcp.clients import Clients, Context
from metier.surfaces.mcp.handlers import PAGE, DirectoryParams, Handlers, OperationParams, SkillParams, invalid

_TORN: Final = "the message holds half a surrogate pair; send whole characters"
_NO_JSON: Final = "the message is not JSON"
_TOO_LONG: Final = f"the message is larger than {limits.MESSAGE_BYTES:,} bytes"
_NO_MESSAGE: Final = "the message is not a JSON-RPC request"


class BoundedLines(io.TextIOBase):
    """The lines of a pipe as text. Of a line that is too long, only a text that is no message is left."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:
        line = self._source.readline(limits.MESSAGE_BYTES + 2)
        if len(line.rstrip(b"\r\n")) <= limits.MESSAGE_BYTES:
            return line.decode("utf-8", "replace")
        while not line.endswith(b"\n") and line:
            line = self._source.readline(limits.MESSAGE_BYTES)
        return f"{_TOO_LONG}\n"


@contextlib.contextmanager
def own_input() -> Generator[BoundedLines]:
    """Standard input for this server alone: whatever else reads it in this process finds it empty."""
    private = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)
    try:
        # A thread may still read when the server ends, so the descriptor is never closed and used again.
        yield BoundedLines(os.fdopen(private, "rb", closefd=False))
    finally:
        os.dup2(private, 0)


async def pass_messages(
    source: ReadStream[SessionMessage | Exception],
    sink: WriteStream[SessionMessage],
    into: WriteStream[SessionMessage | Exception],
) -> None:
    """Pass messages on to the server, and answer what is none."""
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the server has ended
        async with into:
            async for item in source:
                if not isinstance(item, Exception):
                    await into.send(item)
                elif (answer := refusal(item)) is not None:
                    await sink.send(SessionMessage(answer))


def refusal(error: Exception) -> types.JSONRPCError | None:
    """The answer to a line that is no message; `None` if it may itself be an answer, which is never answered."""
    found: Sequence[Any] = error.errors() if isinstance(error, ValidationError) else ()
    unparsed = next((one["input"] for one in found if one["type"] == "json_invalid"), None)
    if unparsed is None:
        # A field is missing in at least one of the four kinds of messages, and the error for it has the whole message.
        given = next((one["input"] for one in found if one["type"] == "missing"), None)
        code, message = types.INVALID_REQUEST, _NO_MESSAGE
    else:
        try:
            given = parse_json(unparsed)
            code, message = types.INVALID_PARAMS, _TORN if flaw_of(given) == "torn" else _NO_JSON
        except (ValueError, RecursionError):
            given, code = None, types.PARSE_ERROR
            message = _TOO_LONG if unparsed == f"{_TOO_LONG}\n" else _NO_JSON
    table = cast("dict[str, object]", given) if is_dict(given) else {}
    if table and "method" not in table:
        return None
    return types.JSONRPCError(jsonrpc="2.0", id=_id(table), error=types.ErrorData(code=code, message=message))


def _id(message: dict[str, object]) -> str | int | None:
    known = message.get("id")
    is_id = isinstance(known, str | int) and not isinstance(known, bool) and flaw_of(known) is None
    return cast("str | int", known) if is_id else None


# --- the server ---


_SETTINGS: Final = {"directoryRead": True}


class McpServer(Server[Clients]):
    """See the module. The SDK's transports and its client accept it directly."""

    def __init__(self, app: App, *, page_size: int = PAGE, watch: bool = True, session_id: str | None = None) -> None:
        """Without `watch`, clients are notified of changes only when `changed` is called."""
        handlers = Handlers(app, page_size)
        self._bus = InMemorySubscriptionBus()
        super().__init__(
            "metier",
            version=__version__,
            title="Metier",
            lifespan=self._lifespan,
            on_list_tools=handlers.list_tools,
            on_call_tool=handlers.call_tool,
            on_list_resources=handlers.list_resources,
            on_list_resource_templates=handlers.list_templates,
            on_read_resource=handlers.read_resource,
            on_list_prompts=handlers.list_prompts,
            on_get_prompt=handlers.get_prompt,
            on_completion=handlers.complete,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.app, self.handlers, self._watch, self._session_id = app, handlers, watch, session_id
        self._clients: list[Clients] = []
        self.extensions[EXTENSION] = dict(_SETTINGS)
        self.add_request_handler("skills/list", types.PaginatedRequestParams, handlers.skills_list)
        self.add_request_handler("skills/get", SkillParams, handlers.skills_get)
        self.add_request_handler("resources/directory/read", DirectoryParams, handlers.directory_read)
        for name, kind in OPERATIONS.items():
            self.add_request_handler(f"metier/{name}", OperationParams, handlers.operation(kind))
        self.add_notification_handler("notifications/initialized", types.NotificationParams, _add_client)
        self.middleware += (_refuse_infinite, _declare_extension, self._instruct)

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, object]] | None = None,
        extensions: dict[str, dict[str, object]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """The capabilities, with notifications for every list on every transport."""
        changing = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().get_capabilities(
            changing, experimental_capabilities, extensions, protocol_version=protocol_version
        )

    async def _instruct(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Add the instructions, which have the catalog of this moment, to the answers that have a place for them."""
        result = await call_next(ctx)
        if ctx.method not in ("initialize", "server/discover") or not isinstance(result, dict):
            return result
        with contextlib.suppress(MetierError, MCPError):  # a request for the catalog reports what is wrong with it
            return {**result, "instructions": await self.handlers.instructions()}
        return result

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Server[Clients]) -> AsyncGenerator[Clients, None]:
        """The lifespan of one transport; on a pipe, also that of its only client."""
        clients, watcher = Clients(self.app, self._session_id), Watcher(self.app, files=True)
        self._clients.append(clients)
        try:
            async with anyio.create_task_group() as tasks:
                if self._watch:
                    tasks.start_soon(self._notify_of_changes, watcher)
                yield clients
                tasks.cancel_scope.cancel()
            await anyio.to_thread.run_sync(watcher.stop)
        finally:
            self._clients.remove(clients)

    async def _notify_of_changes(self, watcher: Watcher) -> None:
        with contextlib.suppress(MetierError):  # a request for the catalog reports what is wrong with it
            await anyio.to_thread.run_sync(self.app.skills)
        watcher.start()
        async for _ in watcher.news():
            await self.changed()

    async def changed(self) -> None:
        """Tell every client that the lists changed."""
        for event in (ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()):
            await self._bus.publish(event)
        for clients in list(self._clients):
            await clients.notify()


async def _add_client(ctx: Context, _: types.NotificationParams) -> None:
    ctx.lifespan_context.add(ctx)


async def _refuse_infinite(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Refuse numbers that JSON does not have. The SDK's parser takes them."""
    if infinite_in(ctx.params):
        raise invalid("the message has NaN, Infinity or a number that is too large; JSON has no such numbers")
    return await call_next(ctx)


async def _declare_extension(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Add the extension to the capabilities of 2025. Their schema has no extensions, but clients read them there."""
    result = await call_next(ctx)
    if ctx.method != "initialize" or not isinstance(result, dict):
        return result
    capabilities: dict[str, object] = result.get("capabilities") or {}
    return {**result, "capabilities": {**capabilities, "extensions": {EXTENSION: dict(_SETTINGS)}}}


async def run_stdio(server: McpServer) -> None:
    with own_input() as lines:
        await _serve(server, anyio.wrap_file(cast("IO[str]", lines)))


async def _serve(server: McpServer, lines: anyio.AsyncFile[str]) -> None:
    async with stdio_server(stdin=lines) as (source, sink):
        into, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pass_messages, source, sink, into)
            await server.run(messages, sink, server.create_initialization_options())
            tasks.cancel_scope.cancel()


def main(app: App, session_id: str | None = None) -> None:
    """Speak MCP on standard input and output until the input ends."""
    with contextlib.suppress(KeyboardInterrupt):
        anyio.run(run_stdio, McpServer(app, session_id=session_id))
