"""The request handlers: each calls a session and formats its answer as a result of the protocol.

Listings come from a session that records nothing. Reads, tool calls and prompts go through the client's own session,
under the rules for a model: a client never sees a skill that is hidden from models.

A path may hold bytes that are not UTF-8, and a frontmatter may hold a number that JSON cannot express; writing either
would break the connection. Every such value passes through `storable_text` or `storable_table` before it is sent.
"""

import base64
import binascii
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from metier import limits
from metier.app import App
from metier.errors import (
    AmbiguousSkill,
    BadArguments,
    BinaryResource,
    InvalidSkill,
    MetierError,
    PolicyDenied,
    ResourceError,
    SkillNotFound,
    StoreError,
)
from metier.files.beneath import decode
from metier.files.shapes import is_dict, is_table
from metier.files.text import storable_table, storable_text
from metier.files.urls import format_url, parse_url
from metier.policy.asking import awaited
from metier.record.offers import SkillOffer
from metier.session.operation import Operation
from metier.session.operations import Call, Confirm, Invoke, Load, Read
from metier.session.session import Session
from metier.session.tools import code_of
from metier.surfaces.mcp import catalog_text
from metier.surfaces.mcp.catalog_text import CatalogText
from metier.surfaces.mcp.clients import Context, asking, can_ask
from metier.surfaces.mcp.manifest import DIRECTORY, Manifests, mime_type, parse_folder, served
from metier.surfaces.rpc import read_operation
from metier.values.results import Loaded, Request
from metier.values.skill import SKILL_FILE, Skill

REFUSED: Final = -32000
"""The error code for a request that policy denies or the runtime cannot perform; `data` holds the error type."""

TTL_MS: Final = 300_000
"""How long a listing stays current. Changes are announced as well."""

PAGE: Final = 100
"""The number of skills on one page of a listing."""

_CURSOR: Final = "after:"
_T = TypeVar("_T")


class SkillParams(types.RequestParams):
    """Parameters of `skills/get`."""

    uri: str


class DirectoryParams(types.PaginatedRequestParams):
    """Parameters of `resources/directory/read`."""

    uri: str


class OperationParams(types.InputResponseRequestParams):
    """Parameters of `metier/<operation>`: the fields of the operation, which it checks itself."""

    model_config = ConfigDict(extra="allow")


def page(items: Mapping[str, _T], cursor: str | None, size: int) -> tuple[list[_T], str | None]:
    """The items after the cursor, in the order of their names, and the cursor of the next page.

    A cursor names the last item of a page instead of a position, so a change between two pages moves no item.
    """
    after = _decode(cursor)
    names = sorted(name for name in items if after is None or name > after)
    chosen = names[:size]
    return [items[name] for name in chosen], _encode(chosen[-1]) if len(names) > size else None


def _encode(name: str) -> str:
    return base64.urlsafe_b64encode(f"{_CURSOR}{name}".encode()).decode()


