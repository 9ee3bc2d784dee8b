"""MyCodeAgent's formats: the catalog in the description of its one tool, and results in an envelope with a status."""

import os
from collections.abc import Sequence
from typing import Final

from metier.errors import ResourceError
from metier.hosts.formats import (
    NOTHING,
    Activation,
    CatalogView,
    Definition,
    Failure,
    Success,
    Surroundings,
    ToolArguments,
)
from metier.hosts.formats.standard import StandardFormats, counted, lines_within, load_fields, schema, text_property
from metier.model import JsonObject, Role
from metier.results import Loaded, Prompt, ToolResult


class MyCodeAgentFormats(StandardFormats):
    """See the module, and `HostFormats` for the contract."""

    roles: frozenset[Role] = frozenset(("load",))
    needs: frozenset[Role] = frozenset(("load",))
    fills_directory = False

    def listing(self, listed: CatalogView) -> Prompt:
        name = listed.offered.get("load")
        if name is None:
            return NOTHING
        limit = listed.budget if listed.budget is not None else listed.profile.prompt.max_chars
        lines = lines_within(listed.entries, limit)
        rules = [
            f"- When the user names a skill, such as `$code-review` or in words, load it with the `{name}` tool.",
            "- When a task plainly fits a skill's description, consider loading it even if the user did not name it.",
            "- Load only the skills you need; never preload all of them.",
        ]
        described = _tool_prompt(lines, listed.total)
        text = "\n".join(("# Tools", "", f"## {name}", "", described, "", "# Skills", "", *rules))
        return counted(text, len(lines), listed.entries, listed.total)

    def wrap(self, activation: Activation) -> str:
        loaded = activation.loaded
        return f"Base directory for this skill: {loaded.skill.dir}\n\n{loaded.body.lstrip(chr(10))}"

    def define(self, role: Role, surroundings: Surroundings) -> Definition:
        visible = surroundings.visible
        return Definition(
            _tool_prompt(lines_within(visible, surroundings.profile.prompt.max_chars), len(visible)),
            schema(
                ("name",),
                name=text_property("The skill to load."),
                args=text_property("What the skill should work on."),
            ),
        )

    def fields(self, role: Role, given: ToolArguments) -> JsonObject:
        return load_fields(given, arguments="args") | {"parent": given.text("parent") or None}

    def success(self, call: Success) -> ToolResult:
        value = call.value
        if not isinstance(value, Loaded):
            return super().success(call)
        project = call.surroundings.project
        context = _context(call) | {"path_resolved": os.path.relpath(value.skill.path, project)}
        content: JsonObject = {"name": value.skill.name, "base_dir": value.skill.dir, "content": value.text}
        text, status = f"Loaded the skill {value.skill.name}.", "success"
        if value.truncated:
            content["truncated"], status = True, "partial"
            text += f" {value.left_out} bytes were left out."
        stats = {"time_ms": call.time_ms}
        data: JsonObject = {"status": status, "data": content, "text": text, "stats": stats, "context": context}
        return ToolResult(data, value.text)

    def failure(self, call: Failure) -> ToolResult:
        code = call.code
        if isinstance(call.error, ResourceError) and code in ("NOT_FOUND", "IS_DIRECTORY"):
            code = "EXECUTION_ERROR"  # there is such a skill; its own file cannot be read
        data: JsonObject = {
            "status": "error",
            "data": {},
            "text": call.message,
            "stats": {"time_ms": call.time_ms},
            "context": _context(call),
            "error": {"code": code, "message": call.message},
        }
        return ToolResult(data, call.message, False, code)


def _context(call: Success | Failure) -> JsonObject:
    place = call.surroundings
    return {"cwd": os.path.relpath(place.cwd, place.project), "params_input": dict(call.given)}


def _tool_prompt(lines: Sequence[str], total: int) -> str:
    """The description of the tool, which carries the list of skills."""
    parts = [
        "Loads a skill: instructions for a particular task, kept in the project. Call it before you follow a skill.",
        "",
        "Parameters:",
        "- name (string, required): the skill to load, as listed below.",
        "- args (string, optional): what the skill should work on; it takes the place of $ARGUMENTS in the skill.",
        "",
        "Examples:",
        '- {"name": "code-review"}',
        '- {"name": "code-review", "args": "src/app.py"}',
        "",
        "Available skills:",
        *(lines or ["(none)"]),
    ]
    if len(lines) < total:
        parts.append(f"({total - len(lines):,} more are not listed; they load by name all the same)")
    return "\n".join(parts)


FORMATS: Final = MyCodeAgentFormats()
