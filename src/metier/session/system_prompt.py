"""The system prompt of a session: base, AGENTS.md files, the catalog, activated names, preloaded skills, in that order.

AGENTS.md files are instructions of their own: they are there whether or not there are skills, and are never skills.
"""

from collections.abc import Sequence
from dataclasses import replace

from metier.files.text import escape, one_line
from metier.hosts import context_files
from metier.hosts.formats import NOTHING
from metier.hosts.trust import is_trusted
from metier.results import Prompt, WholePrompt
from metier.session import listing, recall, sections
from metier.session.context import SessionContext


def system_prompt(
    context: SessionContext, base: str, message: str | None, budget: int | None, files: Sequence[str] | None
) -> WholePrompt:
    """Base, AGENTS.md files, skills, names already activated, preloaded skills: one text."""
    rules = context.profile
    always = listing.always_applied(context.visibility.visible(), rules, files)
    applied: list[tuple[str, str]] = []
    for skill in always:
        context.confirm_file(skill)
        applied.append((skill.name, context.reader.skill(skill, context.offered()).text))
    state = context.state
    preloaded = [*recall.given(context, state.preloaded), *applied, *recall.given(context, state.injected)]
    hidden = bool(preloaded) and rules.prompt.preloaded_replace
    listed = NOTHING if hidden else listing.prompt(context, message, budget, files)
    names = context.state.given if rules.context.activated and rules.enabled else ()
    settings = context.skills.settings
    trusted = is_trusted(settings.config_folder, settings.place.project)
    agents = context_files.texts(rules, settings.place, trusted)
    joined, rest = sections.join(base, listed)
    text = assemble(joined, agents, rest, names, preloaded)
    sizes = tuple((name, len(body)) for name, body in applied)
    return WholePrompt(text, _stable(text, base, agents, listed), listed.chosen, listed, sizes)


def _stable(text: str, base: str, agents: Sequence[tuple[str, str]], listed: Prompt) -> int:
    """The number of characters at the start of a prompt that no message changes: until what one added to the list."""
    joined, rest = sections.join(base, replace(listed, text=listed.text[: listed.stable]))
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
