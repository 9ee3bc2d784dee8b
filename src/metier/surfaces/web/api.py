"""The HTTP API: one table of operations defines the routes, the checks and the OpenAPI document.

Each operation turns a request into one call of `App`, `Session` or the JSON-RPC dispatcher, and the result into JSON.
It has no rules of its own. Other modules have their own tables and routes, and `build` combines them behind the gate.
"""

import contextlib
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from metier import __version__
from metier.app import App
from metier.catalog.watch import Watcher as DiskWatcher
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
from metier.policy.decide import Request as PolicyRequest
from metier.record.store import check_name
from metier.record.usage import Usage, usage
from metier.running import scripts
from metier.running.sandbox.runners import RUNS, BoundedRunner
from metier.session.operation import Operation, fields_without_nul, result_schema
from metier.session.operation import schema_of as fields_schema
from metier.session.operations import OPERATIONS, Call
from metier.session.session import Session
from metier.session.tools import BUSY, code_of
from metier.surfaces.chat import ChatBusy, NoSuchChat
from metier.surfaces.chat.model_choice import ModelUnavailable, UnconfirmedAddress
from metier.surfaces.rpc import BeginOptions, Dispatcher, UsageQuery, closed_schema
from metier.surfaces.web import chat, pages
from metier.surfaces.web.access import Access
from metier.surfaces.web.endpoints import JSON, Endpoint, ErrorTold, Problem, answer, document, query, refusal, whole
from metier.surfaces.web.guard import Gate, Guard
from metier.surfaces.web.mcp_mount import McpMount
from metier.surfaces.web.site import ServedCatalog, Site, encode
from metier.surfaces.web.sse import EVENT_STREAM, respond
from metier.values.results import FrameShown, SearchResult
from metier.values.skill import Skill
from metier.values.value import JsonObject, Meta, Schema, Value, mismatch, schema_of

_AFTER: Final = 2**62
_NO_NUL: Final = "^[^\\u0000]*$"


# --- the server ---


class Health(Value, kw_only=True):
    """Whether the server answers. `reason` says why the store takes no events."""

    json_keys = ("status", "version", "reason?", "error?")

    status: Literal["ok", "store-unavailable"]
    version: str = __version__
    reason: str = ""
    error: ErrorTold | None = None


@Endpoint("GET", "/healthz", "Whether the server answers, and its store takes events", answers=Health, open=True)
async def health(site: Site, request: Request, given: None) -> Response:
    trouble = await site.store_health.trouble()
    if trouble is None:
        return answer(Health(status="ok").as_dict())
    error = ErrorTold("STORE_UNAVAILABLE", f"no event can be stored: {trouble}; the server's log says more")
    told = Health(status="store-unavailable", reason=trouble, error=error)
    return answer(told.as_dict(), 503 if site.app.config.store_required else 200)


@Endpoint("GET", "/openapi.json", "This document")
async def openapi(site: Site, request: Request, given: None) -> Response:
    return Response(site.document, media_type=JSON)


@Endpoint("POST", "/rpc", "JSON-RPC 2.0", body={}, answers={200: {JSON: {"type": ["object", "array"]}}, 204: {}})
def rpc(site: Site, request: Request, given: bytes) -> object:
    said = Dispatcher(site.app, "http").handle(given)
    if said is None:
        return Response(status_code=204)
    return json.loads(said) if site.hide_paths.on else Response(said.encode(), media_type=JSON)


# --- the catalog ---


@Endpoint("GET", "/api/skills", "The catalog", answers=ServedCatalog)
def list_skills(site: Site, request: Request, given: None) -> Response:
    return Response(site.catalog(), media_type=JSON)


@Endpoint("GET", "/api/skills/{name}", "One skill", answers=Skill)
def show_skill(site: Site, request: Request, given: None) -> object:
    return site.app.skills()[request.path_params["name"]].as_dict()


@Endpoint(
    "GET",
    "/api/search",
    "Skills that answer a query",
    query={"q": str, "limit": int, "scope": str, "context": str},
    required_query=("q",),
    answers=SearchResult,
)
def search(site: Site, request: Request, given: None) -> object:
    wanted = query(request, "q")
    if wanted is None:
        raise Problem(400, "the query parameter q is missing")
    limit, scope = whole("limit", query(request, "limit")), query(request, "scope")
    skills = site.app.skills()
    site.app.policy(skills).enforce(PolicyRequest("skill_search"), None, by="user")
    return skills.search(wanted, limit=limit, scope=scope, context=query(request, "context")).as_dict()


