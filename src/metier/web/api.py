"""The HTTP API: one table of operations, from which the routes, the checks and the OpenAPI document come.

Each operation turns a request into one call of `App`, `Session` or the JSON-RPC dispatcher and its answer into JSON;
the rules live below. Other modules bring tables and routes of their own; `build` puts them together behind the gate.
"""

import contextlib
import json
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from metier import __version__
from metier.app import App
from metier.catalog.build import Catalog
from metier.catalog.watch import Watcher as DiskWatcher
from metier.chat import Chats
from metier.errors import (
    AmbiguousSkill,
    ConfigError,
    MetierError,
    PolicyDenied,
    ScriptRefused,
    SkillNotFound,
    StoreError,
)
from metier.record.store.values import check_name
from metier.rpc import METHODS, Dispatcher, RpcError
from metier.sandbox.bounded import RUNS, BoundedRunner
from metier.session import scripts, tools
from metier.session.session import Session
from metier.web import chat, pages, schemas
from metier.web.guard import Gate, Guard
from metier.web.hide_paths import PathHider
from metier.web.mcp_mount import McpMount
from metier.web.operations import (
    JSON,
    BadRequest,
    Busy,
    NotFound,
    Operation,
    Problem,
    answer,
    document,
    encode,
    json_body,
    query,
    raw_body,
    refusal,
    whole,
)
from metier.web.publish import FOLDER, PublishedSkills
from metier.web.schemas import BY, COUNT, FLAG, NAME, OBJECT, TEXT, WHOLE, Schema, many, record
from metier.web.sse import EVENT_STREAM, EventFeed, respond

_LOG: Final = logging.getLogger("metier")
_AFTER: Final = 2**62


class Api:
    """The operations on one `App`."""

    def __init__(self, app: App, table: Sequence[Operation] = ()) -> None:
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
        """The catalog as it is sent, made once for each catalog: it is the same object until it differs."""
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

        def look() -> dict[str, Any]:
            return self.app.skills().search(wanted, limit=limit, scope=scope).as_dict()

        return self.answer(await run_in_threadpool(look))

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
            session = self.app.session(cwd=given.get("cwd"), surface="http")
            session.keep()
            return session.id

        return self.answer({"session_id": await run_in_threadpool(begin)}, 201)

    async def call(self, request: Request) -> Response:
        given = await json_body(request, CALL)

        def call() -> tools.ToolResult:
            return self.session(request).call(given["tool"], given.get("args", {}))

        result = await run_in_threadpool(call)
        if result.code == tools.BUSY:
            raise Busy(result.text)
        shown = {"ok": result.ok, "code": result.code or None, "text": result.text, "result": result.as_dict()}
        return self.answer(shown)

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
        """The session that the address names; for a thread that may wait for the store."""
        return self.app.session(self.find(request.path_params["session_id"]), surface="http")

    def find(self, session_id: str) -> str:
        """The id, where there is such a session. Nothing is opened, and nothing recorded."""
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


def _operation(name: str, summary: str, body: Schema, shape: Schema) -> Operation:
    """An operation of a session that JSON-RPC has by the same name."""

    async def handler(api: Api, request: Request) -> Response:
        given = await json_body(request, operation)

        def work() -> Any:
            session_id = api.find(request.path_params["session_id"])
            return METHODS[f"session.{name}"](Dispatcher(api.app, "http"), {**given, "session_id": session_id})

        return api.answer(await run_in_threadpool(work))

    handler.__name__ = name
    operation = Operation(
        "POST", f"/api/sessions/{{session_id}}/{name}", summary, handler, body=body,
        body_required=bool(body.get("required")), answers={200: {JSON: shape}},
    )  # fmt: skip
    return operation


# --- the table ---

CREATE: Final = Operation(
    "POST", "/api/sessions", "Begin a session", Api.create,
    body=record({}, {"cwd": TEXT}), answers={201: {JSON: record({"session_id": TEXT})}},
)  # fmt: skip
CALL: Final = Operation(
    "POST", "/api/sessions/{session_id}/call", "Answer a model's tool call", Api.call,
    body=record({"tool": TEXT}, {"args": OBJECT}), body_required=True, answers={200: {JSON: schemas.CALLED}},
)  # fmt: skip

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET", "/healthz", "Whether the server answers", Api.health,
        answers={200: {JSON: record({"status": TEXT, "version": TEXT})}}, open=True,
    ),
    Operation("GET", "/openapi.json", "This document", Api.openapi),
    Operation("GET", "/api/skills", "The catalog", Api.skills, answers={200: {JSON: schemas.CATALOG}}),
    Operation("GET", "/api/skills/{name}", "One skill", Api.skill, answers={200: {JSON: schemas.SKILL}}),
    Operation(
        "GET", "/api/search", "Skills that answer a query", Api.search,
        {"q": TEXT, "limit": WHOLE, "scope": TEXT}, ("q",), answers={200: {JSON: schemas.FOUND}},
    ),
    CREATE,
    CALL,
    Operation(
        "GET", "/api/sessions/{session_id}/events", "The frames of a session, or a live stream of them", Api.events,
        {"after": WHOLE, "limit": {"type": "integer", "minimum": 1, "maximum": _AFTER}},
        headers={"Last-Event-ID": WHOLE},
        answers={200: {JSON: many(schemas.FRAME), EVENT_STREAM: TEXT}},
    ),
    _operation(
        "load", "Load a skill",
        record({}, {"name": TEXT, "path": TEXT, "arguments": TEXT, "parent": TEXT, "by": BY}), schemas.LOADED,
    ),
    _operation(
        "read", "Read a file of a skill",
        record({"name": NAME}, {"path": TEXT, "raw": FLAG, "by": BY}), schemas.RESOURCE,
    ),
    _operation(
        "run", "Run a script of a skill in the sandbox",
        record({"name": NAME, "script": NAME}, {"arguments": many(TEXT), "stdin": TEXT, "by": BY}), schemas.RUN,
    ),
    _operation(
        "search", "Search, as a step of the session",
        record({"query": TEXT}, {"limit": WHOLE, "scope": TEXT, "by": BY}), schemas.FOUND,
    ),
    _operation("invoke", "What a user's message calls", record({"message": TEXT}), schemas.INVOKED),
    _operation(
        "prompt", "The part of a system prompt that shows the skills",
        record({}, {"message": TEXT, "budget": COUNT}), schemas.PROMPT,
    ),
    _operation(
        "system_prompt", "A whole system prompt", record({}, {"base": TEXT, "message": TEXT}), record({"text": TEXT})
    ),
    _operation("tools", "The tools to give to a model", record({}), schemas.TOOLS),
    _operation(
        "output", "An earlier output by its ref",
        record({"ref": NAME}, {"start": COUNT, "end": COUNT, "grep": TEXT}), record({"text": TEXT}),
    ),
    _operation(
        "compact", "What belongs back into a compacted context", record({}, {"budget": COUNT}), schemas.COMPACTED
    ),
    _operation("end_turn", "The user's next message begins", record({}), OBJECT),
    _operation("state", "What the session knows, as data", record({}), schemas.STATE),
    Operation(
        "POST", "/rpc", "JSON-RPC 2.0", Api.rpc,
        body={}, body_required=True, answers={200: {JSON: {"type": ["object", "array"]}}, 204: {}},
    ),
)  # fmt: skip

