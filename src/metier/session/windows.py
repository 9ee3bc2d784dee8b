"""The execution windows of active skills: what their `allowed-tools` leave usable until the user's next turn.

A window can only narrow. Searching, loading and reading skills stays under policy alone: an active skill needs its own
files, and a user may always turn to another skill. Running a script needs the consent of every active skill, and so
does each tool of the host.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from metier.hosts.schema import Profile
from metier.model import ROLES
from metier.record.state import Window
from metier.results import Request
from metier.session.policy import Policy
from metier.session.rules import canonical

_RUN: Final = "skill_run"
_SKILL_TOOLS: Final = frozenset(f"skill_{role}" for role in ROLES)


def may_use(policy: Policy, profile: Profile, windows: Iterable[Window], tool: str, command: str = "") -> bool:
    """Whether policy and every window allow a tool now, for `command` if one is given."""
    name = canonical(tool, profile)
    if name in _SKILL_TOOLS:
        allowed = policy.decide(Request(name, command=command)).verdict != "deny"
    else:
        allowed = policy.host_allows(tool, command=command)
    return allowed and not refusing(policy, profile, windows, tool, command)


def refusing(policy: Policy, profile: Profile, windows: Iterable[Window], tool: str, command: str = "") -> str:
    """The name of an active skill in whose window a tool may not be used; empty where there is none."""
    name = canonical(tool, profile)
    if name in _SKILL_TOOLS and name != _RUN:
        return ""
    for window in windows:
        if name == _RUN:
            allowed = not profile.policy.enforce_hints or lists_scripts(window.allowed_tools, profile, command)
        else:
            listed = _lists(window.allowed_tools, tool, command)
            allowed = listed and policy.host_allows(tool, window.name, command)
        if not allowed:
            return window.name
    return ""


def reason(name: str) -> str:
    """Why a tool may not be used in the window of this skill."""
    return f"the skill {name} is active until the next turn, and its allowed-tools do not list it"


def lists_scripts(hint: Sequence[str], profile: Profile, command: str) -> bool:
    """Whether `allowed-tools` allow to run scripts: by the name of the tool, or as a shell command."""
    if not hint:
        return True
    for entry in hint:
        name, _, pattern = entry.partition("(")
        if name == profile.tools.run or (name == "Bash" and _fits(pattern, command)):
            return True
    return False


def _lists(hint: Sequence[str], tool: str, command: str) -> bool:
    """Whether `allowed-tools` name a tool and, if they limit its commands, match this command."""
    parted = (entry.partition("(") for entry in hint)
    return not hint or any(name == tool and _fits(pattern, command) for name, _, pattern in parted)


def _fits(pattern: str, command: str) -> bool:
    """Whether a command matches the pattern in an entry such as `Bash(git add:*)`. Without a command, any does."""
    return not pattern or not command or fnmatchcase(command, pattern.rstrip(")").replace(":*", "*"))
