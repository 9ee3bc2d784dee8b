"""RemcoChat's formats: the catalog as JSON, the body alone where the server puts a skill in, and results as JSON.

A model reads `{name, frontmatter, body}`, `{name, path, content}` or, whatever failed, `{error: {code, message}}`; no
result has a path of the host.
"""

import json
from bisect import bisect_right
from typing import Final

from metier.files.text import one_line, remove_invisible, storable_table
from metier.hosts.formats import Activation, CatalogView, Definition, Failure, Success, Surroundings, ToolArguments
from metier.hosts.formats.standard import StandardFormats, counted, load_fields, schema, text_property, way_to_others
from metier.values.results import Loaded, Prompt, Resource, ToolResult
from metier.values.skill import ROLES, JsonObject, Role


class RemcoChatFormats(StandardFormats):
    """See the module, and `HostFormats` for the contract."""

    roles: frozenset[Role] = frozenset(ROLES)
    fills_directory = False

    def listing(self, listed: CatalogView) -> Prompt:
        shown = listed.entries
        entries = [{"name": one_line(one.name), "description": remove_invisible(one.description)} for one in shown]
        if listed.budget is not None:
            lengths = range(1, len(entries) + 1)
            del entries[bisect_right(lengths, listed.budget, key=lambda count: len(_block(entries[:count]))) :]
        block = _block(entries)
        rules = _rules(listed)
        if left := listed.total - len(entries):
            rules.append(f"{left:,} of {listed.total:,} skills are not listed. {way_to_others(listed.offered)}")
        text = block + "\n\n" + "\n".join(f"- {rule}" for rule in rules)
        return counted(text, [json.dumps(one, ensure_ascii=False) for one in entries], shown, listed.total)

    def wrap(self, activation: Activation) -> str:
        return activation.loaded.body

    def define(self, role: Role, surroundings: Surroundings) -> Definition:
        if role != "load":
            return super().define(role, surroundings)
        return Definition(
            "Activates a skill: returns its frontmatter and, as `body`, its instructions. "
            "Call it before you use a skill's instructions.",
            schema(("name",), name=text_property("The name of the skill.")),
        )

    def fields(self, role: Role, given: ToolArguments) -> JsonObject:
        if role != "load":
            return super().fields(role, given)
        return load_fields(given, arguments="arguments")

    def success(self, call: Success) -> ToolResult:
        value = call.value
        if isinstance(value, Loaded):
            data: JsonObject = {
                "name": value.skill.name,
                "frontmatter": dict(value.frontmatter),
                "body": value.body,
                "truncated": value.truncated,
            }
            return _result(data, "body")
        if isinstance(value, Resource):
            data = {
                "name": value.skill.name,
                "path": value.path,
                "content": value.text,
                "truncated": value.truncated,
            }
            return _result(data, "content")
        return super().success(call)

    def failure(self, call: Failure) -> ToolResult:
        error = storable_table({"code": call.code, "message": call.message})
        text = json.dumps({"error": error}, ensure_ascii=False)
        return ToolResult({"error": error}, text, False, call.code, shown_at=("error", "message"))


def _result(data: JsonObject, shown: str) -> ToolResult:
    """A result whose data is also what the model reads; `shown` is the part for people."""
    return ToolResult(data, json.dumps(storable_table(data), ensure_ascii=False), shown_at=(shown,))


def _block(entries: list[dict[str, str]]) -> str:
    return json.dumps({"available_skills": entries}, ensure_ascii=False, indent=2)


def _rules(listed: CatalogView) -> list[str]:
    offered = listed.offered
    rules = ["Skills are available. Use them when they are relevant, and do not ask for their content without need."]
    if "load" in offered:
        rules.append(f"Before you use a skill's instructions, activate it by calling `{offered['load']}`.")
    if "read" in offered:
        rules.append(f"Load further files only with `{offered['read']}`, when the instructions need them.")
    rules.append("A message that begins with `/skill-name` calls that skill explicitly.")
    if "load" in offered:
        rules.append(f"Then call `{offered['load']}` for it before you answer.")
    else:
        rules.append("No tools are available, so the server puts the skill's content into this prompt itself.")
    return rules


FORMATS: Final = RemcoChatFormats()
