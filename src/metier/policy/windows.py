"""The execution windows of active skills: what their `allowed-tools` leave usable until the user's next turn.

A window can only narrow. Searching, loading and reading skills stays under policy alone: an active skill needs its own
files, and a user may always turn to another skill. Running a script needs the consent of every active skill, and so
does each tool of the host.

A pattern such as `Bash(git:*)` is about one command, and a command line has many. A window therefore covers a line only
if it covers every command in it, and only if it can read the line for sure. It reads words of plain characters, quotes
in which nothing is expanded, the operators `;`, `&`, `&&`, `|`, `||` and line breaks, and output to nowhere such as
`2>/dev/null` and `2>&1`. All else needs `Bash` without a pattern: `$`, backticks, other redirections, brackets and
braces, unquoted `~`, `*` and `?`, backslashes, comments, assignments before a command.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from metier.catalog.build import Catalog
from metier.files.text import storable_text
from metier.hosts.schema import Profile
from metier.policy.decide import Policy
from metier.policy.rules import canonical, skill_request
from metier.record.state import NOTHING, Window
from metier.values.results import Request
from metier.values.skill import ROLES, Skill

_RUN: Final = "skill_run"
_SKILL_TOOLS: Final = frozenset(f"skill_{role}" for role in ROLES)


def of(skill: Skill) -> tuple[str, ...]:
    """The entries of the window of a skill."""
    hint = skill.allowed_tools
    return () if hint is None else hint or NOTHING


def may_use(policy: Policy, catalog: Catalog, windows: Mapping[str, Window], tool: str, command: str = "") -> bool:
    """Whether policy and every window allow a tool now, for `command` if one is given. Windows are by path."""
    name = canonical(tool, catalog.profile)
    if name in _SKILL_TOOLS:
        allowed = policy.decide(Request(name, command=command)).verdict != "deny"
    else:
        allowed = policy.host_allows(Request(tool, command=command))
    return allowed and not refusing(policy, catalog, windows, tool, command)


def refusing(policy: Policy, catalog: Catalog, windows: Mapping[str, Window], tool: str, command: str = "") -> str:
    """The name of an active skill in whose window a tool may not be used; empty where there is none."""
    profile = catalog.profile
    name = canonical(tool, profile)
    if name in _SKILL_TOOLS and name != _RUN:
        return ""
    for path, window in windows.items():
        if name == _RUN:
            allowed = not profile.policy.enforce_hints or lists_scripts(window.allowed_tools, profile, command)
        else:
            listed = _lists(window.allowed_tools, tool, command)
            allowed = listed and policy.host_allows(_request(tool, command, path, window, catalog))
        if not allowed:
            return window.name
    return ""


def _request(tool: str, command: str, path: str, window: Window, catalog: Catalog) -> Request:
    """The use of a host's tool in the window of a skill, which may be gone from the catalog by now."""
    shadowed = (entry.skill for entry in catalog.shadowed if entry.skill.name == window.name)
    for skill in (*catalog.by_name.get(window.name, ()), *shadowed):
        if storable_text(skill.path) == path:
            return skill_request(tool, skill, command=command)
    return Request(tool, window.name, command=command, folder=os.path.dirname(path))


def reason(name: str) -> str:
    """Why a tool may not be used in the window of this skill."""
    return f"the skill {name} is active until the next turn, and its allowed-tools do not list it"


def lists_scripts(hint: Sequence[str], profile: Profile, command: str) -> bool:
    """Whether `allowed-tools` allow to run scripts: by the name of the tool, or as a shell command."""
    named = profile.tools.run in (entry.partition("(")[0] for entry in hint)
    return named or _lists(hint, "Bash", command)


def _lists(hint: Sequence[str], tool: str, command: str) -> bool:
    """Whether `allowed-tools` name a tool and, if they limit its commands, cover all of this command line."""
    if not hint:
        return True
    patterns = [pattern[:-1] for name, _, pattern in (entry.partition("(") for entry in hint) if name == tool]
    if not command or any(pattern in ("", "*") for pattern in patterns):
        return bool(patterns)
    patterns += [part.strip() for pattern in patterns for part in pattern.split(",")]
    commands = _commands(command)
    return bool(commands) and all(any(_fits(pattern, words) for pattern in patterns) for words in commands)


def _fits(pattern: str, words: Sequence[str]) -> bool:
    """Whether a command begins with the words of a pattern such as `git add:*`, or matches another one as a whole.

    A wildcard does not lead a program out of the folder that it stands in, as in `scripts/../../bin/sh`.
    """
    if ".." in words[0].split("/") and ".." not in pattern:
        return False
    if not pattern.endswith(":*"):
        return fnmatchcase(shlex.join(words), pattern)
    first = pattern[:-2].split()
    return len(words) >= len(first) and all(map(fnmatchcase, words, first))


_PART: Final = r"""[\w@%+=:,./-]+|'[^'\0]*'|"[^"$`\\\0]*\""""
_TOKEN: Final = re.compile(
    rf"""
    (?P<skip> [ \t]+ | (?<![^\s;&|]) (?: (?:[12]?>|&>)>?[ \t]*/dev/null | [12]?>&[12] ) (?=[\s;&|]|\Z) )
    | (?P<end> [;&|\n] )
    | (?P<word> (?:{_PART})+ )
    """,
    re.ASCII | re.VERBOSE,
)


def _commands(line: str) -> list[list[str]]:
    """The words of each command in a line; nothing where the line cannot be read for sure."""
    commands: list[list[str]] = [[]]
    at = 0
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None:
            return []
        at = token.end()
        if token["end"]:
            commands.append([])
        elif token["word"]:
            parts = re.findall(_PART, token["word"], re.ASCII)
            commands[-1].append("".join(part[1:-1] if part[0] in "'\"" else part for part in parts))
    found = [words for words in commands if words]
    return [] if any(_ASSIGNMENT.match(words[0]) for words in found) else found


_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
