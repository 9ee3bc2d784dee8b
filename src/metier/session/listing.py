"""The catalog becomes a part of the system prompt, in the format of the profile and within its limits.

The text is the same for the same catalog, byte for byte; everything that comes from a skill is cleaned and escaped; no
tool is mentioned that is not offered; with no skills there is no text at all. What does not fit is counted, never
dropped without a word: descriptions are shortened first, then named only, and the rest can be searched and loaded.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from metier.files.text import escape, one_line, remove_invisible, shorten
from metier.hosts.profiles import Profile
from metier.model import Skill, as_text

SHORTEST: Final = 60
"""A description is not cut below this many characters; a skill is named without one instead."""

NAMES_SHARE: Final = 0.4
"""The share of a tight budget that names without descriptions may take: 20 characters buy a chance to be chosen."""

Offered = Mapping[Any, str]
"""The tools that the model really has: role (`load`, `search`, `read`, ...) to name."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text, and how much of the catalog it shows."""

    text: str
    shown: int
    total: int
    truncated: bool
    names: tuple[str, ...] = ()
    """Shown with a description."""
    more: tuple[str, ...] = ()
    """Shown by name only."""
    shortened: bool = False

    def as_dict(self) -> dict[str, object]:
        return {"text": self.text, "shown": self.shown, "total": self.total, "truncated": self.truncated}


NOTHING: Final = Prompt("", 0, 0, False)


def render(skills: Sequence[Skill], profile: Profile, offered: Offered, budget: int | None = None) -> Prompt:
    """Show the skills, the most important first. `budget` is in characters of text."""
    if not skills:
        return NOTHING
    return _FORMATS[profile.prompt.format](skills, profile, offered, budget)


def description_of(skill: Skill, profile: Profile) -> str:
    """The description as the host shows it: with the fields that it joins to it, cut where it cuts."""
    rules, text = profile.prompt, skill.description
    for key in rules.description_fields:
        text = f"{text} {as_text(skill.frontmatter.get(key)) or ''}".strip()
    return shorten(text, rules.description_chars) if rules.description_chars else text


# --- standard and rip ---


def _standard(skills: Sequence[Skill], profile: Profile, offered: Offered, budget: int | None) -> Prompt:
    limit = budget if budget is not None else profile.prompt.max_chars or None
    described = [skill for skill in skills if skill.mode != "name-only"]
    named = [skill for skill in skills if skill.mode == "name-only"]
    rules = _rules(offered)

    def text(full: Sequence[str], names: Sequence[str]) -> str:
        hidden = len(skills) - len(full) - len(names)
        parts = [*rules, "<available_skills>", *full]
        if names:
            parts.append("<more_skills>" + escape(", ".join(names)) + "</more_skills>")
        parts.append("</available_skills>")
        if hidden:
            find = f" Find them with `{offered['search']}`." if "search" in offered else ""
            parts.append(f"{hidden:,} of {len(skills):,} skills are not shown; they load by name all the same.{find}")
        return "\n".join(parts)

    def entry(skill: Skill, length: int | None) -> str:
        whole = description_of(skill, profile)
        description = whole if length is None else shorten(one_line(whole), length)
        further = "".join(_field(skill, key) for key in profile.prompt.fields)
        return (
            f"<skill><name>{escape(skill.name)}</name><description>{escape(description)}</description>{further}</skill>"
        )

    names = [skill.name for skill in named]
    full = [entry(skill, None) for skill in described]
    whole = text(full, names)
    if limit is None or len(whole) <= limit:
        return Prompt(whole, len(skills), len(skills), False, tuple(s.name for s in described), tuple(names))
    return _squeeze(skills, described, names, entry, text, limit)


def _squeeze(
    skills: Sequence[Skill],
    described: Sequence[Skill],
    names: list[str],
    entry: Callable[[Skill, int | None], str],
    text: Callable[[Sequence[str], Sequence[str]], str],
    limit: int,
) -> Prompt:
    """Shorten all descriptions alike; where even that is too much, name the rest; where even that, count it."""
    low, high = SHORTEST, max((len(entry(skill, None)) for skill in described), default=SHORTEST)
    if len(text([entry(skill, low) for skill in described], names)) <= limit:
        while low < high:
            middle = (low + high + 1) // 2
            if len(text([entry(skill, middle) for skill in described], names)) <= limit:
                low = middle
            else:
                high = middle - 1
        kept, rest = list(described), names
    else:
        kept, rest = _drop(skills, described, entry, limit - len(text([], [])) - 120)
    shown, total = len(kept) + len(rest), len(skills)
    return Prompt(
        text([entry(skill, low) for skill in kept], rest), shown, total, shown < total,
        tuple(skill.name for skill in kept), tuple(rest), True,
    )  # fmt: skip


def _drop(
    skills: Sequence[Skill], described: Sequence[Skill], entry: Callable[[Skill, int | None], str], room: int
) -> tuple[list[Skill], list[str]]:
    kept: list[Skill] = []
    used = 0
    for skill in described:
        cost = len(entry(skill, SHORTEST)) + 1
        # Pinned skills come first and are shown whatever it costs.
        if skill.mode != "pinned" and used + cost > room * (1 - NAMES_SHARE):
            break
        used += cost
        kept.append(skill)
    whole = {skill.path for skill in kept}
    rest: list[str] = []
    for name in (skill.name for skill in skills if skill.path not in whole):
        used += len(escape(name)) + 2
        if used > room:
            break
        rest.append(name)
    return kept, rest


