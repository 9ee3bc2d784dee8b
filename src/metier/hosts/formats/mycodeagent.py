"""MyCodeAgent's formats: the catalog in the description of its one tool, and results in an envelope with a status.

The envelope is what the model reads, as JSON: the status, the error's code, the text and the data. The same call gives
the same bytes in a replay, so the arguments are given back with their keys in order.
"""

import json
import os
from dataclasses import replace
from typing import Final

from metier.errors import ResourceError
from metier.files.json_text import parse_json
from metier.files.text import without_torn
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
from metier.hosts.formats.standard import (
    StandardFormats,
    counted,
    lines_within,
    load_fields,
    schema,
    text_property,
    way_to_others,
)
from metier.values.results import Loaded, Prompt, ToolResult
from metier.values.skill import JsonObject, Role

_HEADING: Final = "Tools"
"""Where the tool stands in a system prompt: beside the others, if the base prompt has such a section."""


class MyCodeAgentFormats(StandardFormats):
    """See the module, and `HostFormats` for the contract."""

    roles: frozenset[Role] = frozenset(("load",))
    needs: frozenset[Role] = frozenset(("load",))
    fills_directory = False

    def listing(self, listed: CatalogView) -> Prompt:
        name = listed.offered.get("load")
        if name is None:
            return NOTHING
        lines, described = _tool_prompt(listed)
        rules = [
            f"- When the user names a skill, such as `$code-review` or in words, load it with the `{name}` tool.",
            "- When a task plainly fits a skill's description, consider loading it even if the user did not name it.",
            "- Load only the skills you need; never preload all of them.",
        ]
        text = "\n".join((f"# {_HEADING}", "", f"## {name}", "", described, "", "# Skills", "", *rules))
        return replace(counted(text, lines, listed.entries, listed.total), heading=_HEADING)

    def wrap(self, activation: Activation) -> str:
        loaded = activation.loaded
        return f"Base directory for this skill: {loaded.skill.dir}\n\n{loaded.body.lstrip(chr(10))}"

    def define(self, role: Role, surroundings: Surroundings) -> Definition:
        listed = CatalogView(
            skills=surroundings.visible,
            profile=surroundings.profile,
            offered=surroundings.offered,
            budget=surroundings.budget,
        )
        return Definition(
            _tool_prompt(listed)[1],
            schema(
                ("name",),
                name=text_property("The skill to load."),
                args=text_property("What the skill should work on."),
                parent=text_property("The skill whose instructions ask for this one, if one does."),
            ),
        )

    def fields(self, role: Role, given: ToolArguments) -> JsonObject:
        return load_fields(given, arguments="args")

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
        return ToolResult(data, _envelope(data), shown_at=("data", "content"))

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
        return ToolResult(data, _envelope(data), False, code, shown_at=("text",))


def _envelope(data: JsonObject) -> str:
    """What the model reads. A path may hold bytes that are not UTF-8."""
    return without_torn(json.dumps(data, ensure_ascii=False))


def _context(call: Success | Failure) -> JsonObject:
    place = call.surroundings
    given: JsonObject = parse_json(json.dumps(call.given, sort_keys=True))
    return {"cwd": os.path.relpath(place.cwd, place.project), "params_input": given}


def _tool_prompt(listed: CatalogView) -> tuple[list[str], str]:
    """The lines of the skills that have room, and the description of the tool, which carries them."""
    limit, total = listed.profile.prompt.char_limit, listed.total
    lines = lines_within(listed.entries, listed.budget if listed.budget is not None else limit)
    parts = [
        "Loads a skill: instructions for a particular task, kept in the project. Call it before you follow a skill.",
        "",
        "Parameters:",
        "- name (string, required): the skill to load, as listed below.",
        "- args (string, optional): what the skill should work on; it takes the place of $ARGUMENTS in the skill.",
        "- parent (string, optional): the skill whose instructions ask for this one. Skills must not call in circles.",
        "",
        "Examples:",
        '- {"name": "code-review"}',
        '- {"name": "code-review", "args": "src/app.py"}',
        "",
        "Available skills:",
        *(lines if lines or total else ["(none)"]),
    ]
    left = total - len(lines)
    if left:
        what = "more" if lines else "skill" if left == 1 else "skills"
        parts.append(f"({left:,} {what} not listed; any skill loads by its name. {way_to_others(listed.offered)})")
    return lines, "\n".join(parts)


FORMATS: Final = MyCodeAgentFormats()
