"""Messages of JSON-RPC 2.0: how they are read and written, each as one line, and the questions to a client.

A question is the request `session.ask`, which the `approve` of a session sends.
"""

import itertools
import json
import queue
import threading
from collections.abc import Callable
from typing import Final, TypeGuard, cast

from metier import limits
from metier.files.json_text import parse_json
from metier.files.text import without_torn
from metier.policy.decide import UNANSWERED
from metier.policy.question import Question
from metier.session.operation import flaw_of
from metier.values.results import CHOICES, Request
from metier.values.skill import JsonObject

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


class Questions:
    """The questions to one client. Each waits for its answer; the end of the client's input is a no to all."""

    def __init__(self, send: Callable[[str], None], waiting: Callable[[], None]) -> None:
        """`waiting` is called before a call begins to wait, so that another thread answers the next ones."""
        self._send, self._waiting = send, waiting
        self._lock = threading.Lock()
        self._open: dict[str, queue.SimpleQueue[str]] = {}
        self._numbers = itertools.count(1)
        self._ended = False

    def ask(self, params: JsonObject, seconds: float) -> str:
        """Put a question to the client; its answer, or `unanswered` if none comes."""
        answer: queue.SimpleQueue[str] = queue.SimpleQueue()
        with self._lock:
            if self._ended or len(self._open) >= limits.OPEN_QUESTIONS:
                return UNANSWERED
            id_ = f"ask-{next(self._numbers)}"
            self._open[id_] = answer
            self._waiting()
        self._send(one_line({"jsonrpc": "2.0", "id": id_, "method": "session.ask", "params": params}))
        try:
            return answer.get(timeout=seconds)
        except queue.Empty:
            return UNANSWERED
        finally:
            with self._lock:
                self._open.pop(id_, None)

    def take(self, response: JsonObject) -> None:
        """Take a client's response. One that comes too late, or to no question, is ignored."""
        result = response.get("result")
        said = cast("JsonObject", result).get("answer") if is_object(result) else None
        id_ = response.get("id")
        with self._lock:
            if isinstance(id_, str) and id_ in self._open:
                self._open[id_].put(said if said in CHOICES else "no")

    def end(self) -> None:
        """No more answers come."""
        with self._lock:
            self._ended = True
            for answer in self._open.values():
                answer.put(UNANSWERED)


class Approval:
    """The `approve` of a session whose client is asked."""

    def __init__(self, questions: Questions, seconds: int) -> None:
        self._questions, self._seconds = questions, seconds
        self.session_id = ""

    def __call__(self, request: Request) -> str:
        given: JsonObject = request.as_dict() | {"choices": CHOICES, "question": Question.of(request).as_dict()}
        return self._questions.ask({"session_id": self.session_id, **given}, self._seconds)
