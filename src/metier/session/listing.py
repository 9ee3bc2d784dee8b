"""Which skills a prompt shows, and in which order. The text itself is the host's: see `metier.hosts.formats`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import cast

from metier.hosts import formats
from metier.hosts.formats import CatalogView
from metier.hosts.schema import Profile
from metier.model import Skill
from metier.results import Prompt
from metier.session.catalog_fields import catalog_fields
from metier.session.context import SessionContext


def prompt(context: SessionContext, message: str | None, budget: int | None, files: Sequence[str] | None) -> Prompt:
    """The part of the system prompt that shows the catalog."""
    profile = context.profile
    if profile.prompt.needs_read_tool and not (context.has_read_tool and context.tools_enabled):
        return formats.NOTHING
    shown = relevant(context.visibility.visible(), profile, files)
    # A host that lists its skills as they were found has one order, whatever the message is.
    sought = None if profile.catalog.order == "found" else message
    ranked = context.skills.ranked(shown, sought, context.state.activated[::-1])
    fields = catalog_fields(context.policy, profile)
    view = CatalogView(skills=ranked, profile=profile, offered=context.offered(), budget=budget, fields=fields)
    return formats.listing(view)


def relevant(skills: Sequence[Skill], profile: Profile, files: Sequence[str] | None) -> list[Skill]:
    """The skills to show. A skill that names files is shown only while one of those files is being worked on."""
    keys = [key for key in ("paths", "globs") if key in profile.catalog.honours]
    if not keys or files is None:
        return list(skills)
    return [skill for skill in skills if _concerns(skill, keys, files)]


def always_applied(skills: Sequence[Skill], profile: Profile, files: Sequence[str] | None) -> list[Skill]:
    """The skills that ask to be in every prompt, where the profile grants it."""
    if "alwaysApply" not in profile.catalog.honours:
        return []
    return [s for s in relevant(skills, profile, files) if s.frontmatter.get("alwaysApply") is True]


def _concerns(skill: Skill, keys: Sequence[str], files: Sequence[str]) -> bool:
    globs: list[str] = []
    for key in keys:
        value: object = skill.frontmatter.get(key)
        if isinstance(value, str):
            globs += [part.strip() for part in value.split(",")]
        elif isinstance(value, list):
            globs += [item for item in cast("list[object]", value) if isinstance(item, str)]
    return not globs or any(fnmatchcase(file, glob) for file in files for glob in globs)
