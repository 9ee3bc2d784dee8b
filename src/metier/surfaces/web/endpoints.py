"""Endpoints of the HTTP API, the checks of their requests, and the OpenAPI document of a table of endpoints.

An endpoint declares its input as JSON Schema. The same schema checks the requests and appears in the document, so the
two cannot differ. All errors have the shape `{"error": {"code", "message"}}`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from inspect import iscoroutinefunction
from typing import Any, Final, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from metier import __version__
from metier.files.json_text import parse_json
from metier.policy.asking import awaited
from metier.surfaces.web.site import Site, encode
from metier.values.value import JsonObject, Schema, Value, counted, mismatch, schema_of

JSON: Final = "application/json"


class ErrorTold(Value):
    code: str
    message: str


class ErrorAnswer(Value):
    error: ErrorTold


_CODES: Final = {400: "INVALID_PARAM", 404: "NOT_FOUND", 409: "CONFLICT", 422: "INVALID_PARAM", 503: "BUSY"}


class Problem(Exception):
    """A request that cannot be answered: the status, a stable code, and a message that says what to do.

    400 does not fit the endpoint. 422 is well-formed and cannot be done. With 404 there is no such thing, with 409 its
    state does not allow it, and with 503 the same request may succeed later.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status, self.code, self.message = status, _CODES[status], message
        super().__init__(message)


Handler = Callable[[Site, Request, Any], object]
"""Gets the body, if the endpoint has one: checked JSON, or bytes. Returns the data of the answer, or a `Response`.

One that is no coroutine function is called in a worker thread.
"""


def _schemas(declared: Mapping[str, Any]) -> dict[str, Schema]:
    """The schemas of types. What is a schema stays one."""
    return {name: hint if isinstance(hint, Mapping) else schema_of(hint) for name, hint in declared.items()}


def _unhandled(site: Site, request: Request, given: Any) -> object:
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One operation: its path, its input and its answers. It decorates its handler.

    `{parts}` of the path are parameters. `query`, `headers` and `body` are declared as types, or as schemas. `answers`
    is the type of a JSON answer, or maps each success status to its content types and their types. An empty mapping is
    an answer without content.
    """

    method: str
    path: str
    summary: str
    _: KW_ONLY
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    required_query: tuple[str, ...] = ()
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None
    """An empty one is that of bytes, which the handler gets as they are."""
    body_required: bool = True
    body_type: str = JSON
    answers: Any = JsonObject
    open: bool = False
    """Whether it works without a token."""
    refusals: Mapping[int, str] = field(default_factory=dict[int, str])
    """The errors that only this operation has, by status."""
    handler: Handler = _unhandled

    def __post_init__(self) -> None:
        given: object = self.answers
        answered: Mapping[int, Mapping[str, Any]] = {200: {JSON: given}}
        if isinstance(given, Mapping):
            answered = cast("Mapping[int, Mapping[str, Any]]", given)
        declared = {
            "query": _schemas(self.query),
            "headers": _schemas(self.headers),
            "body": self.body if self.body is None else _schemas({"": self.body})[""],
            "answers": {status: _schemas(content) for status, content in answered.items()},
        }
        for name, schemas in declared.items():
            object.__setattr__(self, name, schemas)

    def __call__(self, handler: Handler) -> "Endpoint":
        return replace(self, handler=handler)

    async def respond(self, site: Site, request: Request) -> Response:
        given: object = None
        if self.body is not None:
            given = await (json_body(request, self) if self.body else raw_body(request))
        if iscoroutinefunction(self.handler):
            result: object = await self.handler(site, request, given)
        else:
            with awaited():
                result = await run_in_threadpool(self.handler, site, request, given)
        if isinstance(result, Response):
            return result
        status = next(iter(self.answers))
        data = result.as_dict() if isinstance(result, Value) else result
        return answer(site.hide_paths(data), status) if self.answers[status] else Response(status_code=status)

    @property
    def name(self) -> str:
        """The operation's id, stable across versions of the document."""
        return "_".join((self.method.lower(), *(part.strip("{}") for part in self.path.split("/") if part)))

    @property
    def parameters(self) -> list[str]:
        return [part.strip("{}") for part in self.path.split("/") if part.startswith("{")]


