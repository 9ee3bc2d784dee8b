"""The tools that a model is given: which are offered, how they are defined, and how a call is answered.

A call becomes an operation, and the host's formats give its result their shape. A model's mistake becomes a result that
says what to do instead; an exception never leaves `answer`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from metier import limits
from metier.errors import (
    AmbiguousSkill,
    BadArguments,
    InvalidSkill,
    InvocationError,
    MetierError,
    PathEscape,
    PolicyDenied,
    ResourceError,
    ScriptRefused,
    SkillNotFound,
)
from metier.files.plugins import nearest
from metier.hosts import formats
from metier.hosts.formats import Failure, Success, Surroundings, ToolArguments
from metier.hosts.schema import Profile
from metier.running.secrets.storage import stored_secrets
from metier.session import listing
from metier.session.context import SessionContext, Steps
from metier.session.operation import Flaw, Operation, flaw_of
from metier.values.results import Tool, ToolResult
from metier.values.skill import Role, Skill, wire_name
from metier.values.value import JsonObject, Schema, Value, replace

BUSY: Final = "BUSY"
"""The code for: as many scripts run as may; the same call may succeed later."""


ToolOperation = Callable[[Role, JsonObject], Operation[Any]]
"""Makes the operation that a call of a tool asks for."""
ToolFields = Callable[[Role], Mapping[str, Schema]]
"""What a model may give to the operation of a tool, each with its JSON schema."""


class ToolList(Value):
    """The tools that a model is given."""

    tools: tuple[Tool, ...]

    @property
    def text(self) -> str:
        return "\n".join(tool.name for tool in self.tools)


# --- definitions ---


def definitions(context: SessionContext, fields: ToolFields, budget: int | None) -> ToolList:
    """The tools that can succeed now.

    `budget` limits a list of skills in a description, as it limits the one in a prompt.
    """
    profile = context.profile
    known = replace(
        _surroundings(context),
        visible=context.skills.ranked(context.visibility.visible(), None),
        offered=context.offered(),
        budget=listing.default_budget(profile) if budget is None else budget,
    )
    tools: list[Tool] = []
    for role, name in known.offered.items():
        definition = formats.shapes(profile, role).define(role, replace(known, parameters=fields(role)))
        tools.append(Tool(name, definition.description, definition.schema))
    return ToolList(tuple(tools))


def _surroundings(context: SessionContext) -> Surroundings:
    skills = context.skills
    place = skills.settings.place
    return Surroundings(
        profile=context.profile,
        visible=context.visibility.visible(),
        scopes=context.scopes,
        cwd=place.cwd,
        project=place.project,
        parameters={},
    )


def _now(context: SessionContext, known: Surroundings) -> Surroundings:
    """The surroundings after a call, which may have found another catalog."""
    return known if context.visibility.visible() is known.visible else _surroundings(context)


# --- calls ---


def parse(
    context: SessionContext, tool: str, arguments: object, operation: ToolOperation, fields: ToolFields
) -> Operation[Any]:
    """The operation that a call asks for. Raises `BadArguments` for an unknown tool or arguments that do not fit."""
    role = role_of(context.profile, tool)
    if role is None or not context.profile.enabled or not context.tools_enabled:
        raise BadArguments(f"there is no tool {tool!r}; {_instead(context)}")
    wrong = problem(arguments)
    if wrong:
        raise BadArguments(f"the arguments {wrong}")
    return _understand(role, ToolArguments(_given(arguments), _surroundings(context)), operation, fields)


def _understand(role: Role, given: ToolArguments, operation: ToolOperation, fields: ToolFields) -> Operation[Any]:
    shapes = formats.shapes(given.surroundings.profile, role)
    definition = shapes.define(role, replace(given.surroundings, parameters=fields(role), visible=()))
    known = cast("JsonObject", definition.schema.get("properties", given.given))  # a host of others may name none
    unknown = next((key for key, value in given.given.items() if key not in known and value is not None), None)
    if unknown is not None:  # left out in silence, the call would do something else than the model meant
        close = "".join(f"; did you mean `{name}`?" for name in nearest(unknown, known))
        names = ", ".join(f"`{name}`" for name in known)
        raise BadArguments(f"there is no argument `{unknown}`{close} (known: {names})", field=unknown)
    return operation(role, shapes.fields(role, given))


def answer(
    context: SessionContext, tool: str, arguments: object, operation: ToolOperation, fields: ToolFields
) -> Steps[ToolResult]:
    """Answer a call in the host's shape."""
    started = context.recorder.noted_ms
    role = role_of(context.profile, tool)
    context.wire = role is not None and tool != context.profile.tools.by_role()[role]
    # What cannot be recorded cannot be given back either: a replay would not know it.
    shapes, wrong = formats.shapes(context.profile, role), problem(arguments)
    given, surroundings = {} if wrong else _given(arguments), _surroundings(context)
    if role == "run":
        mask = stored_secrets(context.skills.settings.config_folder).mask
        given = _given(mask.value(given))  # some hosts repeat them in the answer

    def since() -> int:
        """The milliseconds between the first and the last event of the call, which a replay has, too."""
        return context.recorder.noted_ms - started

    try:
        if role is None or wrong or role == "run" or not context.profile.enabled or not context.tools_enabled:
            # for what is wrong, or for a script before it is masked
            call = parse(context, tool, arguments, operation, fields)
        else:
            call = _understand(role, ToolArguments(given, surroundings), operation, fields)
        value = yield from call.perform(context)
        return shapes.success(
            Success(
                role=cast("Role", role),
                given=given,
                value=value,
                time_ms=since(),
                surroundings=_now(context, surroundings),
            )
        )
    except MetierError as error:
        result = shapes.failure(
            Failure(
                role=role,
                given=given,
                error=error,
                code=code_of(error),
                message=explain(error, context.profile, context.visibility.visible()),
                time_ms=since(),
                surroundings=_now(context, surroundings),
            )
        )
        return replace(result, rule=error.rule) if isinstance(error, PolicyDenied) else result


