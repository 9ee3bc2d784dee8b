"""JSON-RPC 2.0 over lines of text: every operation of a session, and the two methods that Codelia names.

The dispatcher turns a message into an operation and its result into an answer; it decides nothing. Whatever arrives is
answered or, if it is a notification, ignored; nothing that arrives can end it. A client that says so is asked what
policy wants to have confirmed: the server sends it a request, `session.ask`, and other calls are answered meanwhile.
"""

import io
import itertools
import json
import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import IO, Any, Final, TypeGuard, cast

from metier import limits
from metier.app import CHANGED, App
from metier.catalog.watch import News, Watcher
from metier.errors import BadArguments, MetierError, StoreError
from metier.files.text import without_torn
from metier.model import JsonObject
from metier.results import Request
from metier.session.context import Approve
from metier.session.json_schema import Schema, mismatch
from metier.session.operation import Operation, check_values, flaw_of
from metier.session.operations import OPERATIONS, Call
from metier.session.session import Session

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REFUSED: Final = -32000
"""An error of the runtime; `data` has its type."""

MESSAGE_BYTES: Final = 4 * limits.MIB
BATCH: Final = 100
BACKLOG: Final = 16
"""Messages that are read before the ones ahead of them are answered."""
CHOICES: Final = ("once", "always", "no")

_LOG: Final = logging.getLogger("metier")

Params = Mapping[str, object]


class RpcError(Exception):
    """What is wrong with a message."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        self.code, self.message, self.data = code, message, data
        super().__init__(message)


class Dispatcher:
    """Answers messages for one client."""

    def __init__(
        self,
        app: App,
        surface: str = "rpc",
        *,
        session_id: str | None = None,
        questions: "Questions | None" = None,
    ) -> None:
        """Without `questions`, this client cannot be asked."""
        self.app, self.surface, self.questions = app, surface, questions
        self.own = session_id
        """The session of calls that name none: a new one, unless an id is given."""
        self._asking: dict[str, tuple[Approve, bool | None]] = {}
        """The sessions whose questions this client answers, with their option `tools`."""

    def handle(self, text: str | bytes) -> str | None:
        """The answer to a message or a batch, as one line; `None` where none is due."""
        try:
            return self.answer(read_message(text))
        except RpcError as error:
            return _line(_failure(None, error))

    def answer(self, message: object) -> str | None:
        """The answer to a message or a batch that was read, as one line."""
        if not isinstance(message, list):
            answer = self._answer(message)
            return _line(answer) if answer is not None else None
        batch = cast("list[object]", message)
        if not batch or len(batch) > BATCH:
            return _line(_failure(None, RpcError(INVALID_REQUEST, f"a batch has 1 to {BATCH} messages")))
        answers = [answer for one in batch if (answer := self._answer(one)) is not None]
        return _line(answers) if answers else None

    def _answer(self, message: object) -> JsonObject | None:
        known = cast("JsonObject", message).get("id") if _is_object(message) else None
        id_ = known if _is_id(known) else None
        try:
            method, params, wanted = _request(message)
        except RpcError as error:
            return _failure(id_, error)
        try:
            answer: JsonObject = {"jsonrpc": "2.0", "id": id_, "result": self._call(method, params)}
        except RpcError as error:
            answer = _failure(id_, error)
        except MetierError as error:
            answer = _failure(id_, _rpc_error(error))
        except Exception:  # noqa: BLE001 - nothing that arrives can end the server, and clients see no details
            _LOG.exception("a call over JSON-RPC failed")
            answer = _failure(id_, RpcError(INTERNAL_ERROR, "something went wrong here; it is in the server's log"))
        return answer if wanted else None

    def _call(self, method: str, params: Params) -> object:
        handler = METHODS.get(method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {method!r}", {"methods": sorted(METHODS)})
        return handler(self, params)

    def session(self, params: Params) -> Session:
        """The session that a call names, else this client's own."""
        wanted = params.get("session_id")
        if wanted is not None and not isinstance(wanted, str):
            raise RpcError(INVALID_PARAMS, "session_id must be text")
        if wanted and not self.app.exists(wanted):
            raise RpcError(INVALID_PARAMS, f"there is no session {wanted!r}")
        known = wanted or self.own
        approve, tools = self._asking.get(known or "", (None, None))
        session = self.app.session(known, approve=approve, tools=tools, surface=self.surface)
        if not wanted:
            self.own = session.id
        return session

    def create(self, id_: str | None, *, asks: bool, seconds: int, tools: bool | None = None, **given: Any) -> Session:
        """Open a session. With `asks`, this client is asked what policy wants to have confirmed."""
        if asks and self.questions is None:
            raise RpcError(INVALID_PARAMS, "asks: this connection has no way to ask; use `metier rpc`")
        approve = _Approval(self.questions, seconds) if asks and self.questions is not None else None
        session = self.app.session(id_, approve=approve, tools=tools, surface=self.surface, **given)
        if approve is not None:
            approve.session_id = session.id
            self._asking[session.id] = (approve, tools)
        return session


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
        """Put a question to the client; its answer, or `no` if none comes."""
        answer: queue.SimpleQueue[str] = queue.SimpleQueue()
        with self._lock:
            if self._ended or len(self._open) >= limits.OPEN_QUESTIONS:
                return "no"
            id_ = f"ask-{next(self._numbers)}"
            self._open[id_] = answer
            self._waiting()
        self._send(_line({"jsonrpc": "2.0", "id": id_, "method": "session.ask", "params": params}))
        try:
            return answer.get(timeout=seconds)
        except queue.Empty:
            return "no"
        finally:
            with self._lock:
                self._open.pop(id_, None)

    def take(self, response: JsonObject) -> None:
        """Take a client's response. One that comes too late, or to no question, is ignored."""
        result = response.get("result")
        said = cast("JsonObject", result).get("answer") if _is_object(result) else None
        id_ = response.get("id")
        with self._lock:
            if isinstance(id_, str) and id_ in self._open:
                self._open[id_].put(said if said in CHOICES else "no")

    def end(self) -> None:
        """No more answers come."""
        with self._lock:
            self._ended = True
            for answer in self._open.values():
                answer.put("no")


