"""Mounts the MCP server in the web server, at `/mcp`, behind the same gate.

It runs in a task of its own, so that it can end before the web server waits for open responses; otherwise an open
stream of a client would keep the server from ending. Calls under way are finished first, within a time limit.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskStatus
from starlette.types import Receive, Scope, Send

from metier.app import App
from metier.errors import MissingExtra
from metier.surfaces.web.endpoints import refusal
from metier.surfaces.web.guard import Gate

if TYPE_CHECKING:
    from metier.surfaces.mcp.http import HttpApp

PATIENCE_SECONDS: Final = 4.0
"""For calls under way when the server ends. Streams that a client opened with a call end with them."""


class McpMount:
    """An ASGI application that answers inside `lifespan`, until `end` is called."""

    def __init__(self, app: App, gate: Gate, *, watch: bool) -> None:
        """With `watch`, the skills on disk are watched, and clients are told about changes."""
        self.missing = ""
        """Why MCP is not available, and what to do about it."""
        self._inner: HttpApp | None = None
        self._ending = asyncio.Event()
        self._calls = 0
        try:
            from metier.surfaces.mcp.http import http_app
        except MissingExtra as error:
            self.missing = str(error)
            return
        hosts = [form for name in sorted(gate.hosts) for form in (name, f"{name}:*")]
        origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
        self._inner = http_app(app, hosts=hosts, origins=origins, watch=watch)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._inner is None:
            await refusal(501, "NOT_INSTALLED", self.missing)(scope, receive, send)
            return
        if self._ending.is_set():
            await refusal(503, "ENDING", "the server is ending; try again")(scope, receive, send)
            return
        calls = scope["method"] == "POST"
        self._calls += calls
        try:
            await self._inner(scope, receive, send)
        finally:
            self._calls -= calls

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None, None]:
        if self._inner is None:
            yield
            return
        self._ending.clear()
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._run, self._inner)
            try:
                yield
            finally:
                self.end()

    async def _run(self, inner: "HttpApp", *, task_status: TaskStatus[None]) -> None:
        async with inner.lifespan():
            task_status.started()
            await self._ending.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while self._calls:
                        await asyncio.sleep(0.05)

    def end(self) -> None:
        self._ending.set()
