"""JSON-RPC 2.0 over lines of text: every operation of a session, and the two methods that Codelia names.

The dispatcher turns a message into an operation and its result into an answer; it decides nothing. Whatever arrives is
answered or, if it is a notification, ignored; nothing that arrives can end it. A client that says so is asked what
policy wants to have confirmed: the server sends it a request, `session.ask`, and other calls are answered meanwhile.
"""

import itertools
import json
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Self, TypedDict, TypeGuard

from metier import limits
from metier.app import App
from metier.errors import BadArguments, MetierError, StoreError
from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_list, is_table
from metier.files.text import without_torn
from metier.policy.asking import UNANSWERED, Approve
from metier.policy.question import Question
from metier.record.usage import Sort, usage
from metier.session.operation import Operation, check_values, flaw_of
from metier.session.operations import OPERATIONS, Call
from metier.session.queries import CatalogPrompt
from metier.session.session import Session
from metier.skills import Skills
from metier.values.results import CHOICES, Request
from metier.values.skill import Diagnostic, FileError, Shadowed, Skill, Skipped
from metier.values.value import JsonObject, Meta, Schema, Value, mismatch, schema_of

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
        said, id_ = as_table(response.get("result")).get("answer"), response.get("id")
        with self._lock:
            if isinstance(id_, str) and id_ in self._open:
                self._open[id_].put(str(said) if said in CHOICES else "no")

    def end(self) -> None:
        """No more answers come."""
        with self._lock:
            self._ended = True
            for answer in self._open.values():
                answer.put(UNANSWERED)


# --- the dispatcher ---


BATCH: Final = 100
_LOG: Final = logging.getLogger("metier")

Params = Mapping[str, object]


class Dispatcher:
    """Answers messages for one client."""

    def __init__(
        self,
        app: App,
        surface: str = "rpc",
        *,
        session_id: str | None = None,
        questions: Questions | None = None,
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
            return one_line(error_answer(None, error))

    def answer(self, message: object) -> str | None:
        """The answer to a message or a batch that was read, as one line."""
        if not is_list(message):
            answer = self._answer(message)
            return one_line(answer) if answer is not None else None
        if not message or len(message) > BATCH:
            return one_line(error_answer(None, RpcError(INVALID_REQUEST, f"a batch has 1 to {BATCH} messages")))
        answers = [answer for one in message if (answer := self._answer(one)) is not None]
        return one_line(answers) if answers else None

    def _answer(self, message: object) -> JsonObject | None:
        known = as_table(message).get("id")
        id_ = known if is_id(known) else None
        try:
            method, params, wanted = _request(message)
        except RpcError as error:
            return error_answer(id_, error)
        try:
            answer: JsonObject = {"jsonrpc": "2.0", "id": id_, "result": self._call(method, params)}
        except RpcError as error:
            answer = error_answer(id_, error)
        except MetierError as error:
            answer = error_answer(id_, _rpc_error(error))
        except Exception:  # noqa: BLE001 - nothing that arrives can end the server, and clients see no details
            _LOG.exception("a call over JSON-RPC failed")
            answer = error_answer(id_, RpcError(INTERNAL_ERROR, "something went wrong here; it is in the server's log"))
        return answer if wanted else None

    def _call(self, method: str, params: Params) -> object:
        if (handler := METHODS.get(method)) is not None:
            return handler(self, params)
        if (kind := OPERATIONS.get(method.removeprefix("session."))) is None or not method.startswith("session."):
            known = sorted((*METHODS, *(f"session.{name}" for name in OPERATIONS)))
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {method!r}", {"methods": known})
        operation = read_operation(kind, {key: value for key, value in params.items() if key != "session_id"})
        return operation.data(self.session(params).perform(operation))

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
        """Open a session. With `asks`, this client is asked what policy wants to have confirmed, unless the app is."""
        if asks and self.questions is None:
            raise RpcError(INVALID_PARAMS, "asks: this connection has no way to ask; use `metier rpc`")
        if not asks or self.questions is None or self.app.approve is not None:
            return self.app.session(id_, tools=tools, surface=self.surface, **given)
        ask = self.questions.ask

        def approve(request: Request) -> str:
            shown: JsonObject = request.as_dict() | {"choices": CHOICES, "question": Question.of(request).as_dict()}
            return ask({"session_id": session.id, **shown}, seconds)

        session = self.app.session(id_, approve=approve, tools=tools, surface=self.surface, **given)
        self._asking[session.id] = (approve, tools)
        return session


def _request(message: object) -> tuple[str, Params, bool]:
    if not is_table(message):
        raise RpcError(INVALID_REQUEST, "a message is a JSON object")
    method, params = message.get("method"), message.get("params", {})
    if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, 'a message has "jsonrpc": "2.0" and a method')
    if message.get("id") is not None and not is_id(message["id"]):
        raise RpcError(INVALID_REQUEST, "an id is text or a number")
    if not is_table(params):
        raise RpcError(INVALID_PARAMS, "params must be an object with named values")
    return method, params, "id" in message


def _rpc_error(error: MetierError) -> RpcError:
    if isinstance(error, BadArguments):
        return RpcError(INVALID_PARAMS, error.message)
    invalid = isinstance(error, StoreError) and error.reason == "invalid"  # a session id that no store can hold
    return RpcError(INVALID_PARAMS if invalid else REFUSED, str(error), _data(error))


def _data(error: MetierError) -> JsonObject:
    known = ("reason", "candidates", "available", "rule", "path")
    return {"type": type(error).__name__} | {key: getattr(error, key) for key in known if getattr(error, key, None)}


# --- methods ---


def _says(text: str) -> Any:
    return Meta(description=text)


