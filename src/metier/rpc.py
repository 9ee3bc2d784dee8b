"""JSON-RPC 2.0 over lines of text: every operation of a session, and the two methods that Codelia names.

The dispatcher turns a message into calls of `App` and `Session` and their answers into messages; it decides nothing.
Whatever arrives is answered or, if it is a notification, ignored; nothing that arrives can end it.
"""

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any, Final, cast

from metier import limits
from metier.app import CHANGED, App
from metier.catalog.watch import News, Watcher
from metier.errors import MetierError
from metier.record.store import Frame
from metier.session.session import By, Session

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REFUSED: Final = -32000
"""An error of the runtime; `data` has its type."""

MESSAGE_BYTES: Final = 4 * limits.MIB
BATCH: Final = 100

Params = Mapping[str, Any]


class RpcError(Exception):
    """What is wrong with a message."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code, self.message, self.data = code, message, data
        super().__init__(message)


class Dispatcher:
    """Answers messages for one client."""

    def __init__(self, app: App, surface: str = "rpc") -> None:
        self.app, self.surface = app, surface
        self.own: str | None = None
        """The session of calls that name none."""

    def handle(self, text: str | bytes) -> str | None:
        """The answer to a message or a batch, as one line; `None` where none is due."""
        if len(text) > MESSAGE_BYTES:
            return _line(_failure(None, RpcError(INVALID_REQUEST, f"the message is larger than {MESSAGE_BYTES} bytes")))
        try:
            message: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            return _line(_failure(None, RpcError(PARSE_ERROR, f"not JSON: {error}")))
        if not isinstance(message, list):
            answer = self._answer(message)
            return _line(answer) if answer is not None else None
        batch = cast("list[Any]", message)
        if not batch or len(batch) > BATCH:
            return _line(_failure(None, RpcError(INVALID_REQUEST, f"a batch has 1 to {BATCH} messages")))
        answers = [answer for one in batch if (answer := self._answer(one)) is not None]
        return _line(answers) if answers else None

    def _answer(self, message: Any) -> dict[str, Any] | None:
        known: Any = message.get("id") if isinstance(message, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        id_ = known if isinstance(known, (str, int, float)) else None
        try:
            method, params, wanted = _request(message)
        except RpcError as error:
            return _failure(id_, error)
        try:
            result = self._call(method, params)
        except RpcError as error:
            return _failure(id_, error) if wanted else None
        except MetierError as error:
            return _failure(id_, RpcError(REFUSED, str(error), _data(error))) if wanted else None
        except RecursionError as error:
            return _failure(id_, RpcError(INVALID_PARAMS, str(error))) if wanted else None
        return {"jsonrpc": "2.0", "id": id_, "result": result} if wanted else None

    def _call(self, method: str, params: Params) -> Any:
        handler = METHODS.get(method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {method!r}", {"methods": sorted(METHODS)})
        return handler(self, params)

    def session(self, params: Params) -> Session:
        """The session that a call names, else this client's own."""
        wanted = _text(params, "session_id")
        if wanted and not self.app.exists(wanted):
            raise RpcError(INVALID_PARAMS, f"there is no session {wanted!r}")
        session = self.app.session(wanted or self.own, surface=self.surface)
        if not wanted:
            self.own = session.id
        return session


def _request(message: Any) -> tuple[str, Params, bool]:
    if not isinstance(message, dict):
        raise RpcError(INVALID_REQUEST, "a message is a JSON object")
    given = cast("dict[str, Any]", message)
    method, params = given.get("method"), given.get("params", {})
    if given.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, 'a message has "jsonrpc": "2.0" and a method')
    if "id" in given and not isinstance(given["id"], (str, int, float, type(None))):
        raise RpcError(INVALID_REQUEST, "an id is text or a number")
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params must be an object with named values")
    return method, cast("Params", params), "id" in given


def _failure(id_: Any, error: RpcError) -> dict[str, Any]:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    return {"jsonrpc": "2.0", "id": id_, "error": body | ({"data": error.data} if error.data is not None else {})}


def _data(error: MetierError) -> dict[str, Any]:
    known = ("reason", "candidates", "available", "rule", "path")
    return {"type": type(error).__name__} | {key: getattr(error, key) for key in known if getattr(error, key, None)}


def _line(answer: Any) -> str:
    return (
        json.dumps(answer, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace").decode()
    )


def _text(params: Params, key: str, *, required: bool = False) -> str | None:
    value = params.get(key)
    if value is None and not required:
        return None
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"{key} must be text")
    return value


def _by(params: Params) -> By:
    """Who asks: a user, unless the host says that it passes on what its model wants."""
    said = params.get("by", "user")
    if said not in ("user", "model"):
        raise RpcError(INVALID_PARAMS, "by must be user or model")
    return said


def _typed(params: Params, key: str, kind: type) -> Any:
    value = params.get(key)
    if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise RpcError(INVALID_PARAMS, f"{key} has the wrong type")
    return value


# --- methods ---


def _skills_list(client: Dispatcher, params: Params) -> Any:
    skills = client.app.skills(_text(params, "cwd"), reload=bool(_typed(params, "force_reload", bool)))
    return {
        "skills": [skill.as_dict() for skill in skills],
        "errors": [{"path": error.path, "message": error.message} for error in skills.errors],
    }


