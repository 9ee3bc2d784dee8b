"""oh-my-pi's formats: a list of lines, SKILL.md as it stands, and one `read` tool that takes `skill://` URLs."""

from typing import Final

from metier.hosts.formats import Activation, CatalogView, Definition, Failure, Success, Surroundings, ToolArguments
from metier.hosts.formats.standard import StandardFormats, counted, lines_within, schema, text_property, way_to_others
from metier.values.results import Prompt, Resource, ToolResult
from metier.values.skill import JsonObject, Role


class OmpFormats(StandardFormats):
    """See the module, and `HostFormats` for the contract."""

    roles: frozenset[Role] = frozenset(("read",))
    needs: frozenset[Role] = frozenset(("read",))
    fills_directory = False

    def listing(self, listed: CatalogView) -> Prompt:
        limit = listed.profile.prompt.char_limit
        lines = lines_within(listed.entries, listed.budget if listed.budget is not None else limit)
        text = ["# Skills", "Instructions for particular tasks; use one when the task fits its description."]
        if "read" in listed.offered:
            tool = listed.offered["read"]
            text.append(f"Read one with `{tool}` at skill://<name>, and its files at skill://<name>/<path>.")
        text += lines
        if len(lines) < listed.total:
            left = listed.total - len(lines)
            text.append(f"({left:,} more {'is' if left == 1 else 'are'} not shown. {way_to_others(listed.offered)})")
        return counted("\n".join(text), lines, listed.entries, listed.total)

    def wrap(self, activation: Activation) -> str:
        loaded = activation.loaded
        if not activation.command:
            return activation.head + loaded.body
        said = f"\nUser: {activation.arguments}" if activation.arguments else ""
        return f"{loaded.body.strip()}\n\nSkill: {loaded.skill.path}{said}"

    def define(self, role: Role, surroundings: Surroundings) -> Definition:
        return Definition(
            "Reads a skill at skill://<name>, or one of its files at skill://<name>/<path>.",
            schema(("path",), path=text_property("A skill:// URL.")),
        )

    def fields(self, role: Role, given: ToolArguments) -> JsonObject:
        return {"name": given.text("path", required=True)}

    def success(self, call: Success) -> ToolResult:
        value = call.value
        data: JsonObject = {"url": call.given.get("path"), "content": value.text}
        if isinstance(value, Resource):
            data |= {"contentType": value.mime, "size": value.size}
        return ToolResult(data, value.text)

    def failure(self, call: Failure) -> ToolResult:
        return ToolResult({"error": call.message}, call.message, False, call.code)


FORMATS: Final = OmpFormats()