class BeginOptions(TypedDict, total=False):
    """What a new session may be given, over JSON-RPC and HTTP."""

    cwd: Annotated[str, _says("The working directory; the server's own by default.")]
    tools: Annotated[bool, _says("Whether the model can call tools.")]
    only: Annotated[list[str], _says("Limit the session to skills of these names.")]
    preload: Annotated[list[str], _says("Skills that stand in the system prompt from the first request on.")]
    has_read_tool: Annotated[bool, _says("Whether the host gives its model a tool to read files with.")]


class _OfSession(TypedDict, total=False):
    session_id: str


class _Created(BeginOptions, _OfSession, total=False):
    asks: Annotated[bool, _says("Whether the client answers `session.ask`, a request that the server sends to it.")]
    ask_seconds: Annotated[int, Meta(ge=1, description="How long an answer is waited for; 300 by default.")]


class _Listed(TypedDict, total=False):
    cwd: str
    force_reload: bool


class _Inspected(_OfSession, total=False):
    cwd: str
    include_skills: bool


def closed_schema(kind: Any) -> Schema:
    """The schema of parameters, of which no others are allowed."""
    return {**schema_of(kind), "additionalProperties": False}


def _checked(params: Params, kind: Any) -> JsonObject:
    given = {key: value for key, value in params.items() if value is not None}
    wrong = mismatch(given, closed_schema(kind), "")
    if wrong:
        raise RpcError(INVALID_PARAMS, wrong)
    check_values(given)
    return given


class CatalogShown(Value):
    """A catalog as clients see it."""

    skills: tuple[Skill, ...]
    errors: tuple[FileError, ...]
    diagnostics: tuple[Diagnostic, ...]
    shadowed: tuple[Shadowed, ...]
    skipped: tuple[Skipped, ...]

    @classmethod
    def of(cls, skills: Skills, **more: Any) -> Self:
        errors = tuple(FileError(error.path, error.message) for error in skills.errors)
        told = {"shadowed": tuple(skills.shadowed), "skipped": tuple(skills.skipped)}
        return cls(skills=tuple(skills), errors=errors, diagnostics=skills.warnings, **told, **more)


def _skills_list(client: Dispatcher, params: Params) -> JsonObject:
    given = _checked(params, _Listed)
    return CatalogShown.of(client.app.skills(given.get("cwd"), reload=bool(given.get("force_reload")))).as_dict()


def _context_inspect(client: Dispatcher, params: Params) -> JsonObject:
    given = _checked(params, _Inspected)
    session = _inspected(client, given.get("cwd"), params)
    place = session.skills.settings.place
    shown: JsonObject = {"cwd": place.cwd, "project": place.project, "profile": session.profile.name}
    if given.get("include_skills"):
        listed = session.perform(CatalogPrompt(), offers=False)  # a person looks, and no model
        shown["skills"] = CatalogShown.of(session.skills).as_dict() | {"truncated": listed.truncated}
        shown["loaded_versions"] = session.loaded_versions()
    return shown


def _inspected(client: Dispatcher, cwd: str | None, params: Params) -> Session:
    """The session whose context is shown, so that its skills and what it loaded are of one place.

    Another folder than the session's has loaded nothing: it is shown as a new session would find it. Nothing is begun.
    """
    session = client.session(params) if params.get("session_id") or client.own else None
    skills = client.app.skills(cwd) if cwd is not None or session is None else session.skills
    if session is not None:
        at, wanted = session.skills.settings.place.cwd, skills.settings.place.cwd
        if at == wanted:
            return session
        if params.get("session_id"):
            message = f"session {session.id!r} works in {at}, not in {wanted}; give one of the two"
            raise RpcError(INVALID_PARAMS, message)
    return skills.session(only=client.app.defaults.get("only"))


class UsageQuery(TypedDict, total=False):
    """What usage is counted by, over JSON-RPC and HTTP."""

    session: Annotated[str, _says("Count only this session.")]
    since: Annotated[str, _says("Count sessions active since then: 30m, 12h, 7d, 4w or 2026-11-01.")]
    skill: Annotated[str, _says("Return only the skill of this name.")]
    sort: Annotated[Sort, _says("What comes first; `context` by default.")]


def _usage(client: Dispatcher, params: Params) -> JsonObject:
    return usage(client.app.store, **_checked(params, UsageQuery)).as_dict()


def _create(client: Dispatcher, params: Params) -> JsonObject:
    given = _checked(params, _Created)
    asks, seconds = bool(given.pop("asks", False)), int(given.pop("ask_seconds", limits.ANSWER_SECONDS))
    session = client.create(given.pop("session_id", None), asks=asks, seconds=seconds, **given)
    client.own = session.id
    return {"session_id": session.id}


def _of_session(show: Callable[[Session], object]) -> Callable[[Dispatcher, Params], object]:
    def handler(client: Dispatcher, params: Params) -> object:
        _checked(params, _OfSession)
        return show(client.session(params))

    return handler


def read_operation(kind: type[Operation[Any]], given: Mapping[str, object]) -> Operation[Any]:
    """An operation from the parameters of a message. In those, the arguments of a tool call are `args`."""
    if kind is Call:
        wrong = mismatch(given.get("args", {}), {"type": ["object", "null"]}, "args")
        if wrong:
            raise BadArguments(wrong, field="args")
        given = {"arguments" if key == "args" else key: value for key, value in given.items()}
    return kind.from_dict(given)


METHODS: Final[Mapping[str, Callable[[Dispatcher, Params], object]]] = {
    "skills.list": _skills_list,
    "context.inspect": _context_inspect,
    "session.create": _create,
    "session.events": _of_session(lambda session: session.events),
    "session.state": _of_session(lambda session: session.state()),
    "usage.count": _usage,
}
"""The methods besides `session.<operation>`."""