def _context_inspect(client: Dispatcher, params: Params) -> Any:
    skills = client.app.skills(_text(params, "cwd"))
    place = skills.settings.place
    shown: dict[str, Any] = {"cwd": place.cwd, "project": place.project, "profile": skills.profile.name}
    if _typed(params, "include_skills", bool):
        listed = _skills_list(client, {"cwd": params.get("cwd")} if params.get("cwd") else {})
        session = client.session(params)
        shown["skills"] = listed | {"truncated": session.prompt().truncated}
        shown["loaded_versions"] = session.loaded_versions()
    return shown


def _create(client: Dispatcher, params: Params) -> Any:
    session = client.app.session(_text(params, "session_id"), cwd=_text(params, "cwd"), surface=client.surface)
    client.own = session.id
    return {"session_id": session.id}


def _load(client: Dispatcher, params: Params) -> Any:
    loaded = client.session(params).load(
        _text(params, "name"),
        path=_text(params, "path"),
        arguments=_text(params, "arguments") or "",
        parent=_text(params, "parent"),
        by=_by(params),
    )
    return loaded.as_dict()


def _read(client: Dispatcher, params: Params) -> Any:
    name, raw = _text(params, "name", required=True) or "", bool(_typed(params, "raw", bool))
    return client.session(params).read(name, _text(params, "path"), by=_by(params), raw=raw).as_dict()


def _run(client: Dispatcher, params: Params) -> Any:
    arguments: list[Any] = _typed(params, "arguments", list) or []
    if not all(isinstance(item, str) for item in arguments):
        raise RpcError(INVALID_PARAMS, "arguments must be a list of text")
    name, script = _text(params, "name", required=True) or "", _text(params, "script", required=True) or ""
    stdin, by = _text(params, "stdin"), _by(params)
    return client.session(params).run(name, script, arguments, stdin=stdin, by=by).as_dict()


def _search(client: Dispatcher, params: Params) -> Any:
    query = _text(params, "query", required=True) or ""
    limit, scope = _typed(params, "limit", int), _text(params, "scope")
    found = client.session(params).search(query, limit=limit, scope=scope, by=_by(params))
    return found.as_dict()


def _invoke(client: Dispatcher, params: Params) -> Any:
    return client.session(params).invoke(_text(params, "message", required=True) or "").as_dict()


def _prompt(client: Dispatcher, params: Params) -> Any:
    return client.session(params).prompt(_text(params, "message"), _typed(params, "budget", int)).as_dict()


def _system_prompt(client: Dispatcher, params: Params) -> Any:
    return {"text": client.session(params).system_prompt(_text(params, "base") or "", message=_text(params, "message"))}


def _tools(client: Dispatcher, params: Params) -> Any:
    return [tool.as_dict() for tool in client.session(params).tools()]


def _tool_call(client: Dispatcher, params: Params) -> Any:
    tool = _text(params, "tool", required=True) or ""
    return client.session(params).call(tool, _typed(params, "args", dict)).as_dict()


def _output(client: Dispatcher, params: Params) -> Any:
    return {
        "text": client.session(params).output(
            _text(params, "ref", required=True) or "",
            start=_typed(params, "start", int) or 1,
            end=_typed(params, "end", int),
            grep=_text(params, "grep"),
        )
    }


def _compact(client: Dispatcher, params: Params) -> Any:
    budget = _typed(params, "budget", int)
    compaction = client.session(params).compact(*([budget] if budget is not None else []))
    return compaction.as_dict()


def _end_turn(client: Dispatcher, params: Params) -> Any:
    client.session(params).end_turn()
    return {}


def _events(client: Dispatcher, params: Params) -> list[Frame]:
    return client.session(params).events


def _state(client: Dispatcher, params: Params) -> Any:
    return client.session(params).state()


METHODS: Final[Mapping[str, Callable[[Dispatcher, Params], Any]]] = {
    "skills.list": _skills_list,
    "context.inspect": _context_inspect,
    "session.create": _create,
    "session.load": _load,
    "session.read": _read,
    "session.run": _run,
    "session.search": _search,
    "session.invoke": _invoke,
    "session.prompt": _prompt,
    "session.system_prompt": _system_prompt,
    "session.tools": _tools,
    "session.call": _tool_call,
    "session.output": _output,
    "session.compact": _compact,
    "session.end_turn": _end_turn,
    "session.events": _events,
    "session.state": _state,
}


def serve(app: App, source: IO[bytes], sink: IO[str]) -> None:
    """Answer lines until the input ends, and tell when skills change: `skills.changed`.

    A line that is too long is answered and skipped, not kept.
    """
    client = Dispatcher(app)
    lock = threading.Lock()

    def send(text: str) -> None:
        with lock:
            sink.write(text + "\n")
            sink.flush()

    def tell(news: News) -> None:
        with contextlib.suppress(OSError, ValueError):  # whoever listened is gone; the input ends next
            send(_line({"jsonrpc": "2.0", "method": CHANGED, "params": news.changes.as_dict()}))

    with Watcher(app, tell):
        for line in _lines(source):
            answer = client.handle(line) if line.strip() else None
            if answer is not None:
                send(answer)


def _lines(source: IO[bytes]) -> Any:
    while line := source.readline(MESSAGE_BYTES + 2):
        if len(line) > MESSAGE_BYTES:
            while not line.endswith(b"\n") and (rest := source.readline(MESSAGE_BYTES)):
                line = line[:MESSAGE_BYTES] + rest[-2:]
        yield line


def main(app: App) -> None:
    """Speak JSON-RPC on standard input and output."""
    serve(app, sys.stdin.buffer, sys.stdout)
