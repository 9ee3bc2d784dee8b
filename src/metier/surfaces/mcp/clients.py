"""The clients of a server: one session for each, and which of them to notify when the catalog changes.

A pipe has one client. Over HTTP, the 2025 protocol identifies a client by its `Mcp-Session-Id`. The 2026 protocol has
no such id, so each call gets a new session unless it sends back the session id of an earlier result. What one client
has loaded never counts as loaded for another.
"""

import uuid
from collections import OrderedDict
from typing import Final

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request as HttpRequest

from metier.app import SESSIONS, App
from metier.session.session import Session
from metier.surfaces.mcp.asking import approve, can_ask

SESSION_KEY: Final = "metier/session"
"""The key in `_meta` of requests and results that holds the id of the session."""

_HEADER: Final = "mcp-session-id"
_PREFIX: Final = "mcp-"
"""The prefix of session ids that are made here. A client cannot name a session of another surface."""

Context = ServerRequestContext["Clients", HttpRequest]


class Clients:
    """The clients of one transport; the state that all of its requests share."""

    def __init__(self, app: App, session_id: str | None = None) -> None:
        self.app = app
        self._pipe_session = session_id
        self._notified: OrderedDict[str, ServerSession] = OrderedDict()

    def session(self, ctx: Context) -> Session:
        """The session of the client that sent this request. A client that shows forms is asked for confirmation."""
        asks = approve if can_ask(ctx.session) else None
        if ctx.request is None:
            session = self.app.session(self._pipe_session, approve=asks, surface="mcp")
            self._pipe_session = session.id
            return session
        sent = ctx.request.headers.get(_HEADER)
        if sent and ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return self.app.session(f"{_PREFIX}{sent}", approve=asks, surface="mcp")
        named = (ctx.meta or {}).get(SESSION_KEY)
        if isinstance(named, str) and named.startswith(_PREFIX) and self.app.exists(named):
            return self.app.session(named, approve=asks, surface="mcp")
        return self.app.session(f"{_PREFIX}{uuid.uuid4().hex}", approve=asks, surface="mcp")

    def result_meta(self, ctx: Context, session: Session) -> dict[str, object] | None:
        """The `_meta` of a result: the session id for 2026 clients. For 2025 clients the connection identifies it."""
        return {SESSION_KEY: session.id} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else None

    # --- notifications of the 2025 protocol; the 2026 protocol has subscriptions ---

    def add(self, ctx: Context) -> None:
        """Notify the client that sent this request of changes."""
        key = ctx.request.headers.get(_HEADER, "") if ctx.request is not None else ""
        self._notified[key] = ctx.session
        while len(self._notified) > SESSIONS:
            self._notified.popitem(last=False)

    async def notify(self) -> None:
        """Tell every client that the lists changed. The SDK drops messages to clients that have disconnected."""
        for client in list(self._notified.values()):
            await client.send_tool_list_changed()
            await client.send_resource_list_changed()
            await client.send_prompt_list_changed()
