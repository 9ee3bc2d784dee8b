"""Who is on the other end: one session of ours for each client, and whom to tell when the catalog changes.

A pipe has one client. Over HTTP, the protocol of 2025 names a client by its `Mcp-Session-Id`; that of 2026 does not, so
each call stands alone unless it sends back the session that an earlier answer named. What one client has loaded is
never taken for loaded by another.
"""

import uuid
from collections import OrderedDict
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from metier.app import SESSIONS, App
from metier.session.session import Session

SESSION_KEY: Final = "metier/session"
"""In `_meta` of requests and results: the session of ours that the call belongs to."""

_HEADER: Final = "mcp-session-id"
_OURS: Final = "mcp-"
"""Sessions that came about here begin so; those of other surfaces, whose ids people choose, cannot be taken up."""

Context = ServerRequestContext["Peers", Any]


class Peers:
    """The clients of one transport; the state that all of its requests share."""

    def __init__(self, app: App, session_id: str | None = None) -> None:
        self.app = app
        self._own = session_id
        self._listening: OrderedDict[str, ServerSession] = OrderedDict()

    def session(self, ctx: Context) -> Session:
        """The session of the client that sent this request."""
        if ctx.request is None:
            session = self.app.session(self._own, surface="mcp")
            self._own = session.id
            return session
        wire = ctx.request.headers.get(_HEADER)
        if wire and ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return self.app.session(f"{_OURS}{wire}", surface="mcp")
        named = (ctx.meta or {}).get(SESSION_KEY)
        if isinstance(named, str) and named.startswith(_OURS) and self.app.exists(named):
            return self.app.session(named, surface="mcp")
        return self.app.session(f"{_OURS}{uuid.uuid4().hex}", surface="mcp")

    def tag(self, ctx: Context, session: Session) -> dict[str, Any] | None:
        """What a result says about its session; clients of 2025 have a connection that says it."""
        return {SESSION_KEY: session.id} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else None

    # --- notifications of the protocol of 2025; that of 2026 has subscriptions ---

    def listen(self, ctx: Context) -> None:
        key = ctx.request.headers.get(_HEADER, "") if ctx.request is not None else ""
        self._listening[key] = ctx.session
        while len(self._listening) > SESSIONS:
            self._listening.popitem(last=False)

    async def changed(self) -> None:
        """Tell every client; to one that is gone, nothing is sent."""
        for client in list(self._listening.values()):
            await client.send_tool_list_changed()
            await client.send_resource_list_changed()
            await client.send_prompt_list_changed()
