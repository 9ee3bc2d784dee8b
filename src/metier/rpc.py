"""JSON-RPC 2.0 over lines of text: every operation of a session, and the two methods that Codelia names.

The dispatcher turns a message into an operation and its result into an answer; it decides nothing. Whatever arrives is
answered or, if it is a notification, ignored; nothing that arrives can end it.
"""

import contextlib
import io
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Final, TypeGuard, cast

from metier import limits
from metier.app import CHANGED, App
from metier.catalog.watch import News, Watcher
from metier.errors import BadArguments, MetierError, StoreError
from metier.files.text import without_torn
from metier.model import JsonObject
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

Params = Mapping[str, object]

_LOG: Final = logging.getLogger("metier")


class RpcError(Exception):
    """What is wrong with a message."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        self.code, self.message, self.data = code, message, data
        super().__init__(message)


class Dispatcher:
    """Answers messages for one client."""

    def __init__(self, app: App, surface: str = "rpc", session_id: str | None = None) -> None:
        self.app, self.surface = app, surface
        self.own = session_id
        """The session of calls that name none: a new one, unless an id is given."""

    def handle(self, text: str | bytes) -> str | None:
        """The answer to a message or a batch, as one line; `None` where none is due."""
        if len(text) > MESSAGE_BYTES:
            return _line(_failure(None, RpcError(INVALID_REQUEST, f"the message is larger than {MESSAGE_BYTES} bytes")))
        try:
            message: object = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            return _line(_failure(None, RpcError(PARSE_ERROR, f"not JSON: {error}")))
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
        session = self.app.session(wanted or self.own, surface=self.surface)
        if not wanted:
            self.own = session.id
        return session


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
    given = _checked(params, {"session_id": TEXT, **BEGIN})
    session = client.app.session(given.pop("session_id", None), surface=client.surface, **given)
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
    client = Dispatcher(app, session_id=session_id)
    lock = threading.Lock()

    def send(text: str) -> None:
        with lock:
            sink.write(text + "\n")
            sink.flush()

    def tell(news: News) -> None:
        with contextlib.suppress(OSError, ValueError):  # the client is gone; the input ends next
            send(_line({"jsonrpc": "2.0", "method": CHANGED, "params": news.changes.as_dict()}))

    with Watcher(app, tell):
        for line in _lines(source):
            answer = client.handle(line) if line.strip() else None
            if answer is not None:
                send(answer)


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    while line := source.readline(MESSAGE_BYTES + 2):
        if len(line) > MESSAGE_BYTES:
            while not line.endswith(b"\n") and (rest := source.readline(MESSAGE_BYTES)):
                line = line[:MESSAGE_BYTES] + rest[-2:]
        yield line


def main(app: App, session_id: str | None = None) -> None:
    """Speak JSON-RPC on standard input and output."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # whatever the locale says
    serve(app, sys.stdin.buffer, sys.stdout, session_id)
