"""The HTTP API: one table of operations, from which the routes and the OpenAPI document both come.

Each operation turns a request into one call of `App`, `Session` or the JSON-RPC dispatcher and its answer into JSON;
the rules live below. Errors have one shape, `{"error": {"code", "message"}}`, and a status that fits.
"""

import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from metier import __version__, tools
from metier.app import App
from metier.errors import MetierError, PolicyDenied, ResourceNotFound, SkillNotFound
from metier.rpc import METHODS, Dispatcher, RpcError
from metier.web.guard import Gate, Guard
from metier.web.stream import Watcher, events

Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string"}
OBJECT: Final[Schema] = {"type": "object"}
ERROR: Final[Schema] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": TEXT, "message": TEXT},
        }
    },
}


class BadRequest(Exception):
    """The request does not fit the operation."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: where it is, what it takes, what it answers."""

    method: str
    path: str
    summary: str
    handler: Callable[["Api", Request], Awaitable[Response]]
    query: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    required_query: tuple[str, ...] = ()
    body: Schema | None = None
    answer: Schema = field(default_factory=lambda: OBJECT)


class Api:
    """The operations on one `App`."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.watcher = Watcher(app.store)

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(document())

    async def skills(self, request: Request) -> Response:
        found = await run_in_threadpool(self.app.skills)
        listed = [skill.as_dict() for skill in found]
        errors = [{"path": one.path, "message": one.message} for one in found.errors]
        return self._json(
            {"profile": found.profile.name, "skills": listed, "errors": errors, "counts": found.counts.as_dict()}
        )

    async def skill(self, request: Request) -> Response:
        found = await run_in_threadpool(self.app.skills)
        return self._json(found[request.path_params["name"]].as_dict())

    async def search(self, request: Request) -> Response:
        query, limit = _query(request, "q", required=True), _query(request, "limit")
        if limit is not None and not limit.lstrip("-").isdigit():
            raise BadRequest("limit must be a whole number")
        found = await run_in_threadpool(self.app.skills)
        wanted = int(limit[:9]) if limit else None
        result = await run_in_threadpool(
            lambda: found.search(query or "", limit=wanted, scope=_query(request, "scope"))
        )
        return self._json(result.as_dict())

    async def create(self, request: Request) -> Response:
        given = await _body(request, required=False)
        cwd = given.get("cwd")
        if cwd is not None and not isinstance(cwd, str):
            raise BadRequest("cwd must be text")
        session = await run_in_threadpool(lambda: self.app.session(cwd=cwd, surface="http"))
        await run_in_threadpool(session.keep)
        return self._json({"session_id": session.id}, 201)

    async def call(self, request: Request) -> Response:
        given = await _body(request)
        tool, arguments = given.get("tool"), given.get("args", {})
        if not isinstance(tool, str) or not isinstance(arguments, dict):
            raise BadRequest("a call has a tool (text) and args (an object)")
        session = await self._session(request)
        result = await run_in_threadpool(session.call, tool, cast("dict[str, Any]", arguments))
        return self._json(
            {"ok": result.ok, "code": result.code or None, "text": result.text, "result": result.as_dict()}
        )

    async def operate(self, request: Request) -> Response:
        """Any other operation of a session, by its name in JSON-RPC."""
        name = request.path_params["operation"]
        handler = METHODS.get(f"session.{name}")
        if handler is None or name in ("create", "call", "events"):
            raise SkillNotFound(name, why="there is no such operation")
        session = await self._session(request)
        given = await _body(request, required=False) | {"session_id": session.id}
        client = Dispatcher(self.app, "http")
        return self._json(await run_in_threadpool(handler, client, given))

    async def events(self, request: Request) -> Response:
        session = await self._session(request)
        last = request.headers.get("last-event-id") or _query(request, "after") or "-1"
        if not last.lstrip("-").isdigit() or len(last) > 18:
            raise BadRequest("Last-Event-ID must be the number of a frame")
        if "text/event-stream" in request.headers.get("accept", ""):
            stream = events(self.app.store, self.watcher, session.id, int(last))
            return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})
        frames = await run_in_threadpool(self.app.store.read, session.id, session.id, None, int(last))
        return JSONResponse(frames)

    async def rpc(self, request: Request) -> Response:
        text = await _raw(request)
        answer = await run_in_threadpool(Dispatcher(self.app, "http").handle, text)
        return Response(answer, media_type="application/json") if answer is not None else Response(status_code=204)

    async def _session(self, request: Request) -> Any:
        wanted = request.path_params["session_id"]
        if not await run_in_threadpool(self.app.exists, wanted):
            raise SkillNotFound(wanted, why="there is no such session")
        return await run_in_threadpool(lambda: self.app.session(wanted, surface="http"))

    def _json(self, data: Any, status: int = 200) -> Response:
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
        return Response(text.encode("utf-8", "replace"), status, media_type="application/json")


# --- requests ---


def _query(request: Request, key: str, *, required: bool = False) -> str | None:
    value = request.query_params.get(key)
    if value is None and required:
        raise BadRequest(f"the query parameter {key} is missing")
    return value


async def _raw(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise BadRequest("the body is too large, or was cut off") from error


async def _body(request: Request, *, required: bool = True) -> dict[str, Any]:
    data = await _raw(request)
    if not data and not required:
        return {}
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    return cast("dict[str, Any]", value)


# --- the table ---

_CALL: Final[Schema] = {
    "type": "object",
    "required": ["tool"],
    "properties": {"tool": TEXT, "args": OBJECT},
}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation("GET", "/healthz", "Whether the server answers", Api.health),
    Operation("GET", "/openapi.json", "This document", Api.openapi),
    Operation("GET", "/api/skills", "The catalog", Api.skills),
    Operation("GET", "/api/skills/{name}", "One skill", Api.skill),
    Operation(
        "GET", "/api/search", "Skills that answer a query", Api.search,
        {"q": TEXT, "limit": {"type": "integer"}, "scope": TEXT}, ("q",),
    ),
    Operation(
        "POST", "/api/sessions", "Begin a session", Api.create,
        body={"type": "object", "properties": {"cwd": TEXT}},
    ),
    Operation("POST", "/api/sessions/{session_id}/call", "Answer a model's tool call", Api.call, body=_CALL),
    Operation(
        "GET", "/api/sessions/{session_id}/events", "The frames of a session, or a live stream of them", Api.events,
        {"after": {"type": "integer"}}, answer={"type": "array", "items": OBJECT},
    ),
    Operation(
        "POST", "/api/sessions/{session_id}/{operation}", "Any other operation of a session", Api.operate,
        body=OBJECT, answer={},
    ),
    Operation("POST", "/rpc", "JSON-RPC 2.0", Api.rpc, body={}, answer={}),
)  # fmt: skip


def document() -> dict[str, Any]:
    """The OpenAPI document of the table."""
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        inside = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
        parameters = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in inside]
        parameters += [
            {"name": name, "in": "query", "required": name in operation.required_query, "schema": schema}
            for name, schema in operation.query.items()
        ]
        described: dict[str, Any] = {
            "summary": operation.summary,
            "operationId": f"{operation.method.lower()}_{operation.handler.__name__}",
            "parameters": parameters,
            "responses": {
                "200": {"description": "done", "content": {"application/json": {"schema": operation.answer}}},
                "201": {"description": "made", "content": {"application/json": {"schema": operation.answer}}},
                "204": {"description": "nothing to say"},
                "default": {"description": "refused", "content": {"application/json": {"schema": ERROR}}},
            },
        }
        if operation.body is not None:
            content = {"application/json": {"schema": operation.body}}
            described["requestBody"] = {"required": operation.body is _CALL, "content": content}
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Metier", "version": __version__, "description": "The runtime for Agent Skills."},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": paths,
    }


# --- errors ---


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, RpcError):
        return _error(400, "INVALID_PARAM", error.message)
    if not isinstance(error, MetierError):
        return _error(400, "INVALID_PARAM", str(error))
    if isinstance(error, (SkillNotFound, ResourceNotFound)):
        return _error(404, "NOT_FOUND", str(error))
    return _error(403 if isinstance(error, PolicyDenied) else 422, tools.code_of(error), str(error))


async def _unforeseen(request: Request, error: Exception) -> Response:
    return _error(500, "INTERNAL_ERROR", "something went wrong here; it is in the server's log")


async def _no_route(request: Request, error: Exception) -> Response:
    status: int = getattr(error, "status_code", 404)
    return _error(status, "NOT_FOUND" if status == 404 else "NOT_ALLOWED", str(getattr(error, "detail", "not found")))


def _error(status: int, code: str, message: str) -> Response:
    text = json.dumps({"error": {"code": code, "message": message}}, ensure_ascii=False)
    return Response(text.encode("utf-8", "replace"), status, media_type="application/json")


def build(app: App, gate: Gate | None = None) -> Starlette:
    """The ASGI application."""
    from starlette.exceptions import HTTPException

    api = Api(app)

    def bound(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await operation.handler(api, request)

        return endpoint

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        await api.watcher.start()
        try:
            yield
        finally:
            await api.watcher.stop()

    return Starlette(
        routes=[Route(o.path, bound(o), methods=[o.method], name=o.handler.__name__) for o in OPERATIONS],
        middleware=[Middleware(Guard, gate=gate or Gate())],
        exception_handlers={
            MetierError: _refused,
            RpcError: _refused,
            BadRequest: _refused,
            HTTPException: _no_route,
            500: _unforeseen,
        },
        lifespan=lifespan,
    )
