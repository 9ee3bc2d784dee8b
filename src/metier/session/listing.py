"""Which skills a prompt shows, and in which order. The text itself is the host's: see `metier.hosts.formats`.

A prompt stays the same from turn to turn, so that a model's server can cache it. While everything fits, no message
changes it. Where the catalog does not fit, the profile decides: the list of the host is the same for every message, or
messages have an eighth of the room. Then a fixed part comes first, and each message adds the skills that fit it best.
They stay, in the order of the record, for all processes of the session, until a later message needs their room.

Rules decide which fields of a skill its entry shows besides name and description: a rule of the policy may be
`{tool = "catalog_field", path = "compatibility"}`. Where no rule covers a field, the setting `prompt.fields` does, and
a project cannot extend that unless the user trusts it. Nobody is asked while a prompt is built, so an ask rule hides a
field like a deny rule.
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
from metier.policy.decide import Policy
from metier.policy.rules import CATALOG_FIELD, skill_request
from metier.session.context import SessionContext
from metier.values.results import Prompt
from metier.values.skill import STANDARD_KEYS, Skill

ADDED: Final = 5
"""The most skills that one message adds. For 96 of 100 requests, the right one is among the best five."""

LEAST: Final = 0.45
"""The score that the best skill for a message needs, so that small talk does not use up the room. The first message is
worth a guess. One right answer in sixty is below it."""

ROOM: Final = 8
"""One in so many of the skills that have room, and at least one description, is left out of the fixed part. Its room is
for messages."""


def prompt(context: SessionContext, message: str | None, budget: int | None, files: Sequence[str] | None) -> Prompt:
    """The part of the system prompt that shows the catalog."""
    profile = context.profile
    if profile.prompt.needs_read_tool and not (context.has_read_tool and context.tools_enabled):
        return formats.NOTHING
    shown = relevant(context.visibility.visible(), profile, files)
    fields = _shown_fields(context.policy, profile)
    budget = default_budget(profile) if budget is None else budget
    view = CatalogView(skills=shown, profile=profile, offered=context.offered(), budget=budget, fields=fields)
    if profile.prompt.order == "relevance":
        ranked = context.skills.ranked(shown, message, context.state.activated[::-1])
        return formats.listing(replace(view, skills=ranked))
    view = replace(view, skills=context.skills.ranked(shown, None))
    whole = formats.listing(view)
    if profile.prompt.order == "catalog" or not _is_cut(whole, view.skills):
        return replace(whole, stable=len(whole.text))

    def fitting(among: Container[str], least: float) -> Sequence[Skill]:
        return context.skills.fitting(message, among, ADDED, least) if message and message.strip() else []

    return with_choices(view, whole, context.state.chosen, fitting)


def _shown_fields(policy: Policy, profile: Profile) -> Callable[[Skill], tuple[str, ...]]:
    """A function that returns the keys to show of a skill."""
    listed = profile.prompt.fields
    if not policy.has_rules_about(CATALOG_FIELD):
        return lambda _: listed
    keys = dict.fromkeys((*listed, *(key for key in STANDARD_KEYS if key not in ("name", "description"))))

    def shows(skill: Skill, key: str) -> bool:
        decision = policy.decide(skill_request(CATALOG_FIELD, skill, key))
        return decision.verdict == "allow" if decision.rule is not None else key in listed

    return lambda skill: tuple(key for key in keys if shows(skill, key))


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
    """A prompt without room for all. `whole` is the one that shows as many skills as have room.

    `chosen` are the paths that messages brought in before. `fitting` gives the skills for the message, of those at
    these paths, if the best has at least this score.
    """
    described = [skill for skill in view.skills if skill.mode != "name-only"]
    if whole.names != tuple(skill.name for skill in described[: len(whole.names)]):
        described = list(view.skills)  # the format describes all skills alike
    pinned = sum(skill.mode == "pinned" for skill in described)
    fixed = described[: max(pinned, len(whole.names) - max(1, len(whole.names) // ROOM))]
    taken = {skill.path for skill in fixed}
    others = [skill for skill in view.skills if skill.path not in taken]
    named = max(0, whole.shown - whole.shown // ROOM - len(fixed))
    view = replace(view, skills=fixed, others=others, named=named)
    bare = formats.listing(view)
    if bare.text == whole.text or bare.total != view.total:
        # Nothing can be left out, or the formats of another package know only `skills` and would lose the others.
        return replace(whole, stable=len(whole.text))
    free = {storable_text(skill.path): skill for skill in described if skill.path not in taken}
    known = [free[path] for path in chosen if path in free]
    best = fitting({skill.path for skill in described}, LEAST if known else 0.0)
    best = [skill for skill in best if skill.path not in taken]
    new = [skill for skill in best if skill not in known]

    def listed(skills: Sequence[Skill]) -> tuple[Prompt, Sequence[Skill]]:
        """The prompt with these skills at the end, and those of them that have room."""
        prompt = formats.listing(replace(view, chosen=skills))
        return prompt, skills[: max(0, len(prompt.names) - len(fixed))]

    prompt, added = listed([*known, *new])
    replaces = False
    if len(added) < len(known) + len(new):  # they take the place of earlier ones, if more of them are shown so
        anew, instead = listed(best)
        replaces = len(instead) > sum(skill in best for skill in added)
        if replaces:
            prompt, added, known = anew, instead, []
    if not added:
        prompt = whole
    brought = tuple(skill for skill in added if skill not in known)
    return replace(prompt, stable=common_lines(bare.text, prompt.text), chosen=brought, replaces=replaces)


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