# --- requests ---


def query(request: Request, key: str) -> str | None:
    """A query parameter, or `None`."""
    given = request.query_params.getlist(key)
    if len(given) > 1:
        raise Problem(400, f"{key} is given several times")
    return given[0] if given else None


_DIGITS: Final = 4_000
"""A little below the longest text that Python converts to a number."""


def whole(key: str, given: str | None) -> int | None:
    """Parse a whole number. `None` if none was given."""
    if given is None:
        return None
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        raise Problem(400, f"{key} must be a whole number")
    return int(given)


async def raw_body(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise Problem(400, "the body was cut off") from error


async def json_body(request: Request, endpoint: Endpoint) -> dict[str, Any]:
    """The body, checked against the endpoint's schema. If no body is required, an empty one is an empty object."""
    data = await raw_body(request)
    if not data and not endpoint.body_required:
        return {}
    try:
        value: Any = parse_json(data)
        if not data.isascii() or b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Problem(400, "the body holds half a surrogate pair; send whole characters") from error
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from error
    wrong = mismatch(value, endpoint.body or {}, "the body")
    if wrong:
        raise Problem(400, wrong)
    body: Schema = endpoint.body or {}
    properties: Mapping[str, Schema] = body.get("properties", {})
    return {key: counted(item, properties.get(key, {})) for key, item in cast("dict[str, Any]", value).items()}


# --- answers ---


def answer(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(data), status, headers, JSON)


def refusal(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return answer({"error": {"code": code, "message": message}}, status, headers)


# --- the document ---

_ALWAYS: Final[Mapping[int, str]] = {
    403: "refused: another site asks, or policy says no",
    421: "the server does not answer to that name",
    503: "too much is under way, the store is away, or the server is ending",
}
_WITH_BODY: Final[Mapping[int, str]] = {413: "the body is too large"}


def document(table: Iterable[Endpoint]) -> dict[str, Any]:
    """The OpenAPI document of a table."""
    paths: dict[str, Any] = {}
    for endpoint in table:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _described(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Metier",
            "version": __version__,
            "description": "The runtime for Agent Skills. The Model Context Protocol is spoken at /mcp besides.",
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": schema_of(ErrorAnswer)},
        },
        "paths": paths,
    }


def _described(endpoint: Endpoint) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in endpoint.parameters
    ]
    for place, given in (("query", endpoint.query), ("header", endpoint.headers)):
        parameters += [
            {"name": name, "in": place, "required": name in endpoint.required_query, "schema": schema}
            for name, schema in given.items()
        ]
    described: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": endpoint.name,
        "parameters": parameters,
        "responses": _responses(endpoint),
        "security": [] if endpoint.open else [{}, {"token": []}],
    }
    if endpoint.body is not None:
        described["requestBody"] = {
            "required": endpoint.body_required,
            "content": {endpoint.body_type: {"schema": endpoint.body}},
        }
    return described


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    refusals = dict(_ALWAYS)
    if not endpoint.open:
        refusals[401] = "a valid token is needed"
    if endpoint.query or endpoint.headers or endpoint.body is not None:
        refusals[400] = "the request does not fit"
    if endpoint.parameters:
        refusals |= {404: "there is no such thing", 409: "it is not the time for it, or the name is ambiguous"}
        refusals |= {422: "the runtime refuses"}
    if endpoint.body is not None:
        refusals |= {**_WITH_BODY, 404: "there is no such thing", 422: "the runtime refuses"}
    refusals |= endpoint.refusals
    responses: dict[str, Any] = {
        str(status): {"description": "done"}
        | ({"content": {kind: {"schema": schema} for kind, schema in content.items()}} if content else {})
        for status, content in endpoint.answers.items()
    }
    shape = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status, description in sorted(refusals.items()):
        responses.setdefault(str(status), {"description": description, "content": shape})
    return responses
