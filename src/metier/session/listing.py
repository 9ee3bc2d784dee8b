"""Which skills a prompt shows, and in which order. The text itself is the host's: see `metier.hosts.formats`.

A prompt stays the same from turn to turn, so that a model's server can cache it. While everything fits, no message
changes it. Where the catalog does not fit, a fixed part comes first, and each message adds the skills that fit it best.
What was added stays, in the order of the record, for all processes of the session. When there is no room left, nothing
is added: the model finds the others by a search.
"""

import itertools
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, cast

from metier import limits
from metier.files.text import storable_text
from metier.hosts import formats
from metier.hosts.formats import CatalogView
from metier.hosts.schema import Profile
from metier.model import Skill
from metier.results import Prompt
from metier.session.catalog_fields import catalog_fields
from metier.session.context import SessionContext

ADDED: Final = 5
"""The most skills that one message adds. For 96 of 100 requests, the right one is among the best five."""

LEAST: Final = 0.45
"""The score that the best skill for a message needs, so that small talk does not use up the room. The first message is
worth a guess. One right answer in sixty is below it."""

FIXED: Final = 4
"""One in so many of the descriptions that have room is in the fixed part. The room of the others is for messages."""


def prompt(context: SessionContext, message: str | None, budget: int | None, files: Sequence[str] | None) -> Prompt:
    """The part of the system prompt that shows the catalog."""
    profile = context.profile
    if profile.prompt.needs_read_tool and not (context.has_read_tool and context.tools_enabled):
        return formats.NOTHING
    shown = relevant(context.visibility.visible(), profile, files)
    fields = catalog_fields(context.policy, profile)
    budget = default_budget(profile) if budget is None else budget
    view = CatalogView(skills=shown, profile=profile, offered=context.offered(), budget=budget, fields=fields)
    if profile.prompt.order == "relevance":
        ranked = context.skills.ranked(shown, message, context.state.activated[::-1])
        return formats.listing(replace(view, skills=ranked))
    view = replace(view, skills=context.skills.ranked(shown, None))
    whole = formats.listing(view)
    asked = message if message and message.strip() else ""
    if not _is_cut(whole, view.skills) or not (asked or context.state.chosen):
        return replace(whole, stable=len(whole.text))

    def fitting(among: Container[str], least: float) -> Sequence[Skill]:
        return context.skills.fitting(asked, among, ADDED, least) if asked else []

    return with_choices(view, whole, context.state.chosen, fitting)


def default_budget(profile: Profile) -> int | None:
    """The size of a listing if the caller names none. `None` if the host has limits of its own.

    A prompt that grows with the catalog would fill the window of a model: 31,000 public skills take 10 MB.
    """
    rules = profile.prompt
    if rules.char_limit is not None or rules.max_entries or profile.catalog.max_skills:
        return None
    return rules.max_bytes or limits.LISTING_CHARACTERS


def _is_cut(whole: Prompt, skills: Sequence[Skill]) -> bool:
    """Whether a skill has no room for its description."""
    return whole.truncated or len(whole.more) > sum(skill.mode == "name-only" for skill in skills)


def with_choices(
    view: CatalogView,
    whole: Prompt,
    chosen: Iterable[str],
    fitting: Callable[[Container[str], float], Sequence[Skill]],
) -> Prompt:
    """A prompt without room for all. `whole` is the one that shows as many descriptions as have room.

    `chosen` are the paths that messages brought in before. `fitting` gives the skills for the message, of those at
    these paths, if the best has at least this score.
    """
    described = [skill for skill in view.skills if skill.mode != "name-only"]
    pinned = sum(skill.mode == "pinned" for skill in described)
    fixed = described[: max(pinned, len(whole.names) // FIXED)]
    taken = {skill.path for skill in fixed}
    others = [skill for skill in view.skills if skill.path not in taken]
    view = replace(view, skills=fixed, others=others)
    bare = formats.listing(view)
    if bare.total != view.total:  # the formats of another package show only `skills`, and would lose the others
        return replace(whole, stable=len(whole.text))
    free = {storable_text(skill.path): skill for skill in described if skill.path not in taken}
    known = [free[path] for path in chosen if path in free]
    best = fitting({skill.path for skill in described}, LEAST if known else 0.0)
    new = [skill for skill in best if skill.path not in taken and skill not in known]
    shown = formats.listing(replace(view, chosen=[*known, *new]))
    added = len(shown.names) - len(fixed) - len(known)
    return replace(shown, stable=common_lines(bare.text, shown.text), chosen=tuple(new[: max(0, added)]))


def common_lines(one: str, other: str) -> int:
    """The number of characters of the lines at the start that both texts have."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one.split("\n"), other.split("\n"), strict=False))
    return min(sum(len(line) + 1 for line, _ in same), len(other))


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