PUBLISHED: Final[tuple[Operation, ...]] = (
    Operation(
        "GET", f"{FOLDER}/index.json", "The skills to fetch", Api.published, answers={200: {JSON: schemas.INDEX}}
    ),
    Operation(
        "GET", f"{FOLDER}/{{archive}}", "A skill as an archive", Api.archive,
        answers={200: {"application/gzip": {"type": "string", "contentMediaType": "application/gzip"}}},
    ),
)  # fmt: skip


def operations(*, publish: bool = False) -> tuple[Operation, ...]:
    """Every operation of a server, whichever module has it."""
    return (*OPERATIONS, *chat.OPERATIONS, *(PUBLISHED if publish else ()))


# --- errors ---


def status_of(error: MetierError) -> tuple[int, str]:
    """The status and the stable word for an error of the runtime."""
    if isinstance(error, SkillNotFound) or tools.code_of(error) == "NOT_FOUND":
        return 404, tools.code_of(error)
    if isinstance(error, ScriptRefused) and error.reason == "busy":
        return 503, tools.BUSY
    if isinstance(error, StoreError):
        return (422, "INVALID_PARAM") if error.reason == "invalid" else (503, "STORE_UNAVAILABLE")
    if isinstance(error, ConfigError):
        return 422, "INVALID_PARAM"
    if isinstance(error, AmbiguousSkill):
        return 409, tools.code_of(error)
    return 403 if isinstance(error, PolicyDenied) else 422, tools.code_of(error)


def _handlers(hide_paths: PathHider) -> dict[Any, Callable[[Request, Any], Awaitable[Response]]]:
    async def problem(request: Request, error: Problem) -> Response:
        return refusal(error.status, error.code, hide_paths(error.message))

    async def runtime(request: Request, error: MetierError) -> Response:
        status, code = status_of(error)
        return refusal(status, code, hide_paths(str(error)))

    async def parameters(request: Request, error: RpcError) -> Response:
        return refusal(400, "INVALID_PARAM", hide_paths(error.message))

    async def unforeseen(request: Request, error: Exception) -> Response:
        message = "something went wrong here; it is in the server's log"
        return pages.error_page(request, 500, message) or refusal(500, "INTERNAL_ERROR", message)

    async def no_route(request: Request, error: HTTPException) -> Response:
        code = "NOT_FOUND" if error.status_code == 404 else "NOT_ALLOWED"
        page = pages.error_page(request, error.status_code, str(error.detail))
        return page or refusal(error.status_code, code, str(error.detail), error.headers)

    return {
        Problem: problem, MetierError: runtime, RpcError: parameters, HTTPException: no_route, Exception: unforeseen,
    }  # fmt: skip


# --- putting it together ---


class Application(Starlette):
    """The ASGI application of one server; `end` lets its streams end, before the server waits for them."""

    api: Api
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
    """The ASGI application: `runs` scripts at a time, and with `publish` the skills for others to fetch.

    With `watch` the catalog follows the disk, and clients over MCP are told what changed.
    """
    gate = gate or Gate()
    table = operations(publish=publish)
    api = Api(app, table)
    mcp_mount = McpMount(app, gate, watch=watch)
    disk = DiskWatcher(app) if watch and mcp_mount.missing else None  # MCP has one of its own, and one is enough
    sandbox = scripts.default_runner()
    if app.runner is None and sandbox is not None:
        app.runner = BoundedRunner(sandbox, runs)

    def bound(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await operation.handler(api, request)

        return endpoint

    routes: list[BaseRoute] = [Route(one.path, bound(one), methods=[one.method]) for one in table]
    routes.append(Route("/mcp", mcp_mount))
    routes += pages.routes(api, gate)

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
        middleware=[Middleware(Guard, gate=gate)],
        exception_handlers=_handlers(api.hide_paths),
        lifespan=lifespan,
    )
    built.router.redirect_slashes = False  # another address is another one; a guess helps nobody
    built.api, built.mcp_mount = api, mcp_mount
    return built
