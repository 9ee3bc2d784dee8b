"""Requests of the protocol become calls of a session, and what it returns becomes results.

Looking needs no session of the client's: listings come from one that records nothing. What a client does (a read, a
tool call, a prompt) goes through its own session, by the rules for a model: a skill hidden from models is not there.
"""

import base64
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError

from metier.app import App
from metier.errors import BinaryResource, MetierError, ResourceError
from metier.files.beneath import decode
from metier.files.urls import format_url, parse_url
from metier.mcp.clients import Context
from metier.mcp.manifest import DIRECTORY, Manifests, mime_type, parse_folder, served
from metier.mcp.wire import PAGE, TTL_MS, DirectoryParams, OperationParams, SkillParams, clean, failure, invalid, page
from metier.model import SKILL_FILE, Skill
from metier.rpc import read_operation
from metier.session.operation import Operation
from metier.session.session import Session

TEMPLATE = "skill://{name}/{+path}"
_COMPLETIONS = 100
_LOG = logging.getLogger("metier")
_T = TypeVar("_T")


class Handlers:
    """The methods of the protocol, by their names in it."""

    def __init__(self, app: App, page_size: int = PAGE) -> None:
        self.app, self.page_size = app, page_size
        self.manifests = Manifests()
        self._viewer: Session | None = None

    def viewer(self) -> Session:
        """A session to look with: it keeps no record, and nobody's loads are in it."""
        if self._viewer is None:
            self._viewer = self.app.skills().session(surface="mcp")
        return self._viewer

    async def _look(self, look: Callable[[Session], _T]) -> _T:
        return await self._work(lambda: look(self.viewer()), self.viewer)

    async def _work(self, work: Callable[[], _T], session: Callable[[], Session]) -> _T:
        """Run in a thread what may wait for a disk, a store or a script; errors get the protocol's form."""

        def guarded() -> _T:
            try:
                return work()
            except MCPError:
                raise
            except MetierError as error:
                raise failure(error, session()) from error
            except Exception as error:
                _LOG.exception("a request over MCP failed")
                raise MCPError(types.INTERNAL_ERROR, "Internal error") from error  # what it was stays here

        return await anyio.to_thread.run_sync(guarded)

    def _skill(self, session: Session, name: str, uri: str) -> Skill:
        skill = served(session).get(name)
        if skill is None:
            raise invalid(f"No skill is served at {uri}")
        return skill

    # --- the extension ---

    async def skills_list(self, _: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        def look(session: Session) -> dict[str, Any]:
            chosen, following = page(served(session), params.cursor, self.page_size)
            entries = [entry for skill in chosen if (entry := self.manifests.entry(skill)) is not None]
            return _complete({"skills": entries}) | ({"nextCursor": following} if following else {})

        return await self._look(look)

    async def skills_get(self, _: Context, params: SkillParams) -> dict[str, Any]:
        def look(session: Session) -> dict[str, Any]:
            name, path = parse_url(params.uri)
            entry = self.manifests.entry(self._skill(session, name, params.uri)) if path == SKILL_FILE else None
            if entry is None or not params.uri.endswith(f"/{SKILL_FILE}"):
                raise invalid(f"No skill is served at {params.uri}")
            return _complete({"skill": entry})

        return await self._look(look)

    async def directory_read(self, _: Context, params: DirectoryParams) -> dict[str, Any]:
        def look(session: Session) -> dict[str, Any]:
            name, folder = parse_folder(params.uri)
            try:
                children = self.manifests.children(self._skill(session, name, params.uri), folder)
            except ResourceError as error:
                raise invalid(f"{params.uri} is not a directory resource") from error
            inside = f"{folder}/" if folder else ""
            found = {
                child: self._child(name, inside + child, child, is_folder) for child, is_folder in children.items()
            }
            chosen, following = page(found, params.cursor, self.page_size * 10)
            shown = [child.model_dump(by_alias=True, mode="json", exclude_none=True) for child in chosen]
            return {"resultType": "complete", "resources": shown} | ({"nextCursor": following} if following else {})

        return await self._look(look)

    def _child(self, name: str, path: str, shown: str, is_folder: bool) -> types.Resource:
        kind = DIRECTORY if is_folder else mime_type(path)
        return types.Resource(uri=format_url(name, path), name=shown, mime_type=kind)

    # --- resources ---

    async def list_resources(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        def look(session: Session) -> types.ListResourcesResult:
            chosen, following = page(served(session), params.cursor if params else None, self.page_size)
            resources = [resource for skill in chosen for resource in self._resources(skill)]
            return types.ListResourcesResult(resources=resources, next_cursor=following)

        return await self._look(look)

    def _resources(self, skill: Skill) -> list[types.Resource]:
        files = self.manifests.files(skill)
        if not files:
            return []
        main, *others = files
        uri = format_url(skill.name, main)
        about = clean(skill.description)
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
        about = "A file of a skill; SKILL.md holds its instructions."
        template = types.ResourceTemplate(uri_template=TEMPLATE, name="skill-file", description=about)
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        session = await self._session(ctx)
        read = await self._work(lambda: session.read(uri, by="model", raw=True), lambda: session)
        data = read.data or b""  # what the digest is of, even where the host's own read would give another text
        content: types.TextResourceContents | types.BlobResourceContents
        try:
            text = decode(data, read.path, partial=False)
            content = types.TextResourceContents(uri=uri, mime_type=mime_type(read.path), text=text)
        except BinaryResource:
            kind, blob = mime_type(read.path, binary=True), base64.b64encode(data).decode()
            content = types.BlobResourceContents(uri=uri, mime_type=kind, blob=blob)
        return types.ReadResourceResult(contents=[content], _meta=self._tag(ctx, session))

    # --- tools ---

    async def list_tools(self, _ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        def look(session: Session) -> types.ListToolsResult:
            runs = session.offered().get("run")
            tools = [
                types.Tool(
                    name=tool.name,
                    description=clean(tool.description),
                    input_schema=clean(tool.input_schema),
                    annotations=types.ToolAnnotations(read_only_hint=tool.name != runs, open_world_hint=False),
                )
                for tool in session.tools()
            ]
            return types.ListToolsResult(tools=tools)

        return await self._look(look)

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        session = await self._session(ctx)
        result = await self._work(lambda: session.call(params.name, params.arguments), lambda: session)
        return types.CallToolResult(
            content=[types.TextContent(text=clean(result.text))],
            structured_content=clean(result.as_dict()),
            is_error=not result.ok,
            _meta=self._tag(ctx, session),
        )

    # --- prompts ---

    async def list_prompts(self, _: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        def look(session: Session) -> types.ListPromptsResult:
            chosen, following = page(_prompts(session), params.cursor if params else None, self.page_size)
            return types.ListPromptsResult(prompts=[_prompt(skill) for skill in chosen], next_cursor=following)

        return await self._look(look)

    async def get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        session = await self._session(ctx)
        text = (params.arguments or {}).get("arguments", "")
        name = params.name.removeprefix("/")

        def invoke() -> types.GetPromptResult:
            skill = _prompts(session).get(name)
            if skill is None:
                raise invalid(f"there is no prompt {params.name!r}")
            said = types.TextContent(text=clean(_invoke(session, name, text)))
            message = types.PromptMessage(role="user", content=said)
            return types.GetPromptResult(
                description=clean(skill.description), messages=[message], _meta=self._tag(ctx, session)
            )

        return await self._work(invoke, lambda: session)

    # --- operations that the protocol has no method for ---

    def operation(self, kind: type[Operation[Any]]) -> Callable[[Context, OperationParams], Awaitable[dict[str, Any]]]:
        """The handler of `metier/<operation>`: any operation of the session, for hosts that know them."""

        async def handler(ctx: Context, params: OperationParams) -> dict[str, Any]:
            session = await self._session(ctx)
            given = params.model_dump(exclude={"meta", "_meta"}, exclude_none=True)

            def work() -> object:
                operation = read_operation(kind, given)
                return operation.data(session.perform(operation))

            result = await self._work(work, lambda: session)
            tag = self._tag(ctx, session)
            data = clean(result if _is_object(result) else {kind.operation: result})
            return {"resultType": "complete", **data} | ({"_meta": tag} if tag else {})

        return handler

    # --- completion ---

    async def complete(self, _: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        given = params.context.arguments if params.context and params.context.arguments else {}

        def look(session: Session) -> types.CompleteResult:
            skills = served(session)
            candidates: list[str] = list(skills)
            if isinstance(params.ref, types.ResourceTemplateReference) and params.argument.name == "path":
                skill = skills.get(given.get("name", ""))
                candidates = self.manifests.files(skill) if skill is not None else []
            fitting = sorted(value for value in candidates if value.startswith(params.argument.value))
            shown, more = fitting[:_COMPLETIONS], len(fitting) > _COMPLETIONS
            return types.CompleteResult(completion=types.Completion(values=shown, total=len(fitting), has_more=more))

        return await self._look(look)

    # --- the client ---

    async def _session(self, ctx: Context) -> Session:
        return await self._work(lambda: ctx.lifespan_context.session(ctx), self.viewer)

    def _tag(self, ctx: Context, session: Session) -> Any:
        return ctx.lifespan_context.tag(ctx, session)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _complete(result: dict[str, Any]) -> dict[str, Any]:
    return {"resultType": "complete", **result, "ttlMs": TTL_MS, "cacheScope": "public"}


def _prompts(session: Session) -> dict[str, Skill]:
    """Skills that a user may call. Who sent a request cannot be told, so what models may not see is not offered."""
    return {name: skill for name, skill in served(session).items() if skill.user_invocable}


def _prompt(skill: Skill) -> types.Prompt:
    hint = skill.frontmatter.get("argument-hint")
    about = hint if isinstance(hint, str) else "What the skill should work on."
    argument = types.PromptArgument(name="arguments", description=clean(about), required=False)
    return types.Prompt(name=skill.name, description=clean(skill.description), arguments=[argument])


def _invoke(session: Session, name: str, arguments: str) -> str:
    """What the user's command gives in the profile's grammar; where it only names the skill, what loading it gives."""
    form = session.command_form
    if form and session.profile.invocation.loads:
        invocation = session.invoke(f"{form.replace('name', name)} {arguments}".rstrip())
        if invocation.loaded is not None:
            return invocation.loaded.text
    return session.load(name, arguments=arguments).text
