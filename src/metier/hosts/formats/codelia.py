"""Codelia's formats: `<skills_context>` with paths and scopes, `<skill_context>`, results with `ok` and metadata."""

import os
from typing import Final
from urllib.parse import quote

from metier.errors import AmbiguousSkill, BadArguments
from metier.files.text import escape, one_line
from metier.hosts.formats import Activation, CatalogView, Definition, Failure, Success, Surroundings, ToolArguments
from metier.hosts.formats.standard import (
    StandardFormats,
    counted,
    load_fields,
    more_match,
    not_listed,
    path_line,
    schema,
    text_property,
    way_to_others,
)
from metier.values.results import Loaded, Prompt, SearchResult, ToolResult
from metier.values.skill import JsonObject, Role


class CodeliaFormats(StandardFormats):
    """See the module, and `HostFormats` for the contract."""

    roles: frozenset[Role] = frozenset(("load", "search", "output"))
    fills_directory = False

    def listing(self, listed: CatalogView) -> Prompt:
        rules = listed.profile.prompt
        limit = listed.budget if listed.budget is not None else rules.max_bytes
        entries: list[str] = []
        used = 0
        for skill in listed.entries:
            fields = (
                ("name", skill.name),
                ("description", skill.description),
                ("path", skill.path),
                ("scope", skill.scope),
            )
            lines = "".join(f"    <{tag}>{escape(value)}</{tag}>\n" for tag, value in fields)
            element = f"  <skill>\n{lines}  </skill>\n"
            used += len(element.encode())
            too_many = rules.max_entries and len(entries) == rules.max_entries
            if too_many or (used > limit and (limit or listed.budget is not None)):
                break
            entries.append(element)
        return counted(_context(entries, listed), entries, listed.entries, listed.total)

    def wrap(self, activation: Activation) -> str:
        loaded = activation.loaded
        skill, text = loaded.skill, activation.head + loaded.body
        files = "".join(f"<file>{escape(os.path.join(skill.dir, file))}</file>\n" for file in loaded.files)
        cut = f"{not_listed(activation)}\n" if loaded.files_truncated else ""
        return (
            f'<skill_context name="{escape(skill.name)}" path="{escape(skill.path)}">\n{text.rstrip()}\n\n'
            f"Base directory: file://{quote(skill.dir)}/\n"
            "Relative paths in this skill are resolved from this directory.\n"
            f"<skill_files>\n{files}</skill_files>\n{cut}</skill_context>"
        )

    def define(self, role: Role, surroundings: Surroundings) -> Definition:
        if role != "load":
            return super().define(role, surroundings)
        return Definition(
            "Loads a skill's instructions by name, or by path where several skills bear one name.",
            schema((), name=text_property("The name of the skill."), path=text_property("The path of its SKILL.md.")),
        )

    def fields(self, role: Role, given: ToolArguments) -> JsonObject:
        if role != "load":
            return super().fields(role, given)
        path = given.text("path")
        if not path and not given.text("name"):
            raise BadArguments("give `name`, or `path` where the name is not enough", field="name")
        return load_fields(given, path=path, arguments="arguments")

    def success(self, call: Success) -> ToolResult:
        value = call.value
        if isinstance(value, SearchResult):
            return ToolResult(value.as_dict(), _candidates(value, call.surroundings))
        if not isinstance(value, Loaded):
            return ToolResult({"ok": True, "content": value.text}, value.text)
        skill = value.skill
        summary = {
            "skill_id": skill.id,
            "name": skill.name,
            "path": skill.path,
            "dir": skill.dir,
            "mtime_ms": skill.mtime_ms,
        }
        data: JsonObject = {
            "ok": True,
            "skill": skill.as_dict(),
            "content": value.text,
            "metadata": summary,
            "ref": value.ref,
        }
        if value.already_loaded:
            data["already_loaded"] = True
        else:
            data["files"] = [os.path.join(skill.dir, file) for file in value.files]
            data["files_truncated"] = value.files_truncated
            data["files_left_out"] = value.files_left_out
        return ToolResult(data, value.text)

    def failure(self, call: Failure) -> ToolResult:
        data: JsonObject = {"ok": False, "error": call.message}
        if isinstance(call.error, AmbiguousSkill):
            data["ambiguous_paths"] = list(call.error.candidates)
        return ToolResult(data, call.message, False, call.code)


def _candidates(found: SearchResult, surroundings: Surroundings) -> str:
    """The candidates with everything that tells them apart, because several may bear one name."""
    lines = [f"count: {found.count}, truncated: {'true' if found.truncated else 'false'}"]
    for hit in found.results:
        lines += (
            *found.heading(hit),
            f"- {hit.skill.name}: {one_line(hit.skill.description)}",
            f"  path: {path_line(hit.skill.path)}",
            f"  scope: {hit.skill.scope}, reason: {hit.reason}, score: {hit.score:g}",
            *hit.notes,
        )
    if not found.results:
        lines.append(found.text)
    return "\n".join([*lines, *more_match(found, surroundings)])


def _context(entries: list[str], listed: CatalogView) -> str:
    # What messages add below does not change this number, so that what was sent before can be cached.
    offered, left = listed.offered, listed.total - min(len(entries), len(listed.skills))
    rules = ["Skills are instructions for particular tasks; use one when the task fits its description."]
    if "load" in offered:
        rules.append(f"Load a skill with {offered['load']} before you follow it, by name, or by path if names repeat.")
    more = f"{left:,} more {'skill' if left == 1 else 'skills'}"
    if left and "search" in offered:
        rules.append(f"This list is cut: {more} can be found with {offered['search']}.")
    elif left:
        rules.append(f"This list is cut: there are {more}. {way_to_others(offered)}")
    usage = "".join(f"  <rule>{escape(rule)}</rule>\n" for rule in rules)
    flag = "true" if left else "false"
    return (
        f"<skills_context>\n<skills_usage>\n{usage}</skills_usage>\n"
        f'<skills_catalog scope="initial" truncated="{flag}">\n{"".join(entries)}</skills_catalog>\n</skills_context>'
    )


FORMATS: Final = CodeliaFormats()
