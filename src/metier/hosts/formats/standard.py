"""The formats of the standard profile: XML listings, `<skill_content>`, and the tools `skill_load` and its kin.

The text of a listing is the same for the same catalog, byte for byte. Everything that comes from a skill is cleaned and
escaped, and no tool is mentioned that is not offered. Skills that do not fit the budget are counted: descriptions are
shortened first, then dropped, then names.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from metier import limits
from metier.errors import AmbiguousSkill, BadArguments
from metier.files.text import escape, one_line, remove_invisible, shorten, storable
from metier.hosts.formats import (
    Activation,
    CatalogView,
    Definition,
    Failure,
    Offered,
    Success,
    Surroundings,
    ToolArguments,
)
from metier.hosts.schema import Profile
from metier.values.results import Loaded, Prompt, SearchResult, ToolResult
from metier.values.skill import ROLES, STANDARD_KEYS, JsonObject, Role, Skill, as_text

SHORTEST: Final = 60
"""A description is not cut below this many characters; a skill is named without one instead."""

NAMES_SHARE: Final = 0.4
"""The share of a tight budget that names without descriptions may take: 20 characters buy a chance to be chosen."""

NO_ROLES: Final[frozenset[Role]] = frozenset()


class StandardFormats:
    """See the module, and `HostFormats` for the contract."""

    roles: frozenset[Role] = frozenset(ROLES)
    needs: frozenset[Role] = NO_ROLES
    fills_directory = True

    # --- prompt ---

    def listing(self, listed: CatalogView) -> Prompt:
        return _Xml(listed).fit()

    def wrap(self, activation: Activation) -> str:
        loaded, offered = activation.loaded, activation.offered
        skill = loaded.skill
        parts = [f'<skill_content name="{escape(skill.name)}">', loaded.body.strip("\n"), ""]
        if not activation.profile.resources.hide_paths:
            parts.append(f"Skill directory: {skill.dir}")
        parts.append("Relative paths in this skill are resolved from its directory.")
        if loaded.files:
            if "read" in offered:
                parts.append(f"Its files, to be read with `{offered['read']}` when needed:")
            parts += ["<skill_files>", *(f"<file>{escape(file)}</file>" for file in loaded.files), "</skill_files>"]
        if loaded.files_truncated:
            parts.append(not_listed(activation))
        parts.append("</skill_content>")
        return "\n".join(parts)

    # --- tools ---

    def define(self, role: Role, surroundings: Surroundings) -> Definition:
        properties: dict[str, JsonObject] = {
            name: {key: parameter[key] for key in _SHOWN if key in parameter}
            for name, parameter in surroundings.parameters.items()
        }
        if surroundings.profile.search.scoring == "overlap":
            properties.pop("context", None)  # counting words has no use for it
        most = surroundings.profile.search.max_limit
        tweaks: dict[str, JsonObject] = {
            "limit": {"description": f"How many to return, at most {most}.", "minimum": 1},
            "scope": {"enum": list(surroundings.scopes)},
            "start": {"minimum": 1},
            "end": {"minimum": 1},
            "name": text_property("The name of the skill.") | _enumerated(surroundings),
        }
        for name in properties.keys() & tweaks.keys():
            properties[name] |= tweaks[name]
        return Definition(_DESCRIPTIONS[role], schema(_REQUIRED[role], **properties))

    def fields(self, role: Role, given: ToolArguments) -> JsonObject:
        if role == "load":
            return load_fields(given, path=given.text("path"), arguments="arguments")
        if role == "search":
            query = given.given.get("query")
            if not isinstance(query, str):
                raise BadArguments("`query` is missing; give it as a string", field="query")
            scope, scopes = given.text("scope"), given.surroundings.scopes
            if scope and scope not in scopes:
                message = f"there is no scope {scope!r}; the scopes are: {', '.join(scopes)}"
                raise BadArguments(message, field="scope")
            context = given.text("context") or None
            return {"query": query, "limit": given.number("limit"), "scope": scope or None, "context": context}
        if role == "read":
            return {"name": given.text("name", required=True), "path": given.text("path", required=True)}
        if role == "output":
            return {
                "ref": given.text("ref", required=True),
                "start": given.number("start") or 1,
                "end": given.number("end"),
                "grep": given.text("grep") or None,
            }
        if role == "unload":
            return {"name": given.text("name", required=True)}
        arguments = given.texts("arguments")
        return {
            "name": given.text("name", required=True),
            "script": given.text("script", required=True),
            "arguments": arguments,
            "stdin": given.text("stdin") or None,
        }

    def success(self, call: Success) -> ToolResult:
        value = call.value
        known = value.as_dict() | ({"skill": value.skill.name} if isinstance(value, Loaded) else {})
        data = {"ok": True, **known}
        text = _hits(value, call.surroundings) if isinstance(value, SearchResult) else value.text
        return ToolResult(data, text)

    def failure(self, call: Failure) -> ToolResult:
        data: JsonObject = {"ok": False, "error": {"code": call.code, "message": call.message}}
        if isinstance(call.error, AmbiguousSkill):
            data["candidates"] = list(call.error.candidates)
        return ToolResult(data, call.message, False, call.code)


FORMATS: Final = StandardFormats()


# --- what formats share ---


def description_of(skill: Skill, profile: Profile) -> str:
    """The description as the host shows it: with the fields that it joins to it, cut where it cuts."""
    rules, text = profile.prompt, skill.description
    for key in rules.description_fields:
        if key in STANDARD_KEYS:
            continue  # policy decides about these, and a project may set this list
        text = f"{text} {as_text(skill.frontmatter.get(key)) or ''}".strip()
    return shorten(text, rules.description_chars) if rules.description_chars else text


def not_listed(activation: Activation) -> str:
    """What a model reads where a limit cut the list of a skill's files."""
    count, way = activation.loaded.files_left_out, "They are still in its directory."
    if "read" in activation.offered:
        way = f"`{activation.offered['read']}` reads any file by its path."
    if not count:
        return f"More files of this skill are not listed here. {way}"
    return (
        f"{count:,} more {'file of this skill is' if count == 1 else 'files of this skill are'} not listed here. {way}"
    )


