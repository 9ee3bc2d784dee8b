"""The operations of a session, each a frozen value: what it takes, what it does and asks for that, and what it returns.

Everything else is derived from these values. A session performs them, a replay performs recorded ones again, approvals
are what `perform` yields, and JSON-RPC, HTTP, MCP and the tool calls of a model build them from data. A new field is
declared here and nowhere else. The record has an operation by its name and fields, so these never change their meaning.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, cast

from metier import limits
from metier.errors import BadArguments, ResourceError
from metier.files import beneath, urls
from metier.files.digests import FILE_PATTERN, NAME_PATTERN, digest_of
from metier.files.globs import PATTERN as GLOB_PATTERN
from metier.files.globs import is_inside
from metier.files.text import without_torn
from metier.hosts.formats import Text
from metier.policy.rules import skill_request
from metier.record.events import ResourceRefused, SkillInvoked, SkillsSearched, SkillWarning
from metier.session import mentions, recall, tools
from metier.session.context import SessionContext, Steps
from metier.session.load import load, read_whole
from metier.session.operation import Operation, about, fields_of_models, parameters
from metier.session.queries import CatalogPrompt, Choose, Commands, MayUse, SystemPrompt
from metier.session.visibility import By
from metier.values.results import (
    Compaction,
    Invocation,
    Loaded,
    Request,
    Resource,
    RunResult,
    SearchResult,
    Tool,
    ToolResult,
    Unloaded,
)
from metier.values.skill import SKILL_FILE, Role, Skill
from metier.values.value import JsonObject, Schema, Value, plain

_By = Annotated[By, about("Who asks. For a model, what is hidden from models does not exist.", model=False)]


# --- loading and reading ---


class Load(Operation[Loaded], kw_only=True):
    """Load a skill"""

    operation: ClassVar[str] = "load"
    rescans: ClassVar[bool] = True

    name: Annotated[str | None, about("The name of the skill.")] = None
    path: Annotated[str | None, about("The path of its SKILL.md, where the name is not enough.")] = None
    arguments: Annotated[str, about("What the skill should work on.", nul=True)] = ""
    parent: Annotated[str | None, about("The skill that asks for this one, if one does.")] = None
    by: _By = "user"

    def perform(self, context: SessionContext) -> Steps[Loaded]:
        skill = context.visibility.find(self.name, self.path, self.by)
        yield skill_request("skill_load", skill, skill.path)
        yield from context.file_requests(skill)
        yield
        return load(context, skill, by=self.by, arguments=self.arguments, parent=self.parent)


class Read(Operation[Resource], kw_only=True):
    """Read a file of a skill"""

    operation: ClassVar[str] = "read"
    rescans: ClassVar[bool] = True

    name: Annotated[str, about("The name of the skill, or a skill:// URL.", minLength=1)]
    path: Annotated[str | None, about("The file, relative to the skill's folder.")] = None
    by: _By = "user"
    raw: Annotated[bool, about("Return the bytes as they are, whole, of any kind of file.", model=False)] = False

    def perform(self, context: SessionContext) -> Steps[Resource]:
        name, path = urls.parse_url(self.name) if self.path is None else (self.name, self.path)
        skill = context.visibility.find(name, None, self.by)
        try:
            return (yield from self._read(context, skill, path))
        except ResourceError as error:
            redact = context.policy.redact
            context.recorder.note(ResourceRefused(skill.name, redact(path), error.reason, redact(str(error))))
            raise

    def _read(self, context: SessionContext, skill: Skill, path: str) -> Steps[Resource]:
        relative = beneath.check_relative(path, context.profile.resources.parents)
        whole = relative == SKILL_FILE
        loads = whole and not context.profile.tools.load  # hosts without a tool for it load a skill by reading it
        if whole:
            yield skill_request("skill_load", skill, skill.path)  # its body is in there
        yield skill_request("skill_read", skill, relative)
        yield from context.file_requests(skill, relative)
        yield
        if loads:
            return self._load(context, skill)
        if whole:
            return read_whole(context, skill, path, by=self.by, raw=self.raw)
        return context.reader.whole(skill, relative) if self.raw else context.reader.text(skill, path, relative)

    def _load(self, context: SessionContext, skill: Skill) -> Resource:
        loaded = load(context, skill, by=self.by)
        data = context.world.files.skill_file(skill, limits.WHOLE_FILE_BYTES).data if self.raw else None
        if data is not None and digest_of(data) != loaded.digest:
            raise ResourceError("it changed while it was read; try again", path=SKILL_FILE, reason="changed")
        return Resource(
            skill=skill,
            path=SKILL_FILE,
            text=loaded.text,
            mime="text/markdown",
            size=loaded.size,
            truncated=loaded.truncated,
            digest=loaded.digest,
            data=data,
        )


class Search(Operation[SearchResult], kw_only=True):
    """Search the catalog, as a step of the session"""

    operation: ClassVar[str] = "search"
    rescans: ClassVar[bool] = True

    query: Annotated[str, about("A name, a path, or words that say what is needed.", nul=True)]
    limit: Annotated[int | None, about("How many to return.")] = None
    scope: Annotated[str | None, about("Only skills of this scope.")] = None
    context: Annotated[
        str | None,
        about("Optional context with little weight: languages, names of files, earlier requests.", nul=True),
    ] = None
    by: _By = "user"

    def perform(self, context: SessionContext) -> Steps[SearchResult]:
        yield Request("skill_search")
        yield
        context.visibility.notice()
        among = context.visibility.findable() if self.by == "model" else None
        result = context.skills.search(
            self.query, limit=self.limit, scope=self.scope, among=among, context=self.context
        )
        data = json.dumps(result.recorded()).encode()
        digest = digest_of(data)
        found = SkillsSearched(context.policy.redact(self.query), result.count, digest, result.truncated)
        context.recorder.note(found, artifacts={digest: data})
        return result


class Run(Operation[RunResult], kw_only=True):
    """Run a script of a skill in the sandbox"""

    operation: ClassVar[str] = "run"
    rescans: ClassVar[bool] = True

    name: Annotated[str, about("The name of the skill.", minLength=1)]
    script: Annotated[str, about("The script, such as scripts/check.py.", minLength=1)]
    arguments: Annotated[Sequence[str], about("Its arguments, one item each.")] = ()
    stdin: Annotated[str | None, about("What it reads from standard input.", nul=True)] = None
    files: Annotated[
        Mapping[str, str | bytes] | None,
        about(
            "Files to put into its current folder, by name: the content as base64, or its digest in the record.",
            model=False,
            additionalProperties={"type": "string", "pattern": FILE_PATTERN},
            propertyNames={"pattern": NAME_PATTERN, "maxLength": 50},
            maxProperties=limits.GIVEN_FILES,
        ),
    ] = None
    write: Annotated[
        bool, about("Bring new data files in the working folder back, if policy allows it.", model=False)
    ] = False
    write_paths: Annotated[
        Sequence[str] | None,
        about(
            "Paths and globs in that folder of what else comes back: any new, changed or deleted file.",
            model=False,
            items={"type": "string", "minLength": 1, "pattern": GLOB_PATTERN},
        ),
    ] = None
    by: _By = "user"

    def check(self) -> None:
        super().check()
        for glob in self.write_paths or ():
            if not is_inside(glob):
                message = f"{glob!r} names no file in the working folder; write a relative path or glob without .., "
                raise BadArguments(f"{message}such as docs/*.md", field="write_paths")

    def as_dict(self) -> JsonObject:
        """The record has the digests of the files; their content is kept beside it."""
        given = super().as_dict()
        if not self.files:
            return given
        from metier.running.grants.files import digests_of

        return given | {"files": digests_of(self.files)}

    def runs_script(self, context: SessionContext) -> bool:
        return True

    def perform(self, context: SessionContext) -> Steps[RunResult]:
        from metier.session import script_runs  # what runs scripts is as much code as a session

        skill = context.visibility.find(self.name, None, self.by)
        loads = not context.has_loaded(skill)
        if loads and self.by == "model":
            raise ResourceError(f"load the skill {self.name} before you run its scripts", reason="not-loaded")
        if loads:
            yield skill_request("skill_load", skill, skill.path)
        yield from context.file_requests(skill)
        if loads:
            load(context, skill, by=self.by)
        return (
            yield from script_runs.run(
                context,
                skill,
                self.script,
                self.arguments,
                self.stdin,
                files=self.files,
                write=self.write,
                write_paths=self.write_paths or (),
                by=self.by,
            )
        )


class Unload(Operation[Unloaded], kw_only=True):
    """Take a loaded skill out of the session"""

    operation: ClassVar[str] = "unload"

    name: Annotated[str, about("The name of the skill.", minLength=1)]
    path: Annotated[str | None, about("The path of its SKILL.md, where several loaded skills have the name.")] = None
    by: _By = "user"

    def perform(self, context: SessionContext) -> Steps[Unloaded]:
        context.visibility.notice()
        return (yield from recall.unload(context, self.name, self.path))


# --- what was given before ---


class Output(Operation[Text], kw_only=True):
    """Return an earlier result by its ref"""

    operation: ClassVar[str] = "output"

    ref: Annotated[str, about("The ref that came with the result.", minLength=1)]
    start: Annotated[int, about("The first line, from 1.", minimum=0)] = 1
    end: Annotated[int | None, about("The last line.", minimum=0)] = None
    grep: Annotated[str | None, about("Return only lines that contain this text.", nul=True)] = None

    def perform(self, context: SessionContext) -> Steps[Text]:
        yield recall.request(context, self.ref)
        text = yield from recall.text_of(context, self.ref)
        return Text(recall.lines_of(text, self.start, self.end, self.grep))


class Compact(Operation[Compaction], kw_only=True):
    """Return what belongs back into a context that its host compacted"""

    operation: ClassVar[str] = "compact"

    budget: Annotated[int, about("At most this many characters.", minimum=0)] = limits.COMPACTION_CHARACTERS

    def perform(self, context: SessionContext) -> Steps[Compaction]:
        yield
        return recall.compact(context, self.budget)

    def remarks(self, result: Compaction) -> Sequence[str]:
        return [f"left out for lack of room: {', '.join(result.left_out)}"] if result.left_out else []


# --- messages and turns ---


class Invoke(Operation[Invocation], kw_only=True):
    """Find the skill that a user's message calls"""

    operation: ClassVar[str] = "invoke"
    rescans: ClassVar[bool] = True

    message: Annotated[str, about("The user's message.", nul=True)]

    @property
    def asker(self) -> By:
        return "user"

    def perform(self, context: SessionContext) -> Steps[Invocation]:
        context.visibility.notice()
        catalog = context.skills.catalog
        if name := mentions.unloaded(catalog, self.message):
            gone = yield from recall.unload(context, name)
            return Invocation(None, gone.text, unloaded=gone)
        mention = mentions.mentioned(catalog, context.visibility.callable_by_user, self.message)
        choices = mentions.choices(catalog, mention)
        context.visibility.refuse_off_in(self.message, mention.skills)
        if not mention.skills:
            if choices:
                paths = ", ".join(skill.path for choice in choices for skill in choice.candidates)
                context.recorder.note(SkillWarning("ambiguous", f"a name in the message is ambiguous: {paths}"))
            return Invocation(None, self.message, choices=choices)
        skill = mention.skills[0]
        context.refuse_denied(skill)
        loaded = None
        if context.profile.invocation.loads or (mention.command and not context.tools_enabled):
            yield from context.file_requests(skill)
            yield
            loaded = load(
                context,
                skill,
                by="user",
                arguments=mention.arguments,
                command=mention.command,
                inject=not context.profile.invocation.loads,
            )
        else:
            said = context.policy.redact(mention.arguments) or None
            context.recorder.note(SkillInvoked(skill.name, "manual", said, activated=mention.command or None))
        return Invocation(
            skill=skill,
            message=mention.message,
            loaded=loaded,
            arguments=mention.arguments,
            mentioned=mention.skills,
            choices=choices,
        )

    def exit_code(self, result: Invocation) -> int:
        return 0 if result.skill or result.unloaded else 1

    def remarks(self, result: Invocation) -> Sequence[str]:
        lines: list[str] = []
        for choice in result.choices:
            lines += [f"${choice.name} is ambiguous; put one of these paths into the message:"]
            lines += [f"- {skill.path} ({skill.scope})" for skill in choice.candidates]
        return lines if result.skill or result.unloaded else [*lines, "the message calls no skill"]


