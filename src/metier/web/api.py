"""The HTTP API: one table of operations defines the routes, the checks and the OpenAPI document.

Each operation turns a request into one call of `App`, `Session` or the JSON-RPC dispatcher, and the result into JSON.
It has no rules of its own. Other modules have their own tables and routes, and `build` combines them behind the gate.
"""

import contextlib
import inspect
import json
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from metier import __version__
from metier.app import App
from metier.catalog.build import Catalog
from metier.catalog.watch import Watcher as DiskWatcher
from metier.chat import Chats
from metier.errors import (
    AmbiguousSkill,
    BadArguments,
    ConfigError,
    MetierError,
    PolicyDenied,
    ScriptRefused,
    SkillNotFound,
    StoreError,
)
from metier.record.store import check_name
from metier.record.usage import usage
from metier.results import ToolResult
from metier.rpc import BEGIN, USAGE, Dispatcher
from metier.sandbox.bounded import RUNS, BoundedRunner
from metier.session import scripts
from metier.session.json_schema import Schema, mismatch
from metier.session.operation import Operation, fields_without_nul, schema_of
from metier.session.operations import OPERATIONS, Call
from metier.session.session import Session
from metier.session.tools import BUSY, code_of
from metier.web import chat, chat_list, model_api, pages, schemas
from metier.web.access import Access
from metier.web.endpoints import (
    JSON,
    BadRequest,
    Endpoint,
    NotFound,
    Problem,
    RequestRefused,
    ServerBusy,
    answer,
    document,
    encode,
    json_body,
    query,
    raw_body,
    refusal,
    whole,
)
from metier.web.guard import Gate, Guard
from metier.web.hide_paths import PathHider
from metier.web.mcp_mount import McpMount
from metier.web.publish import FOLDER, PublishedSkills
from metier.web.schemas import OBJECT, RESULTS, TEXT, WHOLE, many, record
from metier.web.sse import EVENT_STREAM, EventFeed, respond
from metier.web.threads import run_in_threadpool

_LOG: Final = logging.getLogger("metier")
_AFTER: Final = 2**62
_NO_NUL: Final = "^[^\\u0000]*$"