class _Approval:
    """The `approve` of a session whose client is asked."""

    def __init__(self, questions: Questions, seconds: int) -> None:
        self._questions, self._seconds = questions, seconds
        self.session_id = ""

    def __call__(self, request: Request) -> str:
        given = {key: value for key, value in asdict(request).items() if value}
        return self._questions.ask({"session_id": self.session_id, **given, "choices": CHOICES}, self._seconds)


def read_message(text: str | bytes) -> object:
    """A message or a batch as data. Raises `RpcError` if it is too large or not JSON."""
    if len(text) > MESSAGE_BYTES:
        raise RpcError(INVALID_REQUEST, f"the message is larger than {MESSAGE_BYTES} bytes")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, f"not JSON: {error}") from error


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_id(value: object) -> TypeGuard[str | float]:
    """Whether an answer can carry the id: half a surrogate pair or an infinite number could not be sent back."""
    return isinstance(value, str | int | float) and flaw_of(value) is None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _request(message: object) -> tuple[str, Params, bool]:
    if not _is_object(message):
        raise RpcError(INVALID_REQUEST, "a message is a JSON object")
    given = cast("JsonObject", message)
    method, params = given.get("method"), given.get("params", {})
    if given.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, 'a message has "jsonrpc": "2.0" and a method')
    if given.get("id") is not None and not _is_id(given["id"]):
        raise RpcError(INVALID_REQUEST, "an id is text or a number")
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params must be an object with named values")
    return method, cast("Params", params), "id" in given


def _failure(id_: str | float | None, error: RpcError) -> JsonObject:
    body: JsonObject = {"code": error.code, "message": error.message}
    return {"jsonrpc": "2.0", "id": id_, "error": body | ({"data": error.data} if error.data is not None else {})}


def _rpc_error(error: MetierError) -> RpcError:
    if isinstance(error, BadArguments):
        return RpcError(INVALID_PARAMS, error.message)
    invalid = isinstance(error, StoreError) and error.reason == "invalid"  # a session id that no store can hold
    return RpcError(INVALID_PARAMS if invalid else REFUSED, str(error), _data(error))


def _data(error: MetierError) -> JsonObject:
    known = ("reason", "candidates", "available", "rule", "path")
    return {"type": type(error).__name__} | {key: getattr(error, key) for key in known if getattr(error, key, None)}


