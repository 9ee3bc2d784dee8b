"""Messages of JSON-RPC 2.0: how they are read, and how answers and errors are written, each as one line."""

import json
from typing import Final, TypeGuard

from metier import limits
from metier.files.json_text import parse_json
from metier.files.text import without_torn
from metier.model import JsonObject
from metier.session.operation import flaw_of

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REFUSED: Final = -32000
"""An error of the runtime; `data` has its type."""

MESSAGE_BYTES: Final = limits.MESSAGE_BYTES


class RpcError(Exception):
    """What is wrong with a message."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        self.code, self.message, self.data = code, message, data
        super().__init__(message)


def read_message(text: str | bytes) -> object:
    """A message or a batch as data. Raises `RpcError` if it is too large or not JSON."""
    if len(text) > MESSAGE_BYTES:
        raise RpcError(INVALID_REQUEST, f"the message is larger than {MESSAGE_BYTES} bytes")
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, f"not JSON: {error}") from error


def is_object(value: object) -> bool:
    return isinstance(value, dict)


def is_id(value: object) -> TypeGuard[str | float]:
    """Whether an answer can carry the id: half a surrogate pair or an infinite number could not be sent back."""
    return isinstance(value, str | int | float) and flaw_of(value) is None


def error_answer(id_: str | float | None, error: RpcError) -> JsonObject:
    body: JsonObject = {"code": error.code, "message": error.message}
    return {"jsonrpc": "2.0", "id": id_, "error": body | ({"data": error.data} if error.data is not None else {})}


def one_line(answer: object) -> str:
    return without_torn(json.dumps(answer, ensure_ascii=False, separators=(",", ":"), default=str))
