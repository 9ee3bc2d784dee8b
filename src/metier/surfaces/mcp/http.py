"""The MCP server as an ASGI application, to mount in another application or to serve alone.

Requests are accepted only for the listed hosts and origins, so a web page cannot reach a local server through a host
name of its own. The application answers while `lifespan` is entered.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Receive, Scope, Send

from metier.app import App
from metier.surfaces.mcp.handlers import PAGE
from metier.surfaces.mcp.server import McpServer

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class HttpApp:
    """An ASGI application that serves MCP at whichever path it is mounted."""

    def __init__(self, server: McpServer, hosts: Sequence[str], origins: Sequence[str]) -> None:
        self.server = server
        self._security = TransportSecuritySettings(
            enable_dns_rebinding_protection=True, allowed_hosts=list(hosts), allowed_origins=list(origins)
        )
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None, None]:
        """Answer requests while this is entered. It may be entered again later."""
        self._manager = StreamableHTTPSessionManager(self.server, security_settings=self._security)
        try:
            async with self._manager.run():
                yield
        finally:
            self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)
        elif scope["type"] == "http":
            if self._manager is None:
                raise RuntimeError("enter lifespan() before the first request, as in `async with http.lifespan(): ...`")
            # Spaces around a value are no part of it, yet not every server removes them, and MCP compares values.
            trimmed = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
            await self._manager.handle_request({**scope, "headers": trimmed}, receive, send)

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.lifespan():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def http_app(
    app: App,
    *,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    watch: bool = True,
    page_size: int = PAGE,
) -> HttpApp:
    """The server over streamable HTTP. Loopback is allowed at any port; `hosts` and `origins` allow others."""
    server = McpServer(app, watch=watch, page_size=page_size)
    local = [name for host in LOOPBACK for name in (host, f"{host}:*")]
    pages = [f"{scheme}://{name}" for scheme in ("http", "https") for name in local]
    return HttpApp(server, (*local, *hosts), (*pages, *origins))