def _line(answer: object) -> str:
    return without_torn(json.dumps(answer, ensure_ascii=False, separators=(",", ":"), default=str))


# --- methods ---

TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}

BEGIN: Final[Mapping[str, Schema]] = {
    "cwd": {**TEXT, "description": "The working directory; the server's own by default."},
    "tools": {**FLAG, "description": "Whether the model can call tools."},
    "only": {**TEXTS, "description": "Limit the session to skills of these names."},
    "preload": {**TEXTS, "description": "Skills that stand in the system prompt from the first request on."},
    "has_read_tool": {**FLAG, "description": "Whether the host gives its model a tool to read files with."},
}
"""What a new session may be given, over JSON-RPC and HTTP."""


_ASKS: Final[Mapping[str, Schema]] = {
    "asks": {**FLAG, "description": "Whether the client answers `session.ask`, a request that the server sends to it."},
    "ask_seconds": {
        "type": "integer",
        "minimum": 1,
        "description": "How long an answer is waited for; 300 by default.",
    },
}


def _checked(params: Params, known: Mapping[str, Schema]) -> JsonObject:
    given = {key: value for key, value in params.items() if value is not None}
    wrong = mismatch(given, {"type": "object", "properties": known, "additionalProperties": False}, "")
    if wrong:
        raise RpcError(INVALID_PARAMS, wrong)
    check_values(given)
    return given


def _skills_list(client: Dispatcher, params: Params) -> JsonObject:
    given = _checked(params, {"cwd": TEXT, "force_reload": FLAG})
    return _catalog(client, given.get("cwd"), bool(given.get("force_reload")))


def _catalog(client: Dispatcher, cwd: str | None, reload: bool = False) -> JsonObject:
    skills = client.app.skills(cwd, reload=reload)
    return {
        "skills": [skill.as_dict() for skill in skills],
        "errors": [{"path": error.path, "message": error.message} for error in skills.errors],
    }


def _context_inspect(client: Dispatcher, params: Params) -> JsonObject:
    given = _checked(params, {"cwd": TEXT, "include_skills": FLAG, "session_id": TEXT})
    skills = client.app.skills(given.get("cwd"))
    place = skills.settings.place
    shown: JsonObject = {"cwd": place.cwd, "project": place.project, "profile": skills.profile.name}
    if given.get("include_skills"):
        session = client.session(params)
        shown["skills"] = _catalog(client, given.get("cwd")) | {"truncated": session.prompt().truncated}
        shown["loaded_versions"] = session.loaded_versions()
    return shown


def _create(client: Dispatcher, params: Params) -> JsonObject:
    given = _checked(params, {"session_id": TEXT, **BEGIN, **_ASKS})
    asks, seconds = bool(given.pop("asks", False)), int(given.pop("ask_seconds", limits.ANSWER_SECONDS))
    session = client.create(given.pop("session_id", None), asks=asks, seconds=seconds, **given)
    client.own = session.id
    return {"session_id": session.id}


def _events(client: Dispatcher, params: Params) -> object:
    _checked(params, {"session_id": TEXT})
    return client.session(params).events


def _state(client: Dispatcher, params: Params) -> object:
    _checked(params, {"session_id": TEXT})
    return client.session(params).state()


def read_operation(kind: type[Operation[Any]], given: Mapping[str, object]) -> Operation[Any]:
    """An operation from the parameters of a message. In those, the arguments of a tool call are `args`."""
    if kind is Call:
        wrong = mismatch(given.get("args", {}), {"type": ["object", "null"]}, "args")
        if wrong:
            raise BadArguments(wrong, field="args")
        given = {"arguments" if key == "args" else key: value for key, value in given.items()}
    return kind.from_dict(given)


def _operation(kind: type[Operation[Any]]) -> Callable[[Dispatcher, Params], object]:
    def handler(client: Dispatcher, params: Params) -> object:
        operation = read_operation(kind, {key: value for key, value in params.items() if key != "session_id"})
        return operation.data(client.session(params).perform(operation))

    return handler


METHODS: Final[Mapping[str, Callable[[Dispatcher, Params], object]]] = {
    "skills.list": _skills_list,
    "context.inspect": _context_inspect,
    "session.create": _create,
    **{f"session.{name}": _operation(kind) for name, kind in OPERATIONS.items()},
    "session.events": _events,
    "session.state": _state,
}