class Api:
    """The operations on one `App`."""

    def __init__(self, app: App, table: Sequence[Endpoint] = ()) -> None:
        self.app = app
        self.chats = Chats(app)
        self.hide_paths = PathHider(app)
        self.feed = EventFeed(app.store, self.hide_paths)
        self.published_skills = PublishedSkills(app)
        self._document = encode(document(table))
        self._catalog: tuple[Catalog, bytes] | None = None
        self._encoding = threading.Lock()

    # --- the server ---

    async def health(self, request: Request) -> Response:
        return answer({"status": "ok", "version": __version__})

    async def openapi(self, request: Request) -> Response:
        return Response(self._document, media_type=JSON)

    # --- the catalog ---

    async def skills(self, request: Request) -> Response:
        return Response(await run_in_threadpool(self._encoded), media_type=JSON)

    def _encoded(self) -> bytes:
        """The catalog as JSON, encoded once. A catalog is the same object until its content changes."""
        found = self.app.skills()
        known = self._catalog
        if known is not None and known[0] is found.catalog:
            return known[1]
        with self._encoding:
            catalog = found.catalog
            if self._catalog is None or self._catalog[0] is not catalog:
                listed = {
                    "profile": found.profile.name,
                    "skills": [skill.as_dict() for skill in catalog.skills],
                    "errors": [{"path": one.path, "message": one.message} for one in found.errors],
                    "diagnostics": [warning.as_dict() for warning in found.warnings],
                    "counts": found.counts.as_dict(),
                }
                self._catalog = (catalog, encode(self.hide_paths(listed)))
            return self._catalog[1]

    async def skill(self, request: Request) -> Response:
        found = await run_in_threadpool(self.app.skills)
        return self.answer(found[request.path_params["name"]].as_dict())

    async def search(self, request: Request) -> Response:
        wanted = query(request, "q")
        if wanted is None:
            raise BadRequest("the query parameter q is missing")
        limit, scope = whole("limit", query(request, "limit")), query(request, "scope")
        context = query(request, "context")

        def look() -> dict[str, Any]:
            return self.app.skills().search(wanted, limit=limit, scope=scope, context=context).as_dict()

        return self.answer(await run_in_threadpool(look))

    async def usage(self, request: Request) -> Response:
        given: dict[str, Any] = {key: value for key in USAGE if (value := query(request, key)) is not None}
        if wrong := mismatch(given, {"type": "object", "properties": USAGE}, ""):
            raise BadRequest(wrong)

        def count() -> dict[str, Any]:
            if "session" in given:
                self.find(given["session"])
            try:
                return usage(self.app.store, **given).as_dict()
            except BadArguments as error:
                raise RequestRefused(error.message) from error

        return self.answer(await run_in_threadpool(count))

    async def published(self, request: Request) -> Response:
        return self.answer(await run_in_threadpool(self.published_skills.index))

    async def archive(self, request: Request) -> Response:
        packed = await run_in_threadpool(self.published_skills.archive, request.path_params["archive"])
        if packed is None:
            raise NotFound("there is no such archive, or it is another one by now; read the index again")
        return Response(packed, media_type="application/gzip")

    # --- sessions ---

    async def create(self, request: Request) -> Response:
        given = await json_body(request, CREATE)

        def begin() -> str:
            try:
                return self.app.session(surface="http", **given).id
            except BadArguments as error:  # each field fits, but not one with another
                raise RequestRefused(error.message) from error

        return self.answer({"session_id": await run_in_threadpool(begin)}, 201)

    async def state(self, request: Request) -> Response:
        return self.answer(await run_in_threadpool(lambda: self.session(request).state()))

    async def events(self, request: Request) -> Response:
        session_id: str = request.path_params["session_id"]
        named = whole("after", query(request, "after"))
        last = whole("Last-Event-ID", request.headers.get("last-event-id"))
        after = last if last is not None else -1 if named is None else named
        after = max(-1, min(after, _AFTER))
        limit = whole("limit", query(request, "limit"))
        if limit is not None and not 0 < limit <= _AFTER:
            raise BadRequest("limit must be at least 1")
        await run_in_threadpool(self.find, session_id)
        if EVENT_STREAM in request.headers.get("accept", "") and request.method == "GET":
            return respond(self.feed.frames(session_id, after))
        frames = await run_in_threadpool(self.app.store.read, session_id, session_id, None, after, limit)
        return self.answer(frames)

    async def rpc(self, request: Request) -> Response:
        text = await raw_body(request)
        said = await run_in_threadpool(Dispatcher(self.app, "http").handle, text)
        if said is None:
            return Response(status_code=204)
        return self.answer(json.loads(said)) if self.hide_paths.on else Response(said.encode(), media_type=JSON)

    def session(self, request: Request) -> Session:
        """The session named in the URL. Call this in a worker thread, because it may wait for the store."""
        return self.app.session(self.find(request.path_params["session_id"]), surface="http")

    def find(self, session_id: str) -> str:
        """Return the id if the session exists, else raise `NotFound`. Opens and records nothing."""
        try:
            known = self.app.exists(check_name(session_id, "the session id"))
        except StoreError as error:
            known = False
            if error.reason != "invalid":
                raise
        if not known:
            raise NotFound(f"there is no session {session_id[:100]!r}")
        return session_id

    def answer(self, data: Any, status: int = 200) -> Response:
        return answer(self.hide_paths(data), status)


def _endpoint(kind: type[Operation[Any]]) -> Endpoint:
    """The endpoint of a session operation. Name, body and answer are those of the operation."""
    schema = _documented(kind)

    async def handler(api: Api, request: Request) -> Response:
        given = await json_body(request, endpoint)

        def work() -> object:
            session = api.session(request)
            operation = kind.from_dict(given)
            return operation.data(session.perform(operation))

        return api.answer(await run_in_threadpool(work))

    handler.__name__ = kind.operation
    endpoint = Endpoint(
        method="POST",
        path=f"/api/sessions/{{session_id}}/{kind.operation}",
        summary=inspect.getdoc(kind) or "",
        handler=handler,
        body=schema,
        body_required=bool(schema["required"]),
        answers={200: {JSON: RESULTS[kind.operation]}},
    )
    return endpoint


def _documented(kind: type[Operation[Any]]) -> Schema:
    """The schema of an operation's body. A NUL is refused by the operation itself, so clients should know of it."""
    schema = schema_of(kind)
    properties = dict(schema["properties"])
    for name in fields_without_nul(kind):
        known = properties[name]
        if known.get("type") == "array":
            properties[name] = {**known, "items": {**known["items"], "pattern": _NO_NUL}}
        elif known.get("type") == "string":
            properties[name] = {**known, "pattern": _NO_NUL}
    return {**schema, "properties": properties}


