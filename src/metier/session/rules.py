"""Rules of a policy: what one matches, and how lists of them are read from a configuration file or from data."""

import glob
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal, cast

from metier.catalog.validate import name_flaw
from metier.errors import ConfigError
from metier.hosts.profiles import Profile
from metier.model import REMOTE, ROLES
from metier.results import Request

Verdict = Literal["allow", "ask", "deny"]

LISTS: Final[tuple[Verdict, ...]] = ("deny", "allow", "ask")
"""The lists of a policy, in the order in which they are applied."""

_FIELDS: Final = ("tool", "skill_name", "path", "command", "folder", "scope", "source", "digest", "given")


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on requests. Omitted fields match everything. `path`, `command` and `folder` are globs."""

    tool: str
    skill_name: str | None = None
    path: str | None = None
    command: str | None = None
    digest: str | None = None
    folder: str | None = None
    """The real path of the skill's folder."""
    scope: str | None = None
    source: str | None = None
    given: str | None = None
    """What a run is given besides its own files, as in `Request.given`. Without it, a rule covers what other rules give
    and what every script may read, but nothing that a caller asks for in addition."""

    def matches(self, request: Request) -> bool:
        return (
            self.tool == request.tool
            and self.skill_name in (None, request.skill_name)
            and (self.path is None or fnmatchcase(request.path, self.path))
            and (self.command is None or fnmatchcase(request.command, self.command))
            and self.digest in (None, request.digest)
            and (self.folder is None or fnmatchcase(request.folder, self.folder))
            and self.scope in (None, request.scope)
            and self.source in (None, request.source)
            and self.given in (None, given_text(request))
        )

    def allows(self, request: Request) -> bool:
        """Whether the rule, as an allow rule, covers a request.

        A skill that a foreign project brings is another one than the skill of that name that the user knows, so a rule
        covers it only if it says where the skill is or what it contains, or names no skill at all. Such a skill is
        never the user's own, whatever scope its project claims.
        """
        if request.wants and self.given is None:
            return False
        return self.matches(request) and not (request.foreign and (self._by_name_only or self.scope == "user"))

    @property
    def _by_name_only(self) -> bool:
        places = (self.folder, self.scope, self.source, self.digest)
        return self.skill_name is not None and all(place is None for place in places)

    @classmethod
    def covering(cls, request: Request) -> "Rule":
        """The rule that an answer for good adds: this tool, this skill at this place, and this content if there is one.

        For a script, the digest is that of all files of the skill, of which the person saw one, so the rule is for that
        script alone. The files of a server's skill are in a cache, which says nothing, so the rule names the server.
        """
        given = given_text(request) or None
        rule = cls(request.tool, request.skill_name or None, digest=request.digest or None, given=given)
        if not request.folder:
            return rule
        path = glob.escape(request.path) if request.tool == "skill_run" else None
        if request.scope == REMOTE:
            return replace(rule, path=path, scope=request.scope, source=request.source)
        return replace(rule, path=path, folder=glob.escape(request.folder))

    def as_dict(self) -> dict[str, str]:
        return {key: value for key in _FIELDS if (value := getattr(self, key)) is not None}

    def as_toml(self) -> str:
        """The rule as an inline table, to show how to write it."""
        return f"{{ {', '.join(f'{key} = {_quoted(value)}' for key, value in self.as_dict().items())} }}"

    @property
    def id(self) -> str:
        """Names a remembered rule. Equal rules have equal ids."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()

    def __str__(self) -> str:
        return ", ".join(f"{key} = {value!r}" for key, value in self.as_dict().items())


def given_text(request: Request) -> str:
    """What a run is given, as a rule has it."""
    return "; ".join(request.given)


def as_answer(rule: Rule) -> Rule:
    """A remembered answer as a rule. Without `given`, it was about a run that was given nothing: it covers no other."""
    return replace(rule, given="") if rule.tool == "skill_run" and rule.given is None else rule


def _quoted(text: str) -> str:
    # JSON leaves one character unescaped that TOML rejects.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_toml_lines(rule: Rule) -> str:
    """The rule as the lines of a table."""
    return "".join(f"{key} = {_quoted(value)}\n" for key, value in rule.as_dict().items())


@dataclass(frozen=True, slots=True)
class RuleLists:
    """The three lists of one source. `warnings` says which rules were dropped."""

    deny: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    warnings: tuple[str, ...] = ()


def read_lists(given: Mapping[str, object], profile: Profile) -> RuleLists:
    """The lists of a `[permissions]` table. Raises `ConfigError` if one is not a list of rules."""
    warnings: list[str] = []
    deny, allow, ask = (tuple(_read_list(given.get(key, ()), key, profile, warnings)) for key in LISTS)
    return RuleLists(deny, allow, ask, tuple(warnings))


def canonical(tool: str, profile: Profile) -> str:
    """Metier's name for a tool, given the name that the profile's host uses."""
    roles = (role for role in ROLES if getattr(profile.tools, role) == tool)
    return next((f"skill_{role}" for role in roles), tool)


def read_rule(given: object, where: str) -> Rule:
    """One rule as it is written, with the host's own name for its tool."""
    if isinstance(given, Rule):
        return given
    table = {} if not isinstance(given, Mapping) else dict(cast("Mapping[str, object]", given))
    if not isinstance(table.get("tool"), str):
        raise ConfigError(f"a rule in permissions.{where} must be a table with a tool", key=where)
    unknown = next((key for key in table if key not in _FIELDS), None)
    if unknown is not None:
        raise ConfigError(f"unknown key {unknown} in a rule of permissions.{where}", key=unknown)
    values = {key: value for key, value in table.items() if value is not None}
    wrong = next((key for key, value in values.items() if not isinstance(value, str)), None)
    if wrong is not None:
        raise ConfigError(f"{wrong} must be text in a rule of permissions.{where}", key=wrong)
    folder = values.get("folder", "*")
    if not str(folder).startswith(("/", "*")) or str(folder).endswith("/"):
        hint = "write the real path of the skill's folder, or a glob such as /home/me/.agents/skills/*"
        message = f"folder cannot be {folder!r} in a rule of permissions.{where}: it is no absolute path of a folder"
        raise ConfigError(message, key="folder", hint=hint)
    return Rule(**cast("Mapping[str, str]", values))


def _read_list(given: object, where: str, profile: Profile, warnings: list[str]) -> Sequence[Rule]:
    if not isinstance(given, (list, tuple)):
        raise ConfigError(f"permissions.{where} must be a list of rules", key=where)
    rules: list[Rule] = []
    for one in cast("Sequence[object]", given):
        rule = read_rule(one, where)
        if rule.skill_name is not None and (flaw := _flaw(rule.skill_name, profile)):
            warnings.append(f"a rule in permissions.{where} was dropped: skill_name {rule.skill_name!r} {flaw}")
            continue
        rules.append(replace(rule, tool=canonical(rule.tool, profile)))
    return rules


def _flaw(name: str, profile: Profile) -> str:
    """Why the name is invalid for a skill of this host. Names the host only warns about are valid in rules."""
    if not name:
        return "is not a name"
    checks = profile.validation
    return name_flaw(name, checks.name_pattern) if checks.name_breach == "error" else ""
