"""The execution windows of active skills: what their `allowed-tools` leave usable until the user's next turn.

A window can only narrow. Searching, loading and reading skills stays under policy alone: an active skill needs its own
files, and a user may always turn to another skill. Running a script needs the consent of every active skill, and so
does each tool of the host.
"""

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from metier.catalog.build import Catalog
from metier.files.text import storable_text
from metier.hosts.schema import Profile
from metier.policy.decide import Policy
from metier.policy.rules import canonical, skill_request
from metier.record.state import Window
from metier.values.results import Request
from metier.values.skill import ROLES

_RUN: Final = "skill_run"
_SKILL_TOOLS: Final = frozenset(f"skill_{role}" for role in ROLES)


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
    """Whether `allowed-tools` name a tool and, if they limit its commands, match this command."""
    parted = (entry.partition("(") for entry in hint)
    return not hint or any(name == tool and _fits(pattern, command) for name, _, pattern in parted)


def _fits(pattern: str, command: str) -> bool:
    """Whether a command matches the pattern in an entry such as `Bash(git add:*)`. Without a command, any does."""
    return not pattern or not command or fnmatchcase(command, pattern.rstrip(")").replace(":*", "*"))