def way_to_others(offered: Offered) -> str:
    """How a model finds a skill that the list does not show, with the tools that it has."""
    if "search" in offered:
        return f"Find them with `{offered['search']}`."
    tool = offered.get("load") or offered.get("read")
    if tool:
        return f"If `{tool}` does not know a name, it answers with similar ones."
    return "The user can call them by name."


def lines_within(skills: Sequence[Skill], limit: int | None) -> list[str]:
    """`- name: description` lines, as many as fit; once one does not, none follows. `None` means no limit."""
    lines: list[str] = []
    used = 0
    for skill in skills:
        line = f"- {one_line(skill.name)}: {one_line(skill.description)}"
        used += len(line) + 1
        if limit is not None and used > limit:
            break
        lines.append(line)
    return lines


def counted(text: str, entries: Sequence[str] | int, skills: Sequence[Skill], total: int) -> Prompt:
    """The prompt of a text that has these entries, one for each of the first skills, of a `total` of skills.

    With only the number of the entries, it is not known how many characters each of them has.
    """
    shown = entries if isinstance(entries, int) else len(entries)
    names = tuple(skill.name for skill in skills[:shown])
    sizes = () if isinstance(entries, int) else tuple(map(len, entries))
    return Prompt(text, shown, total, shown < total, names, sizes=sizes)


def load_fields(given: ToolArguments, *, path: str = "", arguments: str) -> JsonObject:
    """The fields of a load by name, or by a path that was given instead. `arguments` is the key of that text."""
    named = {"name": given.text("name", required=not path) or None, "path": path or None}
    return {**named, "arguments": given.text(arguments), "parent": given.text("parent") or None}