def serve(app: App, source: IO[bytes], sink: IO[str], session_id: str | None = None) -> None:
    """Answer lines until the input ends, and tell when skills change: `skills.changed`.

    A line that is too long is answered and skipped, not kept. `session_id` is the session of calls that name none.
    """
    connection = _Connection(app, sink, session_id)

    def tell(news: News) -> None:
        connection.send(_line({"jsonrpc": "2.0", "method": CHANGED, "params": news.changes.as_dict()}))

    with Watcher(app, tell):
        connection.read(_lines(source))


class _Worker(threading.Thread):
    """A thread that answers messages until another one takes its place."""

    replaced = False


class _Connection:
    """One client on a pipe. One thread reads, and one answers the messages in their order.

    A call that waits for the client's answer to a question gives its place to a new thread, so that later calls do not
    wait with it. Responses never queue behind calls.
    """

    def __init__(self, app: App, sink: IO[str], session_id: str | None) -> None:
        self._sink, self._lock, self._gone = sink, threading.Lock(), False
        self._inbox: queue.Queue[object] = queue.Queue(BACKLOG)
        self._workers: list[_Worker] = []
        self.questions = Questions(self.send, self._replace_worker)
        self._client = Dispatcher(app, session_id=session_id, questions=self.questions)

    def send(self, text: str) -> None:
        with self._lock:
            try:
                try:
                    self._sink.write(text + "\n")
                except UnicodeEncodeError:  # an output that is not UTF-8
                    self._sink.write(json.dumps(json.loads(text)) + "\n")
                self._sink.flush()
            except (OSError, ValueError):
                self._gone = True  # the client does not listen any more; its input ends next

    def read(self, lines: Iterator[bytes]) -> None:
        """Answer every line, and wait until the last one is answered."""
        self._start_worker()
        for line in lines:
            if self._gone:
                break
            if line.strip():
                self._take(line)
        self.questions.end()
        self._inbox.put(_END)
        while self._workers:
            self._workers.pop().join()

    def _take(self, line: bytes) -> None:
        try:
            message = read_message(line)
        except RpcError as error:
            self._inbox.put(error)
            return
        batch = cast("list[object]", message) if isinstance(message, list) else [message]
        calls = [one for one in batch if not self._is_answer(one)]
        if calls or not batch:
            self._inbox.put(calls if isinstance(message, list) else calls[0])

    def _is_answer(self, message: object) -> bool:
        """Whether a message is the client's answer to a question, which is taken at once."""
        given = cast("JsonObject", message) if _is_object(message) else {}
        if "method" in given or not ("result" in given or "error" in given):
            return False
        self.questions.take(given)
        return True

    def _start_worker(self) -> None:
        worker = _Worker(target=self._work, name="metier-rpc", daemon=True)
        self._workers.append(worker)
        worker.start()

    def _replace_worker(self) -> None:
        worker = threading.current_thread()
        if isinstance(worker, _Worker) and not worker.replaced:
            worker.replaced = True
            self._start_worker()

    def _work(self) -> None:
        worker = cast("_Worker", threading.current_thread())
        while not worker.replaced and (message := self._inbox.get()) is not _END:
            try:
                answer = (
                    _line(_failure(None, message)) if isinstance(message, RpcError) else self._client.answer(message)
                )
            except Exception:  # noqa: BLE001 - a thread that ends would leave all later messages without an answer
                _LOG.exception("a message could not be answered")
                answer = _line(_failure(None, RpcError(INTERNAL_ERROR, "Internal error")))
            if answer is not None:
                self.send(answer)


_END: Final = object()


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    while line := source.readline(MESSAGE_BYTES + 2):
        if len(line) > MESSAGE_BYTES:
            while not line.endswith(b"\n") and (rest := source.readline(MESSAGE_BYTES)):
                line = line[:MESSAGE_BYTES] + rest[-2:]
        yield line


def main(app: App, session_id: str | None = None) -> None:
    """Speak JSON-RPC on standard input and output."""
    sink: IO[str] = sys.stdout
    if isinstance(sink, io.TextIOWrapper):
        sink.reconfigure(encoding="utf-8", newline="\n")  # whatever the locale says
    serve(app, sys.stdin.buffer, cast("IO[str]", sink), session_id)
