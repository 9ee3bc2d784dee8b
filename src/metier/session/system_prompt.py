"""The system prompt of a session: base, AGENTS.md files, the catalog, activated names, preloaded skills, in that order.

AGENTS.md files are instructions of their own: they are there whether or not there are skills, and are never skills.
"""

import os
from collections.abc import Sequence

from metier import limits
from metier.files.text import escape, from_utf8, one_line
from metier.hosts.roots import Place
from metier.hosts.schema import Profile
from metier.session import listing, recall
from metier.session.context import SessionContext

_FILE = "AGENTS.md"


def system_prompt(
    context: SessionContext, base: str, message: str | None, budget: int | None, files: Sequence[str] | None
) -> str:
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
    shown = "" if hidden else listing.prompt(context, message, budget, files).text
    names = context.state.activated if rules.context.activated and rules.enabled else ()
    return assemble(base, agents_files(rules, context.skills.settings.place), shown, names, preloaded)


def agents_files(profile: Profile, place: Place) -> list[tuple[str, str]]:
    """Path and content of the AGENTS.md files that apply, the outermost first."""
    rule = profile.context.agents_files
    if rule == "none":
        return []
    folders = list(place.chain)
    if rule == "ancestors":
        folders = [place.cwd]
        while len(folders) <= profile.context.max_levels and os.path.dirname(folders[-1]) != folders[-1]:
            folders.append(os.path.dirname(folders[-1]))
        folders = [folder for folder in folders if not any(part.startswith(".") for part in folder.split("/"))]
    found: list[tuple[str, str]] = []
    for folder in reversed(folders):
        path = os.path.join(folder, _FILE)
        try:
            if not os.path.isfile(path):
                continue
            with open(path, "rb") as stream:
                data = stream.read(limits.CONTEXT_FILE_BYTES)
        except OSError:
            continue
        found.append((path, from_utf8(data)))
    return found


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