def role_of(profile: Profile, tool: str) -> Role | None:
    """The role of a tool, by its name or by its name on the wire."""
    names = profile.tools.by_role()
    for role, name in names.items():
        if name == tool:
            return role
    return next((role for role, name in names.items() if wire_name(name) == tool), None)


def _instead(context: SessionContext) -> str:
    """What can be called instead of an unknown tool, in names that can be called on every surface."""
    if not context.profile.enabled:
        return context.profile.off_message
    return f"the tools are: {', '.join(map(wire_name, context.offered().values())) or 'none'}"


def _given(arguments: object) -> JsonObject:
    return dict(cast("Mapping[str, object]", arguments)) if isinstance(arguments, dict | Mapping) else {}


_NO_OBJECT: Final = "must be a JSON object"
_PROBLEMS: Final[Mapping[Flaw, str]] = {
    "not-json": "must be JSON that is not nested too deeply, without NaN, Infinity or numbers of more than 300 digits",
    "torn": "hold half a surrogate pair; send whole characters",
    "too-large": f"are too large; send at most {limits.CALL_BYTES:,} bytes",
}


def problem(arguments: object) -> str:
    """Why the arguments of a call cannot be recorded, and so not be run again; the record then has this text."""
    if arguments is None:
        return ""
    if not isinstance(arguments, dict | Mapping):  # nearly always a dict, which is found faster
        return next((known for known in _PROBLEMS.values() if known == arguments), _NO_OBJECT)
    flaw = flaw_of(cast("object", arguments), limits.CALL_BYTES)
    return _PROBLEMS[flaw] if flaw else ""


# --- errors ---


def explain(error: MetierError, profile: Profile, visible: Sequence[Skill]) -> str:
    """An error as a sentence for a model: what is wrong, what would work, and no path where the host hides them."""
    hide = profile.resources.hide_paths
    if isinstance(error, SkillNotFound):
        if not profile.enabled:
            return f"no skill {error.wanted!r}: {profile.off_message}"
        if error.why and not hide:
            return f"no skill {error.wanted!r}: {error.why}"
        seen = [skill.name for skill in visible]
        names = [name for name in error.close if name in seen] or seen[:20]
        return f"there is no skill {error.wanted!r}; available: {', '.join(names) or 'none'}"
    if isinstance(error, InvalidSkill):
        reasons = "; ".join(d.message for d in error.diagnostics)
        return f"the skill is broken and cannot be loaded: {reasons}"
    if isinstance(error, AmbiguousSkill) and hide:
        return f"{error.name!r} is ambiguous"
    return str(error)


_RESOURCE_CODES: Final[Mapping[str, str]] = {
    "not-found": "NOT_FOUND",
    "removed": "NOT_FOUND",
    "binary": "BINARY_FILE",
    "folder": "IS_DIRECTORY",
    "permission": "PERMISSION_DENIED",
    "other-name": "ACCESS_DENIED",
    "io": "EXECUTION_ERROR",
    "scheme": "INVALID_PARAM",
    "encoding": "INVALID_PARAM",
}


def code_of(error: MetierError) -> str:
    """A stable word for what went wrong, the same on every surface."""
    if isinstance(error, BadArguments | InvocationError):
        return "INVALID_PARAM"
    if isinstance(error, SkillNotFound):
        return "ACCESS_DENIED" if error.reason == "outside" else "NOT_FOUND"
    if isinstance(error, InvalidSkill):
        refused = any(d.reason == "permission" for d in error.diagnostics)
        return "PERMISSION_DENIED" if refused else "INTERNAL_ERROR"
    if isinstance(error, AmbiguousSkill):
        return "CONFLICT"
    if isinstance(error, PolicyDenied | PathEscape):
        return "ACCESS_DENIED"
    if isinstance(error, ScriptRefused):
        return BUSY if error.reason == "busy" else "EXECUTION_ERROR"
    if isinstance(error, ResourceError):
        return _RESOURCE_CODES.get(error.reason, "EXECUTION_ERROR")
    return "INTERNAL_ERROR"