def schema(required: Sequence[str], **properties: Mapping[str, object]) -> JsonObject:
    """The JSON schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {key: dict(value) for key, value in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def path_line(path: str) -> str:
    """A path as a model can give it back: on one line, without characters that nobody sees."""
    return remove_invisible(path).replace("\n", " ")


def text_property(about: str) -> JsonObject:
    """A string in a schema."""
    return {"type": "string", "description": about}


# --- search ---


def _hits(found: SearchResult, surroundings: Surroundings) -> str:
    """One line for each skill. Where several skills bear a name, a second line says which one it is."""
    names = Counter(skill.name for skill in surroundings.visible)
    if not found.results:
        return found.text
    lines: list[str] = []
    for hit in found.results:
        lines += (*found.heading(hit), hit.line)
        if names[hit.skill.name] > 1 or hit.shadowed_by:
            hidden = surroundings.profile.resources.hide_paths
            lines.append(f"  scope: {hit.skill.scope}" + ("" if hidden else f", path: {path_line(hit.skill.path)}"))
        lines += hit.notes
    return "\n".join([*lines, *more_match(found, surroundings), *found.closing])


def more_match(found: SearchResult, surroundings: Surroundings) -> list[str]:
    """What a model reads where more skills match than a search returns: how many it has, and how to get others."""
    most = surroundings.profile.search.max_limit
    if not found.truncated:
        return []
    more = f"More than these {found.count:,} match" if found.count > 1 else "More skills than this one match"
    further = f", or for more results with `limit`, up to {most:,}" if found.count < most else ""
    return [f"{more}; ask more precisely{further}."]


# --- the listing ---


_BARE_ENTRY: Final = "<skill><name></name><description></description></skill>"


class _Xml:
    """`<available_skills>`, shortened until it fits the budget."""

    def __init__(self, listed: CatalogView) -> None:
        self.listed = listed
        self.skills, self.profile, self.offered = listed.skills, listed.profile, listed.offered
        self.fields = listed.fields
        self.limit = listed.budget if listed.budget is not None else listed.profile.prompt.char_limit
        self.described = [skill for skill in self.skills if skill.mode != "name-only"]
        self.named = [skill.name for skill in self.skills if skill.mode == "name-only"]
        self.rules = _rules(self.offered)

    def fit(self) -> Prompt:
        limit = self.limit
        if self.listed.others and limit is not None:
            return self.with_choices(limit)
        if limit is None or not self.is_crowded(limit):
            whole = self.prompt(self.described, self.named, None)
            if limit is None or len(whole.text) <= limit:
                return whole
        return self.prompt(*self.squeeze(limit))

    def prompt(self, kept: Sequence[Skill], rest: Sequence[str], length: int | None) -> Prompt:
        """The listing with these skills, their descriptions cut to a length, and the names of others."""
        entries, shown, total = [self.entry(skill, length) for skill in kept], len(kept) + len(rest), len(self.skills)
        return Prompt(
            self.text(entries, rest),
            shown,
            total,
            truncated=shown < total,
            names=tuple(skill.name for skill in kept),
            more=tuple(rest),
            shortened=length is not None,
            sizes=tuple(map(len, entries)),
        )

    def is_crowded(self, limit: int) -> bool:
        """Whether there are so many skills that not even entries without text fit. Then none is written to be tried."""
        return len(self.described) * len(_BARE_ENTRY) > limit

    def squeeze(self, limit: int) -> tuple[list[Skill], list[str], int]:
        """Shorten all descriptions alike; if that is not enough, name the rest; if that is not, count it."""

        def fits(length: int) -> bool:
            return len(self.text([self.entry(skill, length) for skill in self.described], self.named)) <= limit

        low = SHORTEST
        if self.is_crowded(limit) or not fits(low):
            kept, rest = self.drop(self.room(limit))
            return kept, rest, low
        high = max((len(self.entry(skill, None)) for skill in self.described), default=SHORTEST)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(middle) else (low, middle - 1)
        return self.described, self.named, low

    def with_choices(self, limit: int) -> Prompt:
        """The first skills, the names of the others, and then what messages brought in. Each part only grows."""
        room = self.room(limit)
        entries = [self.entry(skill, SHORTEST) for skill in self.described]
        used = sum(len(entry) + 1 for entry in entries)
        rest = self.names_within(self.listed.others[: self.listed.named], room - used)
        used += sum(len(escape(name)) + 2 for name in rest)
        chosen: list[Skill] = []
        for skill in self.listed.chosen:
            used += len(self.entry(skill, SHORTEST)) + 1
            if used > room:
                break
            chosen.append(skill)
        named = set(rest)
        shown = len(entries) + len(rest) + sum(skill.name not in named for skill in chosen)
        names = tuple(skill.name for skill in (*self.described, *chosen))
        last = [self.entry(skill, SHORTEST) for skill in chosen]
        return Prompt(
            self.text(entries, rest, last, shown),
            shown,
            self.listed.total,
            truncated=shown < self.listed.total,
            names=names,
            more=tuple(name for name in rest if name not in names),
            shortened=True,
            sizes=tuple(map(len, (*entries, *last))),
        )

    def room(self, limit: int) -> int:
        """The characters for entries and names: the limit without the rules, the tags and the note at the end."""
        return limit - len(self.text([], [])) - 120

    def names_within(self, skills: Sequence[Skill], room: int) -> list[str]:
        names: list[str] = []
        for skill in skills:
            room -= len(escape(skill.name)) + 2
            if room < 0:
                break
            names.append(skill.name)
        return names

    def drop(self, room: int) -> tuple[list[Skill], list[str]]:
        kept: list[Skill] = []
        used = 0
        for skill in self.described:
            cost = len(self.entry(skill, SHORTEST)) + 1
            # Pinned skills come first and are shown whatever it costs.
            if skill.mode != "pinned" and used + cost > room * (1 - NAMES_SHARE):
                break
            used += cost
            kept.append(skill)
        whole = {skill.path for skill in kept}
        return kept, self.names_within([skill for skill in self.skills if skill.path not in whole], room - used)

    def text(
        self, entries: Sequence[str], names: Sequence[str], chosen: Sequence[str] = (), shown: int | None = None
    ) -> str:
        """The listing. `shown` is the number of skills in it, where some are both named and described."""
        hidden = self.listed.total - (len(entries) + len(names) if shown is None else shown)
        parts = [*self.rules, "<available_skills>", *entries]
        if names:
            parts.append("<more_skills>" + escape(", ".join(names)) + "</more_skills>")
        parts += [*chosen, "</available_skills>"]
        if hidden:
            parts.append(
                f"{hidden:,} of {self.listed.total:,} skills are not shown; you can still load them by name. "
                f"{way_to_others(self.offered)}"
            )
        return "\n".join(parts)

    def entry(self, skill: Skill, length: int | None) -> str:
        whole = description_of(skill, self.profile)
        description = whole if length is None else shorten(one_line(whole), length)
        keys = self.fields(skill) if self.fields is not None else self.profile.prompt.fields
        further = "".join(_field(skill, key, length) for key in keys)
        return (
            f"<skill><name>{escape(skill.name)}</name><description>{escape(description)}</description>{further}</skill>"
        )


def _rules(offered: Offered) -> list[str]:
    rules = ["Skills are folders of instructions for particular tasks. Use one when the task fits its description."]
    if "load" in offered:
        rules.append(f"Call `{offered['load']}` with a skill's name before you follow it; load only what you need.")
    if "read" in offered:
        rules.append(f"Read further files of a loaded skill with `{offered['read']}`, when its instructions say so.")
    return rules


def _field(skill: Skill, key: str, length: int | None) -> str:
    """A field of the frontmatter as an element of the entry; nothing where the skill does not have it."""
    if key == "allowed-tools":
        value = ", ".join(skill.allowed_tools or ())
    elif key == "metadata":
        value = ", ".join(f"{name}: {_value(one)}" for name, one in skill.metadata.items())
    else:
        value = _value(skill.frontmatter.get(key))
    shown = escape(value if length is None else shorten(one_line(value), length))
    return f"<{escape(key)}>{shown}</{escape(key)}>" if shown else ""


def _value(value: object) -> str:
    """A value of the frontmatter: a scalar as text, anything else as JSON."""
    text = as_text(value)
    if value is None or text is not None:
        return text or ""
    return json.dumps(storable(value), ensure_ascii=False)


# --- the definitions ---

_DESCRIPTIONS: Final[Mapping[Role, str]] = {
    "load": "Loads a skill's instructions. Call it before you follow a skill, and only for skills that the task needs.",
    "search": "Finds skills by what they are for. Use it when you know of no skill that fits the task.",
    "read": "Reads a file of a skill, such as references/guide.md, when its instructions need it.",
    "output": "Returns an earlier result by its ref: whole, a range of lines, or the lines that contain a text.",
    "run": "Runs a script of a loaded skill in a sandbox and returns its output.",
    "unload": "Takes a loaded skill out, once nothing needs its instructions any more. They do not apply from then on.",
}
_REQUIRED: Final[Mapping[Role, tuple[str, ...]]] = {
    "load": (),
    "search": ("query",),
    "read": ("name", "path"),
    "output": ("ref",),
    "run": ("name", "script"),
    "unload": ("name",),
}
_SHOWN: Final = ("type", "items", "description")


def _enumerated(surroundings: Surroundings) -> JsonObject:
    """The names of the skills in a schema, while they are few."""
    names = [skill.name for skill in surroundings.visible]
    few = surroundings.profile.tools.enumerate_names and 0 < len(names) <= limits.ENUMERATED_NAMES
    return {"enum": names} if few else {}
