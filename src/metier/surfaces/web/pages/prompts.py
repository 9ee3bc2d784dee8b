"""The prompt page: what a model sees for a message and a budget under each profile, and what is left out.

Every profile has its own catalog.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from metier.hosts import profiles
from metier.record.usage import TOKEN_CHARACTERS
from metier.session.listing import Prompt
from metier.session.session import Session
from metier.skills import Skills
from metier.surfaces.web.overview import KINDS, Overview
from metier.surfaces.web.site import Site, whole

MESSAGE_CHARACTERS: Final = 4_000
TEXT_CHARACTERS: Final = 60_000
"""Characters of the prompt that are shown. The sizes are those of the whole prompt."""

SHOWN: Final = 200
"""Names shown in one list."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Skills that the prompt does not show in full, and the reason."""

    why: str
    names: Sequence[str]


def prompt(site: Site, request: Request) -> Response:
    message = request.query_params.get("message", "")[:MESSAGE_CHARACTERS]
    budget = whole(request.query_params.get("budget"), 0, 0, 10_000_000)
    own = site.app.config.profile.name
    names = list(dict.fromkeys((own, *profiles.names())))
    chosen = request.query_params.get("profile", own)
    chosen = chosen if chosen in names else own
    part = request.query_params.get("part", "")
    given = {"message": message, "budget": budget or "", "profile": chosen}
    if part == "profiles":
        rows = {name: _ask(site, name, message, budget)[1] for name in names}
        return site.page(request, "prompt/profiles.html", rows=rows, given=given, per_token=TOKEN_CHARACTERS)
    session, prompt = _ask(site, chosen, message, budget)
    return site.page(
        request,
        "prompt/answer.html" if part else "prompt/index.html",
        prompt=prompt,
        given=given,
        names=names,
        chosen=chosen,
        switched_off="" if session.profile.enabled else session.profile.off_hint,
        left=left_out(session, prompt),
        shown=SHOWN,
        per_token=TOKEN_CHARACTERS,
        most=TEXT_CHARACTERS,
    )


def _ask(site: Site, profile: str, message: str, budget: int) -> tuple[Session, Prompt]:
    session = site.skills(profile).session()
    return session, session.prompt(message or None, budget or None)


def left_out(session: Session, prompt: Prompt) -> list[LeftOut]:
    """The skills that the prompt does not show in full, by reason."""
    visible = session.visible()
    named, shown = set(prompt.more), {*prompt.names, *prompt.more}
    found: list[LeftOut] = []
    if visible and not prompt.text:
        rules = session.profile.prompt
        why = "this host lists skills only if it has a tool to read files" if rules.needs_read_tool else "not listed"
        return [LeftOut(why, [skill.name for skill in visible])]
    short = [skill.name for skill in visible if skill.name in named and skill.mode != "name-only"]
    by_choice = [skill.name for skill in visible if skill.name in named and skill.mode == "name-only"]
    missing = [skill.name for skill in visible if skill.name not in shown]
    found.append(LeftOut("no room for a description: listed by name only", short))
    found.append(LeftOut("listed by name only, by your choice", by_choice))
    found.append(LeftOut("no room: the model can still find them by search and load them by name", missing))
    seen = {skill.path for skill in visible}
    denied = [s.name for s in session.skills if s.path not in seen and s.visible]
    found.append(LeftOut("denied by a rule of the policy", denied))
    return [one for one in (*found, *_hidden(session.skills)) if one.names]


_REASONS: Final[Mapping[str, str]] = {
    "hidden": "hidden from the model",
    "off": "switched off",
    "shadowed": "another skill with the same name is used",
    "left-out": "left out by a rule of the profile",
    "broken": "broken",
}


def _hidden(skills: Skills) -> list[LeftOut]:
    by_kind: dict[str, list[str]] = {kind: [] for kind, _ in KINDS}
    for entry in Overview(skills.catalog).entries:
        by_kind[entry.kind].append(entry.name)
    return [LeftOut(_REASONS[kind], names) for kind, names in by_kind.items() if kind in _REASONS]
