"""Asks the user of a client what policy wants to have confirmed, by `elicitation/create` in form mode.

Accepting the form is the yes, and declining it is the no. Its one field says how long the yes holds, and may be left as
it is.

With the 2025 protocol, the server sends the request while the call waits. With the 2026 protocol, the first answer to
the call has the questions, and the client makes the call again with the answers. An answer counts only for the very
request that was shown. Clients without the capability are not asked; the rule for that is the policy's.
"""

import contextlib
import functools
import json
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from typing import Final

import anyio
import anyio.from_thread
import mcp_types as types
from mcp.server.session import ServerSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from metier import limits
from metier.files.digests import digest_of
from metier.policy.decide import CANCELLED, DECLINED, UNANSWERED
from metier.policy.question import Question
from metier.values.results import Request

_LOG: Final = logging.getLogger("metier")
_YES: Final = ("once", "always")
_SCHEMA: Final[types.ElicitRequestedSchema] = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "title": "Allow it",
            "description": "once: only now. always: from now on, until `metier policy revoke`.",
            "enum": list(_YES),
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
    ask: Ask | None = None
    missing: dict[str, types.InputRequest] = {}
    if can_ask(client):
        if _repeats_calls(client):
            given = responses or {}
            missing = {key: _form(one) for one in questions() if (key := _key(one)) not in given}
            ask = functools.partial(_given, given)
        else:
            ask = functools.partial(_ask_now, client, call)
    token = _current.set(ask)
    try:
        yield types.InputRequiredResult(input_requests=missing) if missing else None
    finally:
        _current.reset(token)


def _ask_now(client: ServerSession, call: types.RequestId | None, request: Request) -> str:
    return anyio.from_thread.run(_elicit, client, call, request)


async def _elicit(client: ServerSession, call: types.RequestId | None, request: Request) -> str:
    with anyio.move_on_after(limits.ANSWER_SECONDS):
        try:
            return _said(await client.elicit_form(_message(request), _SCHEMA, related_request_id=call))
        except Exception:  # noqa: BLE001 - whatever a client does wrong, it did not say yes
            _LOG.info("a client did not answer a question", exc_info=True)
    return UNANSWERED


def _given(responses: Mapping[str, object], request: Request) -> str:
    return _said(responses.get(_key(request)))


def _said(result: object) -> str:
    if not isinstance(result, types.ElicitResult):
        return UNANSWERED
    if result.action != "accept":
        return DECLINED if result.action == "decline" else CANCELLED
    answer = (result.content or {}).get("answer") or "once"
    return answer if isinstance(answer, str) and answer in _YES else "no"


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
