"""The catalog as text for a client's model: in the server's instructions and in the description of the load tool.

Many hosts show a model nothing else of a server before it calls a tool, and some cut either text after two kilobytes.
So both say which skill is for what, in a fixed order and within a limit of characters: descriptions where all fit, or
else their first sentences. Skills that do not fit even so are counted, and the search tool finds them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from metier.files.text import one_line, shorten
from metier.hosts import formats
from metier.hosts.formats import Offered
from metier.hosts.formats.standard import way_to_others
from metier.record.offers import OfferedSkill, Place, SkillOffer
from metier.session.session import Session
from metier.values.results import Tool
from metier.values.skill import SCOPE_ORDER, Skill

_SHORTER: Final = (300, 200, 140, 100, 70)
"""The lengths that first sentences are cut to, until every skill fits."""

_LEFT_OUT: Final = 100
"""The length that sentences are cut to where skills are left out."""

_TOO_SHORT: Final = 20
"""A first sentence below this length, such as `PDF.`, is shown with the next."""

_SENTENCE: Final = re.compile(r"(?<![\s.(]\w)[.!?](?=\s)|[。！？]")
"""The end of a sentence. A single letter before the full stop is an abbreviation, as in `e.g.`."""

_INTRODUCTION: Final = "Agent Skills: folders with instructions and files, each for one kind of task."


@dataclass(frozen=True, slots=True)
class CatalogText:
    """A text for a client's model, and the skills that it has."""

    text: str
    offer: SkillOffer | None = None


def instructions(session: Session, limit: int) -> CatalogText:
    """The instructions of the server: what skills are, how to use one, and the catalog, unless `limit` is 0."""
    if not session.profile.enabled:
        return CatalogText(session.profile.off_message)
    skills, offered = session.visible(), session.offered(wire=True)
    head = f"{_INTRODUCTION} {_usage(offered)}"
    if not skills:
        return CatalogText(f"{head} There is no skill at present.")
    return _with_catalog(head, "instructions", skills, offered, limit) if limit else CatalogText(head)


def description(session: Session, tool: Tool, limit: int) -> CatalogText:
    """The description of a tool. That of the tool that loads skills has the catalog."""
    offered, skills = session.offered(wire=True), session.visible()
    loads = offered.get("load") or offered.get("read")
    # A host that lists its skills in the description of its own tool has done so already.
    listed = "load" in formats.find("format", session.profile.prompt.format).needs
    if tool.name != loads or listed or not limit or not skills:
        return CatalogText(tool.description)
    return _with_catalog(tool.description, "tools", skills, offered, limit)


def _with_catalog(head: str, place: Place, skills: Sequence[Skill], offered: Offered, limit: int) -> CatalogText:
    heading, lines = _catalog(skills, offered, limit - len(head) - 2)
    listed = "\n".join([heading, *(line for _, line in lines)])
    rows = tuple(
        OfferedSkill(skill.name, len(line), "named" if skill.mode == "name-only" else "described")
        for skill, line in lines
    )
    return CatalogText(f"{head}\n\n{listed}", SkillOffer(place, len(listed), len(skills), rows))


def _usage(offered: Offered) -> str:
    """How a model uses a skill, by the tools that it has."""
    if "load" in offered:
        said = [f"Before a task that fits a skill, call `{offered['load']}` with its name and follow what it says."]
        if "read" in offered:
            said.append(f"Read its other files with `{offered['read']}`.")
    elif "read" in offered:
        said = [
            f"Before a task that fits a skill, call `{offered['read']}` with skill://<name> and follow what it says.",
            "Its other files are at skill://<name>/<path>.",
        ]
    else:
        said = ["Before a task that fits a skill, read the resource skill://<name>/SKILL.md and follow what it says."]
    if "run" in offered:
        said.append(f"Run its scripts with `{offered['run']}`.")
    return " ".join(said)


def _catalog(skills: Sequence[Skill], offered: Offered, room: int) -> tuple[str, list[tuple[Skill, str]]]:
    """A heading and a line for each skill, the most general first. The heading says if skills are left out.

    A host that cuts the text cuts its end, so what helps beyond the list comes before it.
    """
    ranked = sorted(skills, key=_rank)
    for length in (None, *_SHORTER):
        whole = [(skill, _line(skill, length)) for skill in ranked]
        if len("The skills:") + sum(len(line) + 1 for _, line in whole) <= room:
            return "The skills:", whole
    room -= len(_heading(len(ranked), len(ranked), offered))
    lines: list[tuple[Skill, str]] = []
    for skill in ranked:
        line = _line(skill, _LEFT_OUT)
        room -= len(line) + 1
        if room < 0:
            break
        lines.append((skill, line))
    return _heading(len(lines), len(ranked), offered), lines


def _heading(shown: int, total: int, offered: Offered) -> str:
    heading = f"{shown:,} of {total:,} skills, the most general first."
    if "search" in offered:
        return f"{heading} If none of these fits the task, call `{offered['search']}` with what it is about:"
    return f"{heading} You can still load the others by name. {way_to_others(offered).removesuffix('.')}:"


def _rank(skill: Skill) -> tuple[bool, int, int, int, str, str]:
    """The order of skills: pinned ones, the project's before the user's, and then the general before the special.

    A name of fewer words is more general (`pdf` before `pdf-form-fields`), and then a shorter first sentence. The name
    and the path decide the rest, so the order of one catalog is always the same.
    """
    words = len(re.findall(r"\w+", skill.name))
    sentence = len(first_sentence(skill.description))
    return skill.mode != "pinned", SCOPE_ORDER.get(skill.scope, 3), words, sentence, skill.name, skill.path


def _line(skill: Skill, length: int | None) -> str:
    """A skill with its first sentence, cut to a length; with its whole description where there is none."""
    name = one_line(skill.name)
    if skill.mode == "name-only":
        return f"- {name}"
    about = one_line(skill.description) if length is None else shorten(first_sentence(skill.description), length)
    return f"- {name}: {about}"


def first_sentence(text: str) -> str:
    """The first sentence of a description on one line, or the first two, if the first hardly says anything."""
    line = one_line(text)
    end = next((found.end() for found in _SENTENCE.finditer(line) if found.end() >= _TOO_SHORT), len(line))
    return line[:end]