async def _call(api: Api, request: Request) -> Response:
    """Answer a tool call with the host's result, whether it succeeded, and the text for the model."""
    given = await json_body(request, CALL)

    def work() -> ToolResult:
        return api.session(request).call(given["tool"], given.get("args", {}))

    result = await run_in_threadpool(work)
    if result.code == BUSY:
        raise ServerBusy(result.text)
    return api.answer({"ok": result.ok, "code": result.code or None, "text": result.text, "result": result.as_dict()})


# --- the table ---

CREATE: Final = Endpoint(
    method="POST",
    path="/api/sessions",
    summary="Begin a session",
    handler=Api.create,
    body={"type": "object", "properties": BEGIN, "additionalProperties": False},
    answers={201: {JSON: record({"session_id": TEXT})}},
)
CALL: Final = Endpoint(
    method="POST",
    path="/api/sessions/{session_id}/call",
    summary="Answer a model's tool call",
    handler=_call,
    body=record({"tool": TEXT}, {"args": OBJECT}),
    body_required=True,
    answers={200: {JSON: RESULTS["call"]}},
)

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        method="GET",
        path="/healthz",
        summary="Whether the server answers",
        handler=Api.health,
        answers={200: {JSON: record({"status": TEXT, "version": TEXT})}},
        open=True,
    ),
    Endpoint(method="GET", path="/openapi.json", summary="This document", handler=Api.openapi),
    Endpoint(
        method="GET",
        path="/api/skills",
        summary="The catalog",
        handler=Api.skills,
        answers={200: {JSON: schemas.CATALOG}},
    ),
    Endpoint(
        method="GET",
        path="/api/skills/{name}",
        summary="One skill",
        handler=Api.skill,
        answers={200: {JSON: schemas.SKILL}},
    ),
    Endpoint(
        method="GET",
        path="/api/search",
        summary="Skills that answer a query",
        handler=Api.search,
        query={"q": TEXT, "limit": WHOLE, "scope": TEXT, "context": TEXT},
        required_query=("q",),
        answers={200: {JSON: schemas.FOUND}},
    ),
    Endpoint(
        method="GET",
        path="/api/usage",
        summary="Which skills sessions were offered, loaded, read and ran",
        handler=Api.usage,
        query=USAGE,
        answers={200: {JSON: schemas.USAGE}},
        refusals={404: "there is no such session", 422: "`since` is no time"},
    ),
    CREATE,
    CALL,
    *(_endpoint(kind) for kind in OPERATIONS.values() if kind is not Call),
    Endpoint(
        method="POST",
        path="/api/sessions/{session_id}/state",
        summary="What the session knows, as data",
        handler=Api.state,
        answers={200: {JSON: schemas.STATE}},
    ),
    Endpoint(
        method="GET",
        path="/api/sessions/{session_id}/events",
        summary="The frames of a session, or a live stream of them",
        handler=Api.events,
        query={"after": WHOLE, "limit": {"type": "integer", "minimum": 1, "maximum": _AFTER}},
        headers={"Last-Event-ID": WHOLE},
        answers={200: {JSON: many(schemas.FRAME), EVENT_STREAM: TEXT}},
    ),
    Endpoint(
        method="POST",
        path="/rpc",
        summary="JSON-RPC 2.0",
        handler=Api.rpc,
        body={},
        body_required=True,
        answers={200: {JSON: {"type": ["object", "array"]}}, 204: {}},
    ),
)

PUBLISHED: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        method="GET",
        path=f"{FOLDER}/index.json",
        summary="The skills to fetch",
        handler=Api.published,
        answers={200: {JSON: schemas.INDEX}},
        open=True,
    ),
    Endpoint(
        method="GET",
        path=f"{FOLDER}/{{archive}}",
        summary="A skill as an archive",
        handler=Api.archive,
        answers={200: {"application/gzip": {"type": "string", "contentMediaType": "application/gzip"}}},
        open=True,
    ),
)


def endpoints(*, publish: bool = False) -> tuple[Endpoint, ...]:
    """All endpoints of a server, from all modules."""
    return (*ENDPOINTS, *chat.ENDPOINTS, *chat_list.ENDPOINTS, *model_api.ENDPOINTS, *(PUBLISHED if publish else ()))