@Endpoint(
    "GET",
    "/api/usage",
    "Which skills sessions were offered, loaded, read and ran",
    query=schema_of(UsageQuery)["properties"],
    answers=Usage,
    refusals={404: "there is no such session", 422: "`since` is no time"},
)
def count_usage(site: Site, request: Request, given: None) -> object:
    wanted: dict[str, Any] = {
        key: value for key in UsageQuery.__annotations__ if (value := query(request, key)) is not None
    }
    if wrong := mismatch(wanted, schema_of(UsageQuery), ""):
        raise Problem(400, wrong)
    if "session" in wanted:
        _find(site, wanted["session"])
    try:
        return usage(site.app.store, **wanted).as_dict()
    except BadArguments as error:
        raise Problem(422, error.message) from error


# --- sessions ---


def _session(site: Site, request: Request) -> Session:
    """The session named in the URL. Call this in a worker thread, because it may wait for the store."""
    return site.app.session(_find(site, request.path_params["session_id"]), surface="http")


def _find(site: Site, session_id: str) -> str:
    """Return the id if the session exists, else raise a `Problem`. Opens and records nothing."""
    try:
        known = site.app.exists(check_name(session_id, "the session id"))
    except StoreError as error:
        known = False
        if error.reason != "invalid":
            raise
    if not known:
        raise Problem(404, f"there is no session {session_id[:100]!r}")
    return session_id


class Begun(Value):
    session_id: str


class ToolCall(TypedDict):
    tool: str
    args: NotRequired[JsonObject]


class CallAnswer(Value, kw_only=True):
    """The answer to a tool call: the host's result, whether it succeeded, and the text for the model."""

    json_keys = ("ok", "code|null", "text", "result")

    ok: bool
    code: str
    text: str
    result: JsonObject


class StateShown(TypedDict):
    version: int
    id: str


@Endpoint(
    "POST",
    "/api/sessions",
    "Begin a session",
    body=closed_schema(BeginOptions),
    body_required=False,
    answers={201: {JSON: Begun}},
)
def begin(site: Site, request: Request, given: dict[str, Any]) -> object:
    try:
        return Begun(site.app.session(surface="http", **given).id)
    except BadArguments as error:  # each field fits, but not one with another
        raise Problem(422, error.message) from error


@Endpoint("POST", "/api/sessions/{session_id}/call", "Answer a model's tool call", body=ToolCall, answers=CallAnswer)
def call(site: Site, request: Request, given: dict[str, Any]) -> object:
    result = _session(site, request).call(given["tool"], given.get("args", {}))
    if result.code == BUSY:
        raise Problem(503, result.text)
    return CallAnswer(ok=result.ok, code=result.code, text=result.text, result=result.as_dict())


@Endpoint("POST", "/api/sessions/{session_id}/state", "What the session knows, as data", answers=StateShown)
def state(site: Site, request: Request, given: None) -> object:
    return _session(site, request).state()


@Endpoint(
    "GET",
    "/api/sessions/{session_id}/events",
    "The frames of a session, or a live stream of them",
    query={"after": int, "limit": Annotated[int, Meta(ge=1, le=_AFTER)]},
    headers={"Last-Event-ID": int},
    answers={200: {JSON: list[FrameShown], EVENT_STREAM: str}},
)
def events(site: Site, request: Request, given: None) -> object:
    session_id: str = request.path_params["session_id"]
    named = whole("after", query(request, "after"))
    last = whole("Last-Event-ID", request.headers.get("last-event-id"))
    after = last if last is not None else -1 if named is None else named
    after = max(-1, min(after, _AFTER))
    limit = whole("limit", query(request, "limit"))
    if limit is not None and not 0 < limit <= _AFTER:
        raise Problem(400, "limit must be at least 1")
    _find(site, session_id)
    if EVENT_STREAM in request.headers.get("accept", "") and request.method == "GET":
        return respond(site.feed.frames(session_id, after))
    return site.app.store.read(session_id, session_id, None, after, limit)


def _endpoint(kind: type[Operation[Any]]) -> Endpoint:
    """The endpoint of a session operation. Name, body and answer are those of the operation."""
    schema = _documented(kind)

    def perform(site: Site, request: Request, given: dict[str, Any]) -> object:
        session = _session(site, request)
        operation = kind.from_dict(given)
        return operation.data(session.perform(operation))

    return Endpoint(
        "POST",
        f"/api/sessions/{{session_id}}/{kind.operation}",
        inspect.getdoc(kind) or "",
        body=schema,
        body_required=bool(schema["required"]),
        answers={200: {JSON: result_schema(kind)}},
        handler=perform,
    )


def _documented(kind: type[Operation[Any]]) -> Schema:
    """The schema of an operation's body. A NUL is refused by the operation itself, so clients should know of it."""
    schema = fields_schema(kind)
    properties = dict(schema["properties"])
    for name in fields_without_nul(kind):
        known = properties[name]
        if known.get("type") == "array":
            properties[name] = {**known, "items": {**known["items"], "pattern": _NO_NUL}}
        elif known.get("type") == "string":
            properties[name] = {**known, "pattern": _NO_NUL}
    return {**schema, "properties": properties}


