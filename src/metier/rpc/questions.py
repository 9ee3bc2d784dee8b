"""Questions to a client of JSON-RPC: the request `session.ask`, and the `approve` of a session that sends it."""

import itertools
import queue
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import cast

from metier import limits
from metier.model import JsonObject
from metier.results import CHOICES, Request
from metier.rpc.messages import is_object, one_line
from metier.session.policy import UNANSWERED
from metier.session.question import Question


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
        given: JsonObject = {key: value for key, value in asdict(request).items() if value}
        given |= {"choices": CHOICES, "question": Question.of(request).as_dict()}
        return self._questions.ask({"session_id": self.session_id, **given}, self._seconds)