# --- errors ---


def status_of(error: MetierError) -> tuple[int, str]:
    """The HTTP status and the stable code for an error of the runtime."""
    if isinstance(error, SkillNotFound) or code_of(error) == "NOT_FOUND":
        return 404, code_of(error)
    if isinstance(error, ScriptRefused) and error.reason == "busy":
        return 503, BUSY
    if isinstance(error, StoreError):
        return (422, "INVALID_PARAM") if error.reason == "invalid" else (503, "STORE_UNAVAILABLE")
    if isinstance(error, BadArguments):
        return 400, "INVALID_PARAM"
    if isinstance(error, ConfigError):
        return 422, "INVALID_PARAM"
    if isinstance(error, AmbiguousSkill):
        return 409, code_of(error)
    return 403 if isinstance(error, PolicyDenied) else 422, code_of(error)


def _handlers(hide_paths: PathHider) -> dict[Any, Callable[[Request, Any], Awaitable[Response]]]:
    async def problem(request: Request, error: Problem) -> Response:
        return refusal(error.status, error.code, hide_paths(error.message))

    async def runtime(request: Request, error: MetierError) -> Response:
        status, code = status_of(error)
        return refusal(status, code, hide_paths(str(error)))

    async def unforeseen(request: Request, error: Exception) -> Response:
        message = "something went wrong here; it is in the server's log"
        return pages.error_page(request, 500, message) or refusal(500, "INTERNAL_ERROR", message)

    async def no_route(request: Request, error: HTTPException) -> Response:
        code = "NOT_FOUND" if error.status_code == 404 else "NOT_ALLOWED"
        page = pages.error_page(request, error.status_code, str(error.detail))
        return page or refusal(error.status_code, code, str(error.detail), error.headers)

    return {Problem: problem, MetierError: runtime, HTTPException: no_route, Exception: unforeseen}


# --- the application ---


class _Handler:
    """An endpoint as an ASGI application. Errors are answered by the handlers of the whole application."""

    def __init__(self, api: Api, endpoint: Endpoint) -> None:
        self._api, self._handler = api, endpoint.handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._handler(self._api, Request(scope, receive, send))
        await response(scope, receive, send)


class Application(Starlette):
    """The ASGI application of one server. Call `end` before the server waits for its open streams to close."""

    api: Api
    access: Access
    mcp_mount: McpMount

    def end(self) -> None:
        self.api.feed.end()
        self.api.chats.end()
        self.mcp_mount.end()


def build(
    app: App,
    gate: Gate | None = None,
    *,
    runs: int = RUNS,
    publish: bool = False,
    watch: bool = True,
) -> Application:
    """Build the ASGI application. It runs up to `runs` scripts at a time, and `publish` lets anyone fetch the skills.

    Without a gate, everyone who connects may use it; a gate with a token asks for the token. With `watch`, the catalog
    follows the disk, and MCP clients are notified of changes.
    """
    gate = gate or Gate()
    access = Access(app.store, gate.token, gate.slowest)
    table = endpoints(publish=publish)
    api = Api(app, table)
    mcp_mount = McpMount(app, gate, watch=watch)
    disk = DiskWatcher(app) if watch and mcp_mount.missing else None  # MCP has its own watcher
    sandbox = scripts.default_runner(app.config.profile.run)
    if app.runner is None and sandbox is not None:
        app.runner = BoundedRunner(sandbox, runs)

    # Calls are the most frequent by far, and routes are tried in order.
    ordered = sorted(table, key=lambda one: one is not CALL)
    routes: list[BaseRoute] = [Route(one.path, _Handler(api, one), methods=[one.method]) for one in ordered]
    routes.append(Route("/mcp", mcp_mount))
    routes += pages.routes(api, access)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        await api.feed.start()
        if disk is not None:
            disk.start()
        try:
            async with mcp_mount.lifespan():
                yield
        finally:
            await api.chats.close()
            await api.feed.stop()
            if disk is not None:
                await run_in_threadpool(disk.stop)

    built = Application(
        routes=routes,
        middleware=[Middleware(Guard, gate=gate, access=access, public=[f"{FOLDER}/"] if publish else [])],
        exception_handlers=_handlers(api.hide_paths),
        lifespan=lifespan,
    )
    built.router.redirect_slashes = False  # a path with a trailing slash is a different path
    built.api, built.access, built.mcp_mount = api, access, mcp_mount
    return built
