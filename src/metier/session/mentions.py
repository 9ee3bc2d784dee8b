"""Find the skills that a user's message calls by name, in the forms that the profile accepts.

There are four forms. `/name` and `/skill:name` count only at the very start of a message, and the rest of the message
is their arguments. `$name` and `skill://name` count anywhere and leave the message unchanged. A name that is not in the
catalog is ordinary text, so `$PATH`, `$5` and `/usr` are left alone. A name shared by several skills is reported as
ambiguous, never guessed.
"""

import re
from collections.abc import Callable, Container
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
    """The skills that a message calls, the message without the command, and the command's arguments."""

    skills: tuple[Skill, ...] = ()
    message: str = ""
    arguments: str = ""
    command: bool = False
    ambiguous: tuple[str, ...] = ()
    """The paths of the candidates, if a name is ambiguous."""


def find(message: str, profile: Profile, known: Container[str], lookup: Callable[[str], Skill]) -> Mention:
    """Find the skills that a message calls.

    `known` are the names in the catalog: a long message may have a hundred thousand other words that look like names.
    `lookup` raises for names that a user cannot call.
    """
    forms = profile.invocation.forms
    if profile.invocation.commands:
        command = _COMMAND.match(message)
        if command is not None and ("/skill:name" if command[1] else "/name") in forms and command[2] in known:
            rest = message[command.end() :]
            try:
                return Mention((lookup(command[2]),), rest, rest.strip(), True)
            except AmbiguousSkill as error:
                return Mention(message=message, ambiguous=error.candidates)
            except MetierError:
                pass
    named: dict[str, Skill] = {}
    candidates: dict[str, None] = {}
    for name in filter(known.__contains__, dict.fromkeys(_named(message, forms))):
        try:
            skill = lookup(name)
            named.setdefault(skill.path, skill)
        except AmbiguousSkill as error:
            candidates.update(dict.fromkeys(error.candidates))
        except MetierError:
            continue
    return Mention(tuple(named.values()), message, ambiguous=tuple(candidates))


def _named(message: str, forms: tuple[str, ...]) -> list[str]:
    """Candidate names, in the order of the message."""
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