def endpoints() -> tuple[Endpoint, ...]:
    """All endpoints of a server, from all modules."""
    performing = (_endpoint(kind) for kind in OPERATIONS.values() if kind is not Call)
    own = (health, openapi, list_skills, show_skill, search, count_usage, begin, call, *performing, state, events, rpc)
    return (*own, *chat.ENDPOINTS)


# --- errors ---


def status_of(error: MetierError) -> tuple[int, str]:
    """The HTTP status and the stable code for an error of the runtime."""
    if isinstance(error, SkillNotFound) or code_of(error) == "NOT_FOUND":
        return 404, code_of(error)
    if isinstance(error, NoSuchChat):
        return 404, "NOT_FOUND"
    if isinstance(error, ChatBusy):
        return (503, BUSY) if error.here else (409, "CONFLICT")
    if isinstance(error, UnconfirmedAddress):
        return 409, "CONFIRM"  # a person has to confirm it; then it is sent again with `confirmed`
    if isinstance(error, ScriptRefused) and error.reason == "busy":
        return 503, BUSY
    if isinstance(error, StoreError):
        return (422, "INVALID_PARAM") if error.reason == "invalid" else (503, "STORE_UNAVAILABLE")
    if isinstance(error, BadArguments):
        return 400, "INVALID_PARAM"
    if isinstance(error, ConfigError | ModelUnavailable):
        return 422, "INVALID_PARAM"
    if isinstance(error, AmbiguousSkill):
        return 409, code_of(error)
    return 403 if isinstance(error, PolicyDenied) else 422, code_of(error)


def _handlers(site: Site) -> dict[Any, Callable[[Request, Any], Awaitable[Response]]]:
    hide_paths = site.hide_paths

    def page(request: Request, status: int, message: str) -> Response | None:
        """An error page for a browser; `None` for other clients."""
        if "text/html" not in request.headers.get("accept", ""):
            return None
        title = "Page not found" if status == 404 else "Something went wrong"
        return site.error(request, status, title, message, locked=False)

    async def problem(request: Request, error: Problem) -> Response:
        return refusal(error.status, error.code, hide_paths(error.message))

    async def runtime(request: Request, error: MetierError) -> Response:
        status, code = status_of(error)
        return refusal(status, code, hide_paths(str(error)))

    async def unforeseen(request: Request, error: Exception) -> Response:
        message = "something went wrong here; it is in the server's log"
        return page(request, 500, message) or refusal(500, "INTERNAL_ERROR", message)

    async def no_route(request: Request, error: HTTPException) -> Response:
        code = "NOT_FOUND" if error.status_code == 404 else "NOT_ALLOWED"
        shown = page(request, error.status_code, str(error.detail))
        return shown or refusal(error.status_code, code, str(error.detail), error.headers)

    return {Problem: problem, MetierError: runtime, HTTPException: no_route, Exception: unforeseen}


# --- the application ---


class Application(Starlette):
    """The ASGI application of one server. Call `end` before the server waits for its open streams to close."""

    site: Site
    mcp_mount: McpMount

    def end(self) -> None:
        self.site.feed.end()
        self.site.chats.end()
        self.mcp_mount.end()


def build(app: App, gate: Gate | None = None, *, runs: int = RUNS, watch: bool = True) -> Application:
    """Build the ASGI application. It runs up to `runs` scripts at a time.

    Without a gate, everyone who connects may use it; a gate with a token asks for the token. With `watch`, the catalog
    follows the disk, and MCP clients are notified of changes.
    """
    gate = gate or Gate()
    table = endpoints()
    site = Site(app, Access(app.store, gate.token), encode(document(table)))
    mcp_mount = McpMount(app, gate, watch=watch)
    disk = DiskWatcher(app) if watch and mcp_mount.missing else None  # MCP has its own watcher
    sandbox = scripts.default_runner(app.config.profile.run)
    if app.runner is None and sandbox is not None:
        app.runner = BoundedRunner(sandbox, runs)

    # Calls are the most frequent by far, and routes are tried in order.
    ordered = sorted(table, key=lambda one: one is not call)
    routes: list[BaseRoute] = [Route(one.path, partial(one.respond, site), methods=[one.method]) for one in ordered]
    routes.append(Route("/mcp", mcp_mount))
    routes += pages.routes(site)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        await site.feed.start()
        if disk is not None:
            disk.start()
        try:
            async with mcp_mount.lifespan():
                yield
        finally:
            await site.chats.close()
            await site.feed.stop()
            if disk is not None:
                await run_in_threadpool(disk.stop)

    built = Application(
        routes=routes,
        middleware=[Middleware(Guard, gate=gate, access=site.access)],
        exception_handlers=_handlers(site),
        lifespan=lifespan,
    )
    built.router.redirect_slashes = False  # a path with a trailing slash is a different path
    built.site, built.mcp_mount = site, mcp_mount
    return built
