"""A skill called by name in a user's message, in the grammar of the profile.

Four forms: `/name` and `/skill:name` at the very start of a message, with the rest as arguments; `$name` and
`skill://name` anywhere in it, which leave the message as it is. A name that is not in the catalog is ordinary text, so
`$PATH`, `$5` and `/usr` stay what they are. A name that several skills bear is reported, never guessed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from metier.errors import AmbiguousSkill, MetierError
from metier.files.urls import parse_url
from metier.hosts.profiles import Profile
from metier.model import Skill

_COMMAND: Final = re.compile(r"/(skill:)?(\S+)(\s*)", re.DOTALL)
_DOLLAR: Final = re.compile(r"(?<![\w$\\])\$([^\W_]\w*(?:-\w+)*)")
_URL: Final = re.compile(r"(?<![\w/])skill://[^\s<>\"'`)\]]+")


@dataclass(frozen=True, slots=True)
class Mention:
    """What a message calls: the skills, the message without the command, and the command's arguments."""

    skills: tuple[Skill, ...] = ()
    message: str = ""
    arguments: str = ""
    command: bool = False
    ambiguous: tuple[str, ...] = ()
    """The paths of the candidates, where a name decides nothing."""


def find(message: str, profile: Profile, lookup: Callable[[str], Skill]) -> Mention:
    """The skills that a message calls. `lookup` raises for names that are not in the catalog."""
    forms = profile.invocation.forms
    if profile.invocation.commands:
        command = _COMMAND.match(message)
        if command is not None and ("/skill:name" if command[1] else "/name") in forms:
            rest = message[command.end() :]
            try:
                return Mention((lookup(command[2]),), rest, rest.strip(), True)
            except AmbiguousSkill as error:
                return Mention(message=message, ambiguous=error.candidates)
            except MetierError:
                pass
    named: dict[str, Skill] = {}
    candidates: list[str] = []
    for name in _named(message, forms):
        try:
            skill = lookup(name)
            named.setdefault(skill.path, skill)
        except AmbiguousSkill as error:
            candidates += error.candidates
        except MetierError:
            continue
    return Mention(tuple(named.values()), message, ambiguous=tuple(candidates))


def _named(message: str, forms: tuple[str, ...]) -> list[str]:
    """Candidate names in the order in which they stand."""
    found: list[tuple[int, str]] = []
    if "$name" in forms:
        found += [(match.start(), match[1]) for match in _DOLLAR.finditer(message)]
    if "skill://name" in forms:
        for match in _URL.finditer(message):
            try:
                found.append((match.start(), parse_url(match[0].rstrip(".,;:!?"))[0]))
            except MetierError:
                continue
    return [name for _, name in sorted(found)]