class Done(Value):
    """The answer of an operation that returns nothing."""

    @property
    def text(self) -> str:
        return ""


class EndTurn(Operation[Done], kw_only=True):
    """Begin the user's next turn: what was granted or injected for the last one is gone"""

    operation: ClassVar[str] = "end_turn"

    def perform(self, context: SessionContext) -> Steps[Done]:
        yield
        return Done()  # the call itself ends the turn; see `metier.record.state`


class Confirm(Operation[Done], kw_only=True):
    """Record what a person answered before something was shown. No surface offers it."""

    operation: ClassVar[str] = "confirm"

    asked: Annotated[Sequence[Request], about("What the person was asked.")] = ()

    def check(self) -> None:
        return  # it is made here, and not from what somebody sent

    def as_dict(self) -> JsonObject:
        return {"asked": [self._recorded(one) for one in self.asked]}

    @staticmethod
    def _recorded(request: Request) -> JsonObject:
        """What rules decide on."""
        values = {key: getattr(request, key) for key in ("tool", "skill_name", "path", "digest")}
        place = {key: getattr(request, key) for key in ("folder", "scope", "source", "foreign")}
        return values | {key: value for key, value in place.items() if value}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        asked = cast("Sequence[Mapping[str, Any]]", values["asked"])
        return cls(asked=tuple(Request(**one) for one in asked))

    def perform(self, context: SessionContext) -> Steps[Done]:
        yield from self.asked
        return Done()


