"""The tools that a model is given: schemas, handlers, and results in the shape that the profile's host uses.

A handler asks the session and nobody else. A model's mistake becomes a result that says what to do instead; an
exception never leaves `call`.
"""

import errno
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from metier import limits
from metier.errors import (
    AmbiguousSkill,
    InvalidSkill,
    InvocationError,
    MetierError,
    PathEscape,
    PolicyDenied,
    ResourceError,
    ScriptRefused,
    SkillNotFound,
)
from metier.model import Loaded, RunResult
from metier.session import listing

if TYPE_CHECKING:
    from metier.session.session import Session

Role = Literal["load", "search", "read", "output", "run"]
ROLES: Final[tuple[Role, ...]] = ("load", "search", "read", "output", "run")


@dataclass(frozen=True, slots=True)
class Tool:
    """A definition to hand to a model."""

    name: str
    description: str
    input_schema: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call returns: `data` in the host's shape, `text` for the model's context, `code` where it failed."""

    data: Mapping[str, Any]
    text: str
    ok: bool = True
    code: str = ""
    rule: str = ""

    def as_dict(self) -> dict[str, Any]:
        return dict(self.data)


class BadArguments(MetierError):
    """The arguments of a call do not fit the tool's schema."""


# --- definitions ---


def offered(session: "Session") -> dict[Role, str]:
    """Role to name of the tools that can succeed now."""
    profile = session.profile
    if not profile.enabled or not session.tools_enabled:
        return {}
    if not session.visible() and profile.catalog.refresh != "call":
        return {}
    names: dict[Role, str] = {role: getattr(profile.tools, role) for role in ROLES}
    if not session.has_read_tool and profile.tools.shape == "omp":
        names["read"] = ""
    if not session.can_run:
        names["run"] = ""
    return {role: name for role, name in names.items() if name}


def definitions(session: "Session") -> list[Tool]:
    return [Tool(name, *_DEFINE[role](session)) for role, name in offered(session).items()]


