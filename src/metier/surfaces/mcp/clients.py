"""The clients of a server: one session for each, what they are asked, and which to notify when the catalog changes.

A pipe has one client. Over HTTP, the 2025 protocol identifies a client by its `Mcp-Session-Id`. The 2026 protocol has
no such id, so each call gets a new session unless it sends back the session id of an earlier result. What one client
has loaded never counts as loaded for another.

What policy wants to have confirmed is asked by `elicitation/create` in form mode. Accepting the form is the yes, and
declining it is the no. Its one field says how long the yes holds, and may be left as it is. With the 2025 protocol, the
server sends the request while the call waits. With the 2026 protocol, the first answer to the call has the questions,
and the client makes the call again with the answers. An answer counts only for the very request that was shown. Clients
without the capability are not asked; the rule for that is the policy's.
"""

import contextlib
import json
import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from typing import Final

import anyio
import anyio.from_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request as HttpRequest

from metier import limits
from metier.app import SESSIONS, App
from metier.files.digests import digest_of
from metier.policy.asking import CANCELLED, DECLINED, UNANSWERED, YES
from metier.policy.question import Question
from metier.session.session import Session
from metier.values.results import Request

_LOG: Final = logging.getLogger("metier")
_SCHEMA: Final[types.ElicitRequestedSchema] = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "title": "Allow it",
            "description": "once: only now. always: from now on, until `metier policy revoke`.",
            "enum": list(YES),
            "default": "once",
        }
    },
}
_BUTTONS: Final = "Accept allows it once, or always if you choose that. Decline is the no."

Ask = Callable[[Request], str]
_current: ContextVar[Ask | None] = ContextVar("metier_mcp_ask", default=None)
"""How the call that this thread works on can ask. A session outlives its calls, and each call has its own way."""


def approve(request: Request) -> str:
    """The `approve` of the sessions of clients that can be asked."""
    ask = _current.get()
    return ask(request) if ask is not None else UNANSWERED


def can_ask(client: ServerSession) -> bool:
    """Whether the client of a request shows forms. A bare `elicitation: {}` is older than the modes and means forms."""
    capabilities = client.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return _repeats_calls(client) or client.can_send_request


def _repeats_calls(client: ServerSession) -> bool:
    return client.protocol_version in MODERN_PROTOCOL_VERSIONS


@contextlib.contextmanager
def asking(
    client: ServerSession,
    call: types.RequestId | None,
    responses: types.InputResponses | None,
    questions: Callable[[], Sequence[Request]],
) -> Generator[types.InputRequiredResult | None, None, None]:
    """Let `approve` ask the client of a call. Runs in the thread of the call.

    Yields a result to return instead of making the call, if the client has to answer first. `questions` says what the
    call would ask, and `responses` are the client's answers so far.
    """
    missing: dict[str, types.InputRequest] = {}
    given, repeats = responses or {}, _repeats_calls(client)
    if repeats and can_ask(client):
        missing = {key: _form(one) for one in questions() if (key := _key(one)) not in given}

    def ask(request: Request) -> str:
        if repeats:
            return _said(given.get(_key(request)))
        return anyio.from_thread.run(_elicit, client, call, request)

    token = _current.set(ask if can_ask(client) else None)
    try:
        yield types.InputRequiredResult(input_requests=missing) if missing else None
    finally:
        _current.reset(token)


async def _elicit(client: ServerSession, call: types.RequestId | None, request: Request) -> str:
    with anyio.move_on_after(limits.ANSWER_SECONDS):
        try:
            return _said(await client.elicit_form(_message(request), _SCHEMA, related_request_id=call))
        except Exception:  # noqa: BLE001 - whatever a client does wrong, it did not say yes
            _LOG.info("a client did not answer a question", exc_info=True)
    return UNANSWERED


def _said(result: object) -> str:
    if not isinstance(result, types.ElicitResult):
        return UNANSWERED
    if result.action != "accept":
        return DECLINED if result.action == "decline" else CANCELLED
    answer = (result.content or {}).get("answer")
    if answer is None or answer == "":
        return "once"  # accepting is the yes, and the field may be left empty
    return answer if isinstance(answer, str) and answer in YES else "no"


def _key(request: Request) -> str:
    """Names a question. A changed script, for example, is another question."""
    return digest_of(
        json.dumps([request.as_dict(), *(grant.data() for grant in request.grants)], sort_keys=True).encode()
    )


def _form(request: Request) -> types.ElicitRequest:
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=_message(request), requested_schema=_SCHEMA)
    )


def _message(request: Request) -> str:
    return f"{Question.of(request).as_text()}\n\n{_BUTTONS}"


# --- sessions and notifications ---


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
        asks = self.app.approve or (approve if can_ask(ctx.session) else None)
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