# --- tools ---


class Tools(Operation[tools.ToolList], kw_only=True):
    """List the tools to give to a model"""

    operation: ClassVar[str] = "tools"
    recorded: ClassVar[bool] = False
    shape = list[Tool]

    budget: Annotated[
        int | None, about("At most this many characters for a list of skills, as for the prompt beside it.", minimum=0)
    ] = None

    def perform(self, context: SessionContext) -> Steps[tools.ToolList]:
        yield
        return tools.definitions(context, tool_fields, self.budget)

    def data(self, result: tools.ToolList) -> object:
        return plain(result.tools)


class Call(Operation[ToolResult], kw_only=True):
    """Answer a model's tool call"""

    operation: ClassVar[str] = "call"

    tool: Annotated[str, about("The tool, by the name that the profile gives it.")]
    arguments: Annotated[Mapping[str, object] | None, about("What the model sent.", nul=True)] = None

    def rescan(self, context: SessionContext) -> None:
        if context.visibility.rescans:
            with contextlib.suppress(BadArguments):
                tools.parse(context, self._tool, self.arguments, tool_operation, tool_fields).rescan(context)

    def check(self) -> None:
        """Only a tool's name that is no text is refused: a model's mistake is a recorded result."""
        if not isinstance(self.tool, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadArguments("tool must be text", field="tool")

    @property
    def _tool(self) -> str:
        return without_torn(self.tool[: limits.NAME_LENGTH * 4])

    def as_dict(self) -> JsonObject:
        """Arguments that cannot be recorded are replaced by what is wrong with them."""
        recorded = tools.problem(self.arguments) or self.arguments
        return {"tool": self._tool} | ({"arguments": recorded} if recorded is not None else {})

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """A record may have text for arguments; see `as_dict`."""
        unknown = next((key for key in values if key not in ("tool", "arguments")), None)
        if unknown is not None:
            raise BadArguments(f"{unknown} is not known; known: tool, arguments", field=unknown)
        tool, arguments = values.get("tool"), values.get("arguments")
        if not isinstance(tool, str):
            raise BadArguments("tool must be text" if tool is not None else "tool is missing", field="tool")
        return cls(tool=tool, arguments=cast("Mapping[str, object] | None", arguments))

    def runs_script(self, context: SessionContext) -> bool:
        return tools.role_of(context.profile, self._tool) == "run"

    def perform(self, context: SessionContext) -> Steps[ToolResult]:
        return tools.answer(context, self._tool, self.arguments, tool_operation, tool_fields)

    def code(self, result: ToolResult) -> str:
        return result.code

    def exit_code(self, result: ToolResult) -> int:
        return 0 if result.ok else 3 if result.rule else 1


_BY_ROLE: Final[Mapping[Role, type[Operation[Any]]]] = {
    "load": Load,
    "search": Search,
    "read": Read,
    "output": Output,
    "run": Run,
    "unload": Unload,
}


def tool_operation(role: Role, values: JsonObject) -> Operation[Any]:
    """The operation that a model's call of a tool asks for."""
    kind = _BY_ROLE[role]
    if "by" in parameters(kind):
        values = values | {"by": "model"}
    operation = kind(**values)
    operation.check_nul()
    return operation


def tool_fields(role: Role) -> Mapping[str, Schema]:
    """The fields of a tool's operation that a model may give, each with its JSON schema."""
    return fields_of_models(_BY_ROLE[role])


# --- as data ---

OperationT = TypeVar("OperationT", bound=type[Operation[Any]])

OPERATIONS: Final[dict[str, type[Operation[Any]]]] = {}
"""All operations that surfaces offer, by name. `register` adds one."""

RECORDED: Final[dict[str, type[Operation[Any]]]] = {kind.operation: kind for kind in (Confirm, Choose)}
"""The operations that a record can have, by name."""


def register(kind: OperationT) -> OperationT:
    """Add an operation, also as a decorator of its class. It is then on every surface, by its name and its fields.

    That is `Session.perform`, `session.<name>` of JSON-RPC, an endpoint with its place in the OpenAPI document,
    `metier/<name>` of MCP, and `metier session <name>`. Servers that were built before do not have it.
    """
    OPERATIONS[kind.operation] = kind
    if kind.recorded:
        RECORDED[kind.operation] = kind
    return kind


for _kind in (
    *(Load, Unload, Read, Search, Run, Output, Compact, Invoke, EndTurn),
    *(CatalogPrompt, SystemPrompt, Tools, Commands, MayUse, Call),
):
    register(_kind)
