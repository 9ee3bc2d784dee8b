"""The system prompt of a session: base, AGENTS.md files, the catalog, activated names, preloaded skills, in that order.

AGENTS.md files are instructions of their own: they are there whether or not there are skills, and are never skills. A
listing is put under a heading that the base has already, instead of under a second one of that name.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from metier.files.text import escape, one_line
from metier.hosts import context_files
from metier.hosts.formats import NOTHING
from metier.hosts.trust import is_trusted
from metier.session import listing, recall
from metier.session.context import SessionContext, Steps
from metier.values.results import Prompt, WholePrompt


def system_prompt(
    context: SessionContext, base: str, message: str | None, budget: int | None, files: Sequence[str] | None
) -> Steps[WholePrompt]:
    """Base, AGENTS.md files, skills, names already activated, preloaded skills: one text."""
    rules = context.profile
    always = listing.always_applied(context.visibility.visible(), rules, files)
    for skill in always:
        yield from context.file_requests(skill)
    yield
    applied = [(skill.name, context.reader.skill(skill, context.offered()).text) for skill in always]
    state = context.state
    preloaded = [*recall.given(context, state.preloaded), *applied, *recall.given(context, state.injected)]
    hidden = bool(preloaded) and rules.prompt.preloaded_replace
    listed = NOTHING if hidden else listing.prompt(context, message, budget, files)
    names = context.state.given if rules.context.activated and rules.enabled else ()
    settings = context.skills.settings
    trusted = is_trusted(settings.config_folder, settings.place.project)
    agents = context_files.texts(rules, settings.place, trusted)
    joined, rest = _joined(base, listed)
    text = assemble(joined, agents, rest, names, preloaded)
    sizes = tuple((name, len(body)) for name, body in applied)
    return WholePrompt(text, _stable(text, base, agents, listed), listed, sizes)


def _stable(text: str, base: str, agents: Sequence[tuple[str, str]], listed: Prompt) -> int:
    """The number of characters at the start of a prompt that no message changes: until what one added to the list."""
    joined, rest = _joined(base, replace(listed, text=listed.text[: listed.stable]))
    return listing.common_lines(assemble(joined, agents, rest, (), ()), text)


def assemble(
    base: str,
    agents: Sequence[tuple[str, str]],
    listed: str,
    activated: Sequence[str],
    preloaded: Sequence[tuple[str, str]],
) -> str:
    """One text, with what is empty left out."""
    parts = [base]
    if agents:
        files = "\n".join(f'<file path="{escape(path)}">\n{text.rstrip()}\n</file>' for path, text in agents)
        parts.append(f"<agents_context>\n{files}\n</agents_context>")
    parts.append(listed)
    if activated:
        parts.append("Skills activated in this conversation: " + ", ".join(one_line(name) for name in activated))
    if preloaded:
        whole = "\n".join(f'<skill name="{escape(name)}">\n{text.strip()}\n</skill>' for name, text in preloaded)
        parts.append(f"<preloaded_skills>\n{whole}\n</preloaded_skills>")
    return "\n\n".join(part for part in parts if part)


# --- headings ---

_HEADING: Final = re.compile(r" {0,3}(?P<level>#{1,6})[ \t]+(?P<title>.*?)[ \t]*#*[ \t]*")
"""Headings are Markdown's `#` lines outside of code blocks. Case and level do not matter to find one."""
_FENCE: Final = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})")


def _joined(base: str, listed: Prompt) -> tuple[str, str]:
    """The base with the part of the listing that belongs under one of its headings, and the rest of the listing.

    A listing that names no heading stays whole, and so does one whose heading the base does not have.
    """
    lines = base.split("\n")
    headings = list(_headings(lines))
    title = listed.heading.casefold()
    place = next((number for number, (_, _, name) in enumerate(headings) if name.casefold() == title), None)
    if not title or place is None:
        return base, listed.text
    _, level, _ = headings[place]
    end = next((line for line, other, _ in headings[place + 1 :] if other <= level), len(lines))
    section, rest = _first_section(listed.text.split("\n"), level)
    before, after = "\n".join(lines[:end]).rstrip("\n"), "\n".join(lines[end:])
    return "\n\n".join(part for part in (before, section, after) if part), rest


def _first_section(lines: Sequence[str], level: int) -> tuple[str, str]:
    """The text below the first heading, with its own headings below `level`, and the text from the next heading on."""
    headings = list(_headings(lines))
    end = next((line for line, other, _ in headings[1:] if other <= headings[0][1]), len(lines))
    own = {line for line, _, _ in headings}
    deeper = "#" * (level - headings[0][1])
    section = [deeper + line if number in own else line for number, line in enumerate(lines[:end])]
    return "\n".join(section[1:]).strip("\n"), "\n".join(lines[end:])


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """The headings of a text: the number of the line, the level and the title of each."""
    fence = ""
    for number, line in enumerate(lines):
        opened = _FENCE.match(line)
        if opened and not fence:
            fence = opened["fence"]
        elif fence and line.strip().startswith(fence) and not line.strip(" \t" + fence[0]):
            fence = ""
        elif not fence and (found := _HEADING.fullmatch(line)):
            yield number, len(found["level"]), found["title"]