def _decode(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise invalid("invalid cursor") from error
    if not text.startswith(_CURSOR):
        raise invalid("invalid cursor")
    return text.removeprefix(_CURSOR)


def invalid(message: str) -> MCPError:
    """The error for invalid parameters: an unknown uri, an invalid cursor."""
    return MCPError(types.INVALID_PARAMS, storable_text(message))


def failure(error: MetierError, session: Session) -> MCPError:
    """An error of the runtime as an error of the protocol, with a message that hides what the profile hides."""
    unknown = isinstance(error, SkillNotFound | AmbiguousSkill | InvalidSkill | ResourceError | BadArguments)
    data: dict[str, object] = {"type": type(error).__name__, "code": code_of(error)}
    if isinstance(error, ResourceError | StoreError):
        data["reason"] = error.reason
    if isinstance(error, PolicyDenied):
        data["tool"] = error.tool
    code = types.INVALID_PARAMS if unknown else REFUSED
    return MCPError(code, storable_text(session.explain(error)), storable_table(data))


def about(uri: str, error: MCPError) -> MCPError:
    """The error, with the uri of the resource that it is about, as the protocol asks."""
    data = error.error.data if is_table(error.error.data) else {}
    return MCPError(error.code, error.message, {**data, "uri": storable_text(uri)})


# --- the handlers ---


TEMPLATE = "skill://{name}/{+path}"
RESULT_KEY = "metier/result"
"""The key in `_meta` of a tool's result that holds the data of the result, without bodies.

The data is not structured content, because Claude Code, Codex, OpenCode and VS Code then show it to the model instead
of the text.
"""
_BODIES = frozenset(("text", "content", "body", "stdout", "stderr", "base64"))
"""The keys of results whose values the text has already."""
_COMPLETIONS = 100
_LOG = logging.getLogger("metier")
_P = TypeVar("_P")


def _listing(
    make: "Callable[[Handlers, Session, _P], _T]",
) -> "Callable[[Handlers, Context, _P], Coroutine[Any, Any, _T]]":
    """Make a method that lists something the handler of a request: it runs in a thread, on a session without record."""

    @functools.wraps(make)
    async def handler(self: "Handlers", _: Context, params: _P) -> _T:
        return await self.with_listing_session(lambda session: make(self, session, params))

    return handler


class Handlers:
    """One method for each request of the protocol."""

    def __init__(self, app: App, page_size: int = PAGE) -> None:
        self.app, self.page_size = app, page_size
        self.manifests = Manifests()
        self._unrecorded: Session | None = None
        self._offers: dict[str, SkillOffer] = {}
        """The lists of skills that clients are shown now, by their place. All clients are shown the same."""
        self._waiting = anyio.CapacityLimiter(limits.OPEN_QUESTIONS)
        """For calls that may wait for a person, so that they leave the other threads to the other calls."""

    def _listing_session(self) -> Session:
        """The session for listings. It keeps no record and loads no skill."""
        if self._unrecorded is None:
            self._unrecorded = self.app.skills().session(surface="mcp", only=self.app.defaults.get("only"))
        return self._unrecorded

    async def with_listing_session(self, make: Callable[[Session], _T]) -> _T:
        return await self._in_thread(lambda: make(self._listing_session()), self._listing_session)

    async def _asked(
        self,
        ctx: Context,
        session: Session,
        params: types.InputResponseRequestParams,
        operation: Callable[[], Operation[Any]],
        work: Callable[[], _T],
    ) -> _T | types.InputRequiredResult:
        """Run work whose operation may have questions to the client, or return the questions to it."""

        def answer() -> _T | types.InputRequiredResult:
            def questions() -> Sequence[Request]:
                return session.questions(operation())

            with asking(ctx.session, ctx.request_id, params.input_responses, questions) as first:
                return first if first is not None else work()

        return await self._in_thread(answer, lambda: session, self._waiting if can_ask(ctx.session) else None)

    async def _in_thread(
        self,
        work: Callable[[], _T],
        session: Callable[[], Session],
        limiter: anyio.CapacityLimiter | None = None,
    ) -> _T:
        """Run work in a thread, because it may wait for a disk, a store or a script. Convert its errors."""

        def guarded() -> _T:
            try:
                return work()
            except MCPError:
                raise
            except MetierError as error:
                raise failure(error, session()) from error
            except Exception as error:
                _LOG.exception("a request over MCP failed")
                raise MCPError(types.INTERNAL_ERROR, "Internal error") from error  # clients see no details

        with awaited():
            return await anyio.to_thread.run_sync(guarded, limiter=limiter)

    def _skill(self, session: Session, name: str, uri: str) -> Skill:
        skill = served(session).get(name)
        if skill is None:
            raise invalid(f"no skill is served at {uri}")
        return skill

    async def instructions(self) -> str:
        """What a client tells its model about this server."""
        limit = self.app.config.mcp.instructions_chars
        return await self.with_listing_session(lambda session: self._offered(catalog_text.instructions(session, limit)))

    def _offered(self, shown: CatalogText) -> str:
        """The text for a client. What it offers is recorded in the session of the client, once that has begun."""
        if shown.offer is not None:
            self._offers[shown.offer.place] = shown.offer
        return storable_text(shown.text)

    # --- the extension ---

    @_listing
    def skills_list(self, session: Session, params: types.PaginatedRequestParams) -> dict[str, object]:
        chosen, following = page(served(session), params.cursor, self.page_size)
        entries = [entry for skill in chosen if (entry := self.manifests.entry(skill)) is not None]
        return _listing_result({"skills": entries}) | _next_page(following)

    @_listing
    def skills_get(self, session: Session, params: SkillParams) -> dict[str, object]:
        name, path = parse_url(params.uri)
        entry = self.manifests.entry(self._skill(session, name, params.uri)) if path == SKILL_FILE else None
        if entry is None or not params.uri.endswith(f"/{SKILL_FILE}"):
            raise invalid(f"no skill is served at {params.uri}")
        return _listing_result({"skill": entry})

    @_listing
    def directory_read(self, session: Session, params: DirectoryParams) -> dict[str, object]:
        name, folder = parse_folder(params.uri)
        try:
            children = self.manifests.children(self._skill(session, name, params.uri), folder)
        except ResourceError as error:
            raise invalid(f"{params.uri} is not a directory resource") from error
        inside = f"{folder}/" if folder else ""
        found = {child: self._child(name, inside + child, child, is_folder) for child, is_folder in children.items()}
        chosen, following = page(found, params.cursor, self.page_size * 10)
        shown = [child.model_dump(by_alias=True, mode="json", exclude_none=True) for child in chosen]
        result: dict[str, object] = {"resultType": "complete", "resources": shown}
        return result | _next_page(following)

    def _child(self, name: str, path: str, shown: str, is_folder: bool) -> types.Resource:
        kind = DIRECTORY if is_folder else mime_type(path)
        return types.Resource(uri=format_url(name, path), name=shown, mime_type=kind)

    # --- resources ---

    @_listing
    def list_resources(
        self, session: Session, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        chosen, following = page(served(session), params.cursor if params else None, self.page_size)
        resources = [resource for skill in chosen for resource in self._resources(skill)]
        return types.ListResourcesResult(resources=resources, next_cursor=following)

    def _resources(self, skill: Skill) -> list[types.Resource]:
        files = self.manifests.files(skill)
        if not files:
            return []
        main, *others = files
        uri = format_url(skill.name, main)
        about = storable_text(skill.description)
        return [
            types.Resource(uri=uri, name=skill.name, description=about, mime_type=mime_type(main), size=skill.size),
            *(
                types.Resource(uri=format_url(skill.name, path), name=f"{skill.name}/{path}", mime_type=mime_type(path))
                for path in others
            ),
        ]

    async def list_templates(
        self, _ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        about = "A file of a skill. SKILL.md holds its instructions."
        template = types.ResourceTemplate(uri_template=TEMPLATE, name="skill-file", description=about)
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        uri = str(params.uri)
        session = await self._session(ctx)
        operation = Read(name=uri, by="model", raw=True)
        try:
            read = await self._asked(ctx, session, params, lambda: operation, lambda: session.perform(operation))
        except MCPError as error:
            raise about(uri, error) from error
        if isinstance(read, types.InputRequiredResult):
            return read
        data = read.data or b""  # the bytes of the digest, even if the host's own read returns other text
        content: types.TextResourceContents | types.BlobResourceContents
        try:
            text = decode(data, read.path, partial=False)
            content = types.TextResourceContents(uri=uri, mime_type=mime_type(read.path), text=text)
        except BinaryResource:
            kind, blob = mime_type(read.path, binary=True), base64.b64encode(data).decode()
            content = types.BlobResourceContents(uri=uri, mime_type=kind, blob=blob)
        return types.ReadResourceResult(contents=[content], _meta=_meta(ctx, session))

    # --- tools ---

    @_listing
    def list_tools(self, session: Session, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        runs = session.offered(wire=True).get("run")
        limit = self.app.config.mcp.description_chars
        tools = [
            types.Tool(
                name=tool.name,
                description=self._offered(catalog_text.description(session, tool, limit)),
                input_schema=storable_table(tool.input_schema),
                annotations=types.ToolAnnotations(read_only_hint=tool.name != runs, open_world_hint=False),
            )
            for tool in session.tools(wire=True)
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        session = await self._session(ctx)
        operation = Call(tool=params.name, arguments=params.arguments)
        result = await self._asked(ctx, session, params, lambda: operation, lambda: session.perform(operation))
        if isinstance(result, types.InputRequiredResult):
            return result
        return types.CallToolResult(
            content=[types.TextContent(text=storable_text(result.text))],
            is_error=not result.ok,
            _meta=(_meta(ctx, session) or {}) | {RESULT_KEY: storable_table(_without_bodies(result.data, result.text))},
        )

    # --- prompts ---

    @_listing
    def list_prompts(self, session: Session, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        chosen, following = page(_prompts(session), params.cursor if params else None, self.page_size)
        return types.ListPromptsResult(prompts=[_prompt(skill) for skill in chosen], next_cursor=following)

    async def get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        session = await self._session(ctx)
        text = (params.arguments or {}).get("arguments", "")
        name = params.name.removeprefix("/")

        def invoke() -> types.GetPromptResult:
            skill = _prompts(session).get(name)
            if skill is None:
                raise invalid(f"no prompt {params.name!r}")
            content = types.TextContent(text=storable_text(_invoke(session, name, text).text))
            message = types.PromptMessage(role="user", content=content)
            return types.GetPromptResult(
                description=storable_text(skill.description), messages=[message], _meta=_meta(ctx, session)
            )

        return await self._asked(ctx, session, params, lambda: _model_load(name, text), invoke)

    # --- operations that the protocol has no method for ---

    def operation(self, kind: type[Operation[Any]]) -> Callable[[Context, OperationParams], Awaitable[dict[str, Any]]]:
        """The handler of `metier/<operation>`: any operation of the session, for hosts that know them."""

        async def handler(ctx: Context, params: OperationParams) -> dict[str, Any]:
            session = await self._session(ctx)
            given = params.model_dump(exclude={"meta", "_meta", "input_responses", "request_state"}, exclude_none=True)

            def work() -> object:
                operation = read_operation(kind, given)
                return operation.data(session.perform(operation))

            result = await self._asked(ctx, session, params, lambda: read_operation(kind, given), work)
            if isinstance(result, types.InputRequiredResult):
                return result.model_dump(by_alias=True, mode="json", exclude_none=True)
            return _own_result(ctx, session, result if is_dict(result) else {kind.operation: result})

        return handler

    # --- completion ---

    @_listing
    def complete(self, session: Session, params: types.CompleteRequestParams) -> types.CompleteResult:
        skills = served(session)
        candidates: list[str] = list(skills)
        if isinstance(params.ref, types.ResourceTemplateReference) and params.argument.name == "path":
            given = params.context.arguments if params.context and params.context.arguments else {}
            skill = skills.get(given.get("name", ""))
            candidates = self.manifests.files(skill) if skill is not None else []
        fitting = sorted(value for value in candidates if value.startswith(params.argument.value))
        shown, more = fitting[:_COMPLETIONS], len(fitting) > _COMPLETIONS
        return types.CompleteResult(completion=types.Completion(values=shown, total=len(fitting), has_more=more))

    # --- the client ---

    async def _session(self, ctx: Context) -> Session:
        def begin() -> Session:
            session = ctx.lifespan_context.session(ctx)
            for offer in tuple(self._offers.values()):
                session.offer(offer)
            return session

        return await self._in_thread(begin, self._listing_session)


def _meta(ctx: Context, session: Session) -> dict[str, object] | None:
    return ctx.lifespan_context.result_meta(ctx, session)


def _without_bodies(data: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The data of a result, in any host's shape, without what its text says."""
    kept = {
        key: value for key, value in data.items() if value != text and not (key in _BODIES and isinstance(value, str))
    }
    return {key: _without_bodies(value, text) if is_table(value) else value for key, value in kept.items()}


def _own_result(ctx: Context, session: Session, result: Mapping[Any, object]) -> dict[str, object]:
    meta = _meta(ctx, session)
    return {"resultType": "complete", **storable_table(result)} | ({"_meta": meta} if meta else {})


def _next_page(cursor: str | None) -> dict[str, object]:
    return {"nextCursor": cursor} if cursor else {}


def _listing_result(result: dict[str, object]) -> dict[str, object]:
    return {"resultType": "complete", **result, "ttlMs": TTL_MS, "cacheScope": "public"}


def _prompts(session: Session) -> dict[str, Skill]:
    """The skills that a user may call.

    A model may send the request as well as a user, so skills that are hidden from models are left out.
    """
    return {name: skill for name, skill in served(session).items() if skill.user_invocable}


def _prompt(skill: Skill) -> types.Prompt:
    hint = skill.frontmatter.get("argument-hint")
    about = hint if isinstance(hint, str) else "What the skill should work on."
    argument = types.PromptArgument(name="arguments", description=storable_text(about), required=False)
    return types.Prompt(name=skill.name, description=storable_text(skill.description), arguments=[argument])


def _invoke(session: Session, name: str, arguments: str) -> Loaded:
    """Call a skill as the user's command in the profile's grammar does; where that only names the skill, load it.

    A model may send the request as well as a user, so policy is asked as for a model's load.
    """
    load, form = _model_load(name, arguments), session.command_form
    if not form or not session.profile.invocation.loads:
        return session.perform(load)
    if questions := session.questions(load):
        session.perform(Confirm(asked=questions))
    command = f"{form.replace('name', name)} {arguments}".rstrip()
    return session.perform(Invoke(message=command)).loaded or session.perform(load)


def _model_load(name: str, arguments: str) -> Load:
    return Load(name=name, arguments=arguments, by="model")
