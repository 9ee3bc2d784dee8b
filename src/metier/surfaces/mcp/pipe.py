"""The messages of a client on a pipe. What is no message is answered with an error, because its sender may wait for it.

The SDK reads lines and drops those that it cannot parse, such as a request with half a surrogate pair in a text.
"""

import contextlib
import io
import os
from collections.abc import Generator, Sequence
from typing import IO, Any, Final, cast

import anyio
import mcp_types as types
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from metier import limits
from metier.files.json_text import parse_json
from metier.files.shapes import is_dict
from metier.session.operation import flaw_of

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