def _rules(offered: Offered) -> list[str]:
    rules = ["Skills are folders of instructions for particular tasks. Use one when the task fits its description."]
    if "load" in offered:
        rules.append(f"Call `{offered['load']}` with a skill's name before you follow it; load only what you need.")
    if "read" in offered:
        rules.append(f"Read further files of a loaded skill with `{offered['read']}`, when its instructions say so.")
    return rules


def _field(skill: Skill, key: str) -> str:
    value = ", ".join(skill.allowed_tools) if key == "allowed-tools" else skill.compatibility or ""
    return f"<{key}>{escape(value)}</{key}>" if value else ""


# --- Codelia ---


def _codelia(skills: Sequence[Skill], profile: Profile, offered: Offered, budget: int | None) -> Prompt:
    entries: list[str] = []
    used = 0
    for skill in skills:
        fields = (
            ("name", skill.name),
            ("description", skill.description),
            ("path", skill.path),
            ("scope", skill.scope),
        )
        lines = "".join(f"    <{tag}>{escape(value)}</{tag}>\n" for tag, value in fields)
        element = f"  <skill>\n{lines}  </skill>\n"
        used += len(element.encode())
        too_many = profile.prompt.max_entries and len(entries) == profile.prompt.max_entries
        too_large = used > (budget if budget is not None else profile.prompt.max_bytes or used)
        if too_many or too_large:
            break
        entries.append(element)
    truncated = len(entries) < len(skills)
    rules = ["Skills are instructions for particular tasks; use one when the task fits its description."]
    if "load" in offered:
        rules.append(f"Load a skill with {offered['load']} before you follow it, by name, or by path if names repeat.")
    if truncated and "search" in offered:
        rules.append(
            f"This list is cut: {len(skills) - len(entries):,} more skills can be found with {offered['search']}."
        )
    usage = "".join(f"  <rule>{escape(rule)}</rule>\n" for rule in rules)
    flag = "true" if truncated else "false"
    text = (
        f"<skills_context>\n<skills_usage>\n{usage}</skills_usage>\n"
        f'<skills_catalog scope="initial" truncated="{flag}">\n{"".join(entries)}</skills_catalog>\n</skills_context>'
    )
    names = tuple(skill.name for skill in skills[: len(entries)])
    return Prompt(text, len(entries), len(skills), truncated, names)


# --- oh-my-pi, MyCodeAgent, RemcoChat ---


def lines_within(skills: Sequence[Skill], limit: int) -> list[str]:
    """`- name: description` lines, as many as fit; once one does not, none follows."""
    lines: list[str] = []
    used = 0
    for skill in skills:
        line = f"- {one_line(skill.name)}: {one_line(skill.description)}"
        used += len(line) + 1
        if limit and used > limit:
            break
        lines.append(line)
    return lines


def _list(skills: Sequence[Skill], profile: Profile, offered: Offered, budget: int | None) -> Prompt:
    lines = lines_within(skills, budget if budget is not None else profile.prompt.max_chars)
    text = ["# Skills", "Instructions for particular tasks; use one when the task fits its description."]
    if "read" in offered:
        text.append(f"Read one with `{offered['read']}` at skill://<name>, and its files at skill://<name>/<path>.")
    text += lines
    if len(lines) < len(skills):
        text.append(f"({len(skills) - len(lines):,} more are not shown)")
    return _counted("\n".join(text), lines, skills)


def tool_prompt(skills: Sequence[Skill], profile: Profile, budget: int | None = None) -> Prompt:
    """The description of MyCodeAgent's one tool, which carries the list of skills."""
    lines = lines_within(skills, budget if budget is not None else profile.prompt.max_chars)
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
    if len(lines) < len(skills):
        parts.append(f"({len(skills) - len(lines):,} more are not listed; they load by name all the same)")
    return _counted("\n".join(parts), lines, skills)


def _tool(skills: Sequence[Skill], profile: Profile, offered: Offered, budget: int | None) -> Prompt:
    prompt = tool_prompt(skills, profile, budget)
    name = offered.get("load")
    if name is None:
        return NOTHING
    rules = [
        f"- When the user names a skill, such as `$code-review` or in words, load it with the `{name}` tool.",
        "- When a task plainly fits a skill's description, consider loading it even if the user did not name it.",
        "- Load only the skills you need; never preload all of them.",
    ]
    text = "\n".join(("# Tools", "", f"## {name}", "", prompt.text, "", "# Skills", "", *rules))
    return Prompt(text, prompt.shown, prompt.total, prompt.truncated, prompt.names)


def _json(skills: Sequence[Skill], profile: Profile, offered: Offered, budget: int | None) -> Prompt:
    shown = list(skills)
    while True:
        entries = [{"name": one_line(s.name), "description": remove_invisible(s.description)} for s in shown]
        block = json.dumps({"available_skills": entries}, ensure_ascii=False, indent=2)
        if budget is None or len(block) <= budget or not shown:
            break
        shown.pop()
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
    text = block + "\n\n" + "\n".join(f"- {rule}" for rule in rules)
    names = tuple(skill.name for skill in shown)
    return Prompt(text, len(shown), len(skills), len(shown) < len(skills), names)


def _counted(text: str, lines: Sequence[str], skills: Sequence[Skill]) -> Prompt:
    names = tuple(skill.name for skill in skills[: len(lines)])
    return Prompt(text, len(lines), len(skills), len(lines) < len(skills), names)


_FORMATS: Final[Mapping[str, Callable[[Sequence[Skill], Profile, Offered, int | None], Prompt]]] = {
    "xml": _standard,
    "codelia": _codelia,
    "list": _list,
    "tool": _tool,
    "json": _json,
}
