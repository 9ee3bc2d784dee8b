"""The system prompt of a session: base, AGENTS.md files, the catalog, activated names, preloaded skills, in that order.

AGENTS.md files are instructions of their own: they are there whether or not there are skills, and are never skills.
"""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from metier import limits
from metier.files.text import escape, from_utf8, one_line
from metier.hosts.profiles import Profile
from metier.hosts.roots import Place
from metier.model import Skill

_FILE = "AGENTS.md"


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
    listing: str,
    activated: Sequence[str],
    preloaded: Sequence[tuple[str, str]],
) -> str:
    """One text, with what is empty left out."""
    parts = [base]
    if agents:
        files = "\n".join(f'<file path="{escape(path)}">\n{text.rstrip()}\n</file>' for path, text in agents)
        parts.append(f"<agents_context>\n{files}\n</agents_context>")
    parts.append(listing)
    if activated:
        parts.append("Skills activated in this conversation: " + ", ".join(one_line(name) for name in activated))
    if preloaded:
        whole = "\n".join(f'<skill name="{escape(name)}">\n{text.strip()}\n</skill>' for name, text in preloaded)
        parts.append(f"<preloaded_skills>\n{whole}\n</preloaded_skills>")
    return "\n\n".join(part for part in parts if part)


def relevant(skills: Sequence[Skill], profile: Profile, files: Sequence[str] | None) -> list[Skill]:
    """The skills to show: those that name files are shown only while one of those is being worked on."""
    keys = [key for key in ("paths", "globs") if key in profile.catalog.honours]
    if not keys or files is None:
        return list(skills)
    return [skill for skill in skills if _concerns(skill, keys, files)]


def always_applied(skills: Sequence[Skill], profile: Profile, files: Sequence[str] | None) -> list[Skill]:
    """Skills that ask to be in every prompt, where the profile grants it."""
    if "alwaysApply" not in profile.catalog.honours:
        return []
    return [s for s in relevant(skills, profile, files) if s.frontmatter.get("alwaysApply") is True]


def _concerns(skill: Skill, keys: Sequence[str], files: Sequence[str]) -> bool:
    globs: list[str] = []
    for key in keys:
        value: Any = skill.frontmatter.get(key)
        if isinstance(value, str):
            globs += [part.strip() for part in value.split(",")]
        elif isinstance(value, list):
            globs += [item for item in value if isinstance(item, str)]  # pyright: ignore[reportUnknownVariableType]
    return not globs or any(fnmatchcase(file, glob) for file in files for glob in globs)
