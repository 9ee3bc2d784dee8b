"""The MCP server: one `Server` of the SDK whose handlers ask an `App`, on any of the SDK's transports.

It speaks both eras of the protocol, 2025 with its handshake and 2026 without. While it lives, a watcher keeps the
catalog up to date, and clients are told when skills or their files change.
"""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions
from mcp.server.lowlevel import Server as Protocol
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)

from metier import __version__
from metier.app import App
from metier.catalog.watch import Watcher
from metier.errors import MetierError
from metier.mcp import EXTENSION
from metier.mcp.clients import Context, Peers
from metier.mcp.handlers import Handlers
from metier.mcp.wire import PAGE, DirectoryParams, OperationParams, SkillParams
from metier.session.operations import OPERATIONS

_SETTINGS: Final = {"directoryRead": True}

INSTRUCTIONS: Final = (
    "This server offers Agent Skills: folders with instructions and files for tasks of a kind. Before a task that a "
    "skill may cover, look for one with the tools, load it, and follow its instructions; read its files when they are "
    "needed. Every file of a skill is also a resource at skill://<name>/<path>."
)


class Server(Protocol[Peers]):
    """See the module. The SDK's transports and its client take it as it is."""

    def __init__(self, app: App, *, page_size: int = PAGE, watch: bool = True, session_id: str | None = None) -> None:
        """Without `watch`, clients hear of changes when somebody calls `changed`."""
        handlers = Handlers(app, page_size)
        self._bus = InMemorySubscriptionBus()
        super().__init__(
            "metier",
            version=__version__,
            title="Metier",
            instructions=INSTRUCTIONS,
            lifespan=self._live,
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
        self._peers: list[Peers] = []
        self.extensions[EXTENSION] = dict(_SETTINGS)
        self.add_request_handler("skills/list", types.PaginatedRequestParams, handlers.skills_list)
        self.add_request_handler("skills/get", SkillParams, handlers.skills_get)
        self.add_request_handler("resources/directory/read", DirectoryParams, handlers.directory_read)
        for name, kind in OPERATIONS.items():
            self.add_request_handler(f"metier/{name}", OperationParams, handlers.operation(kind))
        self.add_notification_handler("notifications/initialized", types.NotificationParams, _listen)
        self.middleware.append(_declare_extension)

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """Every list may change, whichever transport asks."""
        changing = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().get_capabilities(
            changing, experimental_capabilities, extensions, protocol_version=protocol_version
        )

    @contextlib.asynccontextmanager
    async def _live(self, _: Protocol[Peers]) -> AsyncGenerator[Peers, None]:
        """The life of one transport, which is that of a client where a transport has only one."""
        peers, watcher = Peers(self.app, self._session_id), Watcher(self.app, files=True)
        self._peers.append(peers)
        try:
            async with anyio.create_task_group() as tasks:
                if self._watch:
                    tasks.start_soon(self._tell, watcher)
                yield peers
                tasks.cancel_scope.cancel()
            await anyio.to_thread.run_sync(watcher.stop)
        finally:
            self._peers.remove(peers)

    async def _tell(self, watcher: Watcher) -> None:
        with contextlib.suppress(MetierError):  # whoever asks for the catalog is told what is wrong with it
            await anyio.to_thread.run_sync(self.app.skills)
        watcher.start()
        async for _ in watcher.news():
            await self.changed()

    async def changed(self) -> None:
        """Tell every client that the lists are others now."""
        for event in (ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()):
            await self._bus.publish(event)
        for peers in list(self._peers):
            await peers.changed()


async def _listen(ctx: Context, _: types.NotificationParams) -> None:
    ctx.lifespan_context.listen(ctx)


async def _declare_extension(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """The schema of 2025 has no place for extensions, and the SDK keeps to it; clients look there all the same."""
    result = await call_next(ctx)
    if ctx.method != "initialize" or not isinstance(result, dict):
        return result
    capabilities: dict[str, Any] = result.get("capabilities") or {}
    return {**result, "capabilities": {**capabilities, "extensions": {EXTENSION: dict(_SETTINGS)}}}


async def run_stdio(server: Server) -> None:
    async with stdio_server() as (source, sink):
        await server.run(source, sink, server.create_initialization_options())


def main(app: App, session_id: str | None = None) -> None:
    """Speak MCP on standard input and output until the input ends."""
    with contextlib.suppress(KeyboardInterrupt):
        anyio.run(run_stdio, Server(app, session_id=session_id))
