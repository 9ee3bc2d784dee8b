"""Find the skills that a user's message calls, in the forms that the profile accepts.

There are six forms. `/name` and `/skill:name` count only at the very start of a message, and the rest of the message
is their arguments. `$name`, `@name`, `skill://name` and `path`, which is the path of a SKILL.md or of its folder, count
anywhere and leave the message unchanged. What is not in the catalog is ordinary text, so `$PATH`, `$5` and `/usr` are
left alone. A name shared by several skills is decided by a path beside it, as in `use $name at PATH` or
`[$name](PATH)`; without one it is reported as ambiguous, never guessed.
"""

import os
import re
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Final

from metier.catalog.build import Catalog
from metier.errors import AmbiguousSkill, MetierError, SkillNotFound
from metier.files.urls import parse_url
from metier.hosts.profiles import Profile
from metier.values.results import AmbiguousMention
from metier.values.skill import Skill
from metier.values.value import Value, field

_COMMAND: Final = re.compile(r"/(skill:)?(\S+)(\s*)", re.DOTALL)
_UNLOAD: Final = re.compile(r"/unload\s+(\S+)\s*")
_DOLLAR: Final = re.compile(r"(?<![\w$\\])\$([^\W_]\w*(?:-\w+)*)")
_AT: Final = re.compile(r"(?<![\w@\\])@([^\W_]\w*(?:-\w+)*)")
_URL: Final = re.compile(r"(?<![\w/])skill://[^\s<>\"'`)\]]+")
_QUOTED: Final = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|(?<!\w)'([^'\n]+)'|<([^<>\n]+)>")
"""A path with spaces is put into quotes or, in a link, into angle brackets."""
_BARE: Final = re.compile(r"[^\s`\"<>()\[\]]+")
_PATH_LENGTH: Final = 4096


class Mention(Value):
    """The skills that a message calls, the message without the command, and the command's arguments."""

    skills: tuple[Skill, ...] = ()
    message: str = ""
    arguments: str = ""
    command: bool = False
    ambiguous: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The names that several skills bear, each with the paths of these skills."""


def mentioned(catalog: Catalog, may_call: Callable[[Skill], bool], message: str, *, by_path: bool = True) -> Mention:
    """The skills of a catalog that a message calls, of those that a user may call."""
    places = dict[str, Skill]()

    def named(name: str) -> Skill:
        try:
            found = [catalog.find(name)]
        except AmbiguousSkill:
            found = catalog.by_name[name]
        bearers = [skill for skill in found if may_call(skill)]
        if len(bearers) > 1:
            raise AmbiguousSkill(name, [skill.path for skill in bearers])
        if not bearers:
            raise SkillNotFound(name)
        return bearers[0]

    def at(path: str) -> Skill | None:
        """The skill at a path as a message may have it: absolute, from the working directory, or from `~`."""
        if not by_path:
            return None
        if not places:
            for skill in (*(entry.skill for entry in catalog.shadowed), *catalog.skills):
                places.update(dict.fromkeys((skill.real_path, skill.folder, skill.dir, skill.path), skill))
        whole = os.path.join(catalog.place.home, path[2:]) if path.startswith("~/") else path
        skill = places.get(os.path.normpath(os.path.join(catalog.place.cwd, whole)))
        return skill if skill is not None and may_call(skill) else None

    return find(message, catalog.profile, catalog.by_name, named, at)


def unloaded(catalog: Catalog, message: str) -> str:
    """The name in a message that is `/unload NAME` and nothing else, unless a skill is called `unload`."""
    found = _UNLOAD.fullmatch(message) if catalog.profile.tools.unload and "unload" not in catalog.by_name else None
    return found[1] if found else ""


def choices(catalog: Catalog, mention: Mention) -> tuple[AmbiguousMention, ...]:
    """The names in a message that several skills bear, with these skills."""
    return tuple(
        AmbiguousMention(name, tuple(skill for skill in catalog.by_name[name] if skill.path in paths))
        for name, paths in mention.ambiguous.items()
    )


def find(
    message: str,
    profile: Profile,
    known: Container[str],
    lookup: Callable[[str], Skill],
    at: Callable[[str], Skill | None],
) -> Mention:
    """Find the skills that a message calls.

    `known` are the names in the catalog: a long message may have a hundred thousand other words that look like names.
    `lookup` raises for names that a user cannot call. `at` returns the skill at a path, if a user can call it.
    """
    forms = profile.invocation.forms
    if profile.invocation.commands:
        command = _COMMAND.match(message)
        if command is not None and ("/skill:name" if command[1] else "/name") in forms and command[2] in known:
            rest = message[command.end() :]
            try:
                return Mention((lookup(command[2]),), rest, rest.strip(), True)
            except AmbiguousSkill as error:
                placed = [skill for _, skill in _placed(rest, at) if skill.name == command[2]]
                if placed:
                    return Mention((placed[0],), rest, rest.strip(), True)
                return Mention(message=message, ambiguous={error.name: error.candidates})
            except MetierError:
                pass
    named = [(place, name) for place, name in _named(message, forms) if name in known]
    placed = list(_placed(message, at)) if named or "path" in forms else []
    decided = {skill.name for _, skill in placed}
    if "path" not in forms:
        called = {name for _, name in named}
        placed = [(place, skill) for place, skill in placed if skill.name in called]
    found = list(placed)
    ambiguous: dict[str, tuple[str, ...]] = {}
    places: dict[str, int] = {}
    for place, name in named:
        places.setdefault(name, place)
    for name, place in places.items():
        if name in decided:
            continue
        try:
            found.append((place, lookup(name)))
        except AmbiguousSkill as error:
            ambiguous[name] = error.candidates
        except MetierError:
            continue
    found.sort(key=lambda one: one[0])
    return Mention(tuple({skill.path: skill for _, skill in found}.values()), message, ambiguous=ambiguous)


def _named(message: str, forms: tuple[str, ...]) -> list[tuple[int, str]]:
    """Candidate names and their places, in the order of the message."""
    found: list[tuple[int, str]] = []
    if "$name" in forms:
        found += [(match.start(), match[1]) for match in _DOLLAR.finditer(message)]
    if "@name" in forms:
        found += [(match.start(), match[1]) for match in _AT.finditer(message)]
    if "skill://name" in forms:
        for match in _URL.finditer(message):
            try:
                found.append((match.start(), parse_url(match[0].rstrip(".,;:!?"))[0]))
            except MetierError:
                continue
    return sorted(found)


def _placed(message: str, at: Callable[[str], Skill | None]) -> Iterator[tuple[int, Skill]]:
    """The skills whose paths are in a message, and where."""
    for match in (*_QUOTED.finditer(message), *_BARE.finditer(message)):
        path = match[match.lastindex or 0].strip("'").rstrip(".,;:!?'")
        skill = at(path) if "/" in path and len(path) <= _PATH_LENGTH else None
        if skill is not None:
            yield match.start(), skill