def _schema(required: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {key: dict(value) for key, value in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def _text(about: str) -> dict[str, Any]:
    return {"type": "string", "description": about}


def _name(session: "Session", about: str) -> dict[str, Any]:
    names = [skill.name for skill in session.visible()]
    few = session.profile.tools.enumerate_names and 0 < len(names) <= limits.ENUMERATED_NAMES
    return _text(about) | ({"enum": names} if few else {})


def _define_load(session: "Session") -> tuple[str, dict[str, Any]]:
    shape = session.profile.tools.shape
    if shape == "envelope":
        prompt = listing.tool_prompt(session.visible(), session.profile)
        schema = _schema(("name",), name=_text("The skill to load."), args=_text("What the skill should work on."))
        return prompt.text, schema
    if shape == "remcochat":
        about = "Activates a skill: returns its instructions. Call it before you use a skill's instructions."
        return about, _schema(("name",), name=_text("The name of the skill."))
    if shape == "codelia":
        about = "Loads a skill's instructions by name, or by path where several skills bear one name."
        return about, _schema((), name=_text("The name of the skill."), path=_text("The path of its SKILL.md."))
    about = "Loads a skill's instructions. Call it before you follow a skill, and only for skills that the task needs."
    return about, _schema(
        (),
        name=_name(session, "The name of the skill."),
        path=_text("The path of its SKILL.md, where the name is not enough."),
        arguments=_text("What the skill should work on."),
        parent=_text("The skill that asks for this one, if one does."),
    )


def _define_search(session: "Session") -> tuple[str, dict[str, Any]]:
    rules = session.profile.search
    about = "Finds skills by what they are for. Use it when no skill in the prompt fits, or when the list was cut."
    return about, _schema(
        ("query",),
        query=_text("A name, a path, or words that say what is needed."),
        limit={"type": "integer", "description": f"How many to return, at most {rules.max_limit}.", "minimum": 1},
        scope={"type": "string", "description": "Only skills of this scope.", "enum": _scopes(session)},
    )


def _scopes(session: "Session") -> list[str]:
    codelia = session.profile.tools.shape == "codelia"
    return ["repo", "user"] if codelia else sorted({root.scope for root in session.skills.roots})


def _define_read(session: "Session") -> tuple[str, dict[str, Any]]:
    shape = session.profile.tools.shape
    if shape == "omp":
        about = "Reads a skill at skill://<name>, or one of its files at skill://<name>/<path>."
        return about, _schema(("path",), path=_text("A skill:// URL."))
    about = "Reads a file of a skill, such as references/guide.md, when its instructions need it."
    return about, _schema(
        ("name", "path"),
        name=_name(session, "The name of the skill."),
        path=_text("The file, relative to the skill's folder."),
    )


def _define_output(session: "Session") -> tuple[str, dict[str, Any]]:
    about = "Returns an earlier result by its ref: whole, a range of lines, or the lines that contain a text."
    return about, _schema(
        ("ref",),
        ref=_text("The ref that came with the result."),
        start={"type": "integer", "description": "The first line, from 1.", "minimum": 1},
        end={"type": "integer", "description": "The last line.", "minimum": 1},
        grep=_text("Return only lines that contain this text."),
    )


def _define_run(session: "Session") -> tuple[str, dict[str, Any]]:
    about = "Runs a script of a loaded skill in a sandbox and returns its output."
    return about, _schema(
        ("name", "script"),
        name=_name(session, "The name of the skill."),
        script=_text("The script, such as scripts/check.py."),
        arguments={"type": "array", "items": {"type": "string"}, "description": "Its arguments, one item each."},
        stdin=_text("What it reads from standard input."),
    )


_DEFINE: Final[Mapping[Role, Callable[["Session"], tuple[str, dict[str, Any]]]]] = {
    "load": _define_load,
    "search": _define_search,
    "read": _define_read,
    "output": _define_output,
    "run": _define_run,
}


# --- calls ---


def call(session: "Session", tool: str, arguments: Mapping[str, Any] | None, problem: str = "") -> ToolResult:
    """Answer a call, and never raise for what a model sent. `problem` is what is wrong with the arguments as such."""
    given: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}  # pyright: ignore[reportUnnecessaryIsInstance]
    started = time.monotonic_ns()
    role: Role | None = next((role for role in ROLES if tool and getattr(session.profile.tools, role) == tool), None)
    shape = _shape(session, role)
    try:
        if role is None or not session.profile.enabled or not session.tools_enabled:
            names = ", ".join(offered(session).values()) or "none"
            raise BadArguments(f"there is no tool {tool!r}; the tools are: {names}")
        if problem:
            raise BadArguments(f"the arguments {problem}")
        result = shape(session, role, given, None, started, _HANDLERS[role](session, given))
    except MetierError as error:
        result = shape(session, role or "load", given, error, started, None)
        if isinstance(error, PolicyDenied):
            result = replace(result, rule=error.rule)
    return result


_NO_OBJECT: Final = "must be a JSON object"
_TORN: Final = "hold half a surrogate pair; send whole characters"
_TOO_LARGE: Final = f"are too large; send at most {limits.CALL_BYTES:,} bytes"


def problem(arguments: object) -> str:
    """Why the arguments of a call cannot be recorded, and so not be run again; a record then has this text instead."""
    if arguments is None:
        return ""
    if not isinstance(arguments, Mapping) or not _is_json(cast("object", arguments)):
        return next((known for known in (_TORN, _TOO_LARGE) if known == arguments), _NO_OBJECT)
    try:
        size = len(json.dumps(arguments, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return _TORN
    return _TOO_LARGE if size > limits.CALL_BYTES else ""


def _is_json(value: object, depth: int = 32) -> bool:
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return depth > 0 and all(isinstance(key, str) and _is_json(item, depth - 1) for key, item in items)
    if isinstance(value, list | tuple):
        return depth > 0 and all(_is_json(item, depth - 1) for item in cast("list[object]", value))
    if isinstance(value, float):
        return isfinite(value)
    return value is None or isinstance(value, str) or (isinstance(value, int) and value.bit_length() <= 1024)


def _string(given: Mapping[str, Any], key: str, *, required: bool = False) -> str:
    value = given.get(key)
    if value is None or value == "":
        if required:
            raise BadArguments(f"`{key}` is missing; give it as a string")
        return ""
    if not isinstance(value, str):
        raise BadArguments(f"`{key}` must be a string, not {type(value).__name__}")
    return value


def _integer(given: Mapping[str, Any], key: str) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise BadArguments(f"`{key}` must be a whole number")
    return int(value)


def _handle_load(session: "Session", given: Mapping[str, Any]) -> Loaded:
    envelope = session.profile.tools.shape == "envelope"
    path = "" if session.profile.tools.shape in ("envelope", "remcochat") else _string(given, "path")
    name = _string(given, "name", required=not path and session.profile.tools.shape != "codelia")
    if not name and not path:
        raise BadArguments("give `name`, or `path` where the name is not enough")
    text = _string(given, "args" if envelope else "arguments")
    parent = _string(given, "parent") or None
    return session.load(name or None, path=path or None, arguments=text, parent=parent, by="model")


def _handle_search(session: "Session", given: Mapping[str, Any]) -> Any:
    query = given.get("query")
    if not isinstance(query, str):
        raise BadArguments("`query` is missing; give it as a string")
    scope = _string(given, "scope")
    if scope and scope not in _scopes(session):
        raise BadArguments(f"there is no scope {scope!r}; the scopes are: {', '.join(_scopes(session))}")
    return session.search(query, limit=_integer(given, "limit"), scope=scope or None, by="model")


def _handle_read(session: "Session", given: Mapping[str, Any]) -> Any:
    if session.profile.tools.shape == "omp":
        url = _string(given, "path", required=True)
        return session.read(url, by="model")
    return session.read(_string(given, "name", required=True), _string(given, "path", required=True), by="model")


def _handle_output(session: "Session", given: Mapping[str, Any]) -> str:
    return session.output(
        _string(given, "ref", required=True),
        start=_integer(given, "start") or 1,
        end=_integer(given, "end"),
        grep=_string(given, "grep") or None,
    )


def _handle_run(session: "Session", given: Mapping[str, Any]) -> RunResult:
    arguments: object = given.get("arguments", [])
    if not isinstance(arguments, list) or not all(isinstance(item, str) for item in cast("list[object]", arguments)):
        raise BadArguments("`arguments` must be a list of strings")
    return session.run(
        _string(given, "name", required=True),
        _string(given, "script", required=True),
        cast("list[str]", arguments),
        stdin=_string(given, "stdin") or None,
        by="model",
    )


_HANDLERS: Final[Mapping[Role, Callable[["Session", Mapping[str, Any]], Any]]] = {
    "load": _handle_load,
    "search": _handle_search,
    "read": _handle_read,
    "output": _handle_output,
    "run": _handle_run,
}


# --- shapes ---


def explain(error: MetierError, session: "Session") -> str:
    """An error as a sentence for a model: what is wrong, what would work, and no path where the host hides them."""
    hide = session.profile.resources.hide_paths
    if isinstance(error, SkillNotFound):
        if error.why and not hide:
            return f"no skill {error.wanted!r}: {error.why}"
        visible = [skill.name for skill in session.visible()]
        names = [name for name in error.close if name in visible] or visible[:20]
        return f"there is no skill {error.wanted!r}; available: {', '.join(names) or 'none'}"
    if isinstance(error, InvalidSkill):
        reasons = "; ".join(d.message for d in error.diagnostics)
        return f"the skill is broken and cannot be loaded: {reasons}"
    if isinstance(error, AmbiguousSkill) and hide:
        return f"{error.name!r} is ambiguous"
    return str(error)


BUSY: Final = "BUSY"
"""As many scripts run as may; the same call may succeed later."""


def code_of(error: MetierError) -> str:
    """A stable word for what went wrong, the same on every surface."""
    if isinstance(error, BadArguments | InvocationError):
        return "INVALID_PARAM"
    if isinstance(error, SkillNotFound):
        return "ACCESS_DENIED" if "leads outside" in error.why else "NOT_FOUND"
    if isinstance(error, InvalidSkill):
        refused = (d.code == "unreadable" and os.strerror(errno.EACCES) in d.message for d in error.diagnostics)
        return "PERMISSION_DENIED" if any(refused) else "INTERNAL_ERROR"
    if isinstance(error, AmbiguousSkill):
        return "CONFLICT"
    if isinstance(error, PolicyDenied | PathEscape):
        return "ACCESS_DENIED"
    if isinstance(error, ScriptRefused):
        return BUSY if error.reason == "busy" else "EXECUTION_ERROR"
    if isinstance(error, ResourceError):
        return {
            "not-found": "NOT_FOUND",
            "binary": "BINARY_FILE",
            "folder": "IS_DIRECTORY",
            "permission": "PERMISSION_DENIED",
            "io": "EXECUTION_ERROR",
            "scheme": "INVALID_PARAM",
            "encoding": "INVALID_PARAM",
        }.get(error.reason, "EXECUTION_ERROR")
    return "INTERNAL_ERROR"


Shape = Callable[["Session", Role, Mapping[str, Any], MetierError | None, int, Any], ToolResult]


def _metier(
    session: "Session", role: Role, given: Mapping[str, Any], error: MetierError | None, started: int, value: Any
) -> ToolResult:
    if error is not None:
        code, message = code_of(error), explain(error, session)
        data: dict[str, Any] = {"ok": False, "error": {"code": code, "message": message}}
        if isinstance(error, AmbiguousSkill):
            data["candidates"] = list(error.candidates)
        return ToolResult(data, message, False, code)
    if isinstance(value, str):
        return ToolResult({"ok": True, "text": value}, value)
    data = {"ok": True, **value.as_dict()}
    if role == "load":
        data["skill"] = value.skill.name
        return ToolResult(data, value.text)
    return ToolResult(data, value.text)


def _codelia(
    session: "Session", role: Role, given: Mapping[str, Any], error: MetierError | None, started: int, value: Any
) -> ToolResult:
    if error is not None:
        message = explain(error, session)
        data: dict[str, Any] = {"ok": False, "error": message}
        if isinstance(error, AmbiguousSkill):
            data["ambiguous_paths"] = list(error.candidates)
        return ToolResult(data, message, False, code_of(error))
    if isinstance(value, str):
        return ToolResult({"ok": True, "content": value}, value)
    if role == "search":
        return ToolResult(value.as_dict(), value.text)
    skill = value.skill
    summary = {
        "skill_id": skill.id,
        "name": skill.name,
        "path": skill.path,
        "dir": skill.dir,
        "mtime_ms": skill.mtime_ms,
    }
    data = {"ok": True, "skill": skill.as_dict(), "content": value.text, "metadata": summary, "ref": value.ref}
    if value.already_loaded:
        data["already_loaded"] = True
    else:
        data["files"] = [os.path.join(skill.dir, file) for file in value.files]
        data["files_truncated"] = value.files_truncated
    return ToolResult(data, value.text)


def _omp(
    session: "Session", role: Role, given: Mapping[str, Any], error: MetierError | None, started: int, value: Any
) -> ToolResult:
    if error is not None:
        message = explain(error, session)
        return ToolResult({"error": message}, message, False, code_of(error))
    url = given.get("path")
    return ToolResult({"url": url, "content": value.text, "contentType": value.mime, "size": value.size}, value.text)


def _remcochat(
    session: "Session", role: Role, given: Mapping[str, Any], error: MetierError | None, started: int, value: Any
) -> ToolResult:
    if error is not None:
        message = explain(error, session)
        return ToolResult({"error": message}, message, False, code_of(error))
    if role == "load":
        data = {
            "name": value.skill.name,
            "frontmatter": dict(value.frontmatter),
            "body": value.body,
            "truncated": value.truncated,
        }
        return ToolResult(data, value.body)
    data = {"name": value.skill.name, "path": value.path, "content": value.text, "truncated": value.truncated}
    return ToolResult(data, value.text)


def _envelope(
    session: "Session", role: Role, given: Mapping[str, Any], error: MetierError | None, started: int, value: Any
) -> ToolResult:
    place = session.skills.settings.place
    context: dict[str, Any] = {"cwd": os.path.relpath(place.cwd, place.project), "params_input": dict(given)}
    stats = {"time_ms": (time.monotonic_ns() - started) // 1_000_000}
    if error is not None:
        code, message = code_of(error), explain(error, session)
        if isinstance(error, ResourceError) and code in ("NOT_FOUND", "IS_DIRECTORY"):
            code = "EXECUTION_ERROR"  # there is such a skill; its own file cannot be read
        failure = {"code": code, "message": message}
        data = {"status": "error", "data": {}, "text": message, "stats": stats, "context": context, "error": failure}
        return ToolResult(data, message, False, code)
    context["path_resolved"] = os.path.relpath(value.skill.path, place.project)
    content = {"name": value.skill.name, "base_dir": value.skill.dir, "content": value.text}
    status = "success"
    if value.truncated:
        content["truncated"], status = True, "partial"
    text = f"Loaded the skill {value.skill.name}."
    if value.truncated:
        text += f" {value.left_out} bytes were left out."
    data = {"status": status, "data": content, "text": text, "stats": stats, "context": context}
    return ToolResult(data, value.text)


_SHAPES: Final[Mapping[str, tuple[Shape, tuple[Role, ...]]]] = {
    "metier": (_metier, ROLES),
    "codelia": (_codelia, ("load", "search", "output")),
    "omp": (_omp, ("read",)),
    "remcochat": (_remcochat, ("load", "read")),
    "envelope": (_envelope, ("load",)),
}
"""Each host's shape, and the tools that it has one for; a tool that was switched on besides answers in ours."""


def _shape(session: "Session", role: Role | None) -> Shape:
    shape, roles = _SHAPES[session.profile.tools.shape]
    return shape if role is None or role in roles else _metier
