"""The policy decides what is allowed. A skill never does.

There are three lists of rules: deny outranks allow, and allow outranks ask. A request that matches no rule follows the
defaults of the policy's profile. A skill's `allowed-tools` is a hint that can only narrow: while the skill's window is
open, the effective tools are those allowed by the policy and by every open hint. Two active skills never allow more
than one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, cast

from metier.catalog.validate import name_flaw
from metier.errors import ConfigError, PolicyDenied
from metier.hosts.profiles import Profile
from metier.model import ROLES, Skill
from metier.results import Request

Verdict = Literal["allow", "ask", "deny"]
Name = Literal["default", "read-only", "full-auto"]

REMOTE_LOAD: Final = "mcp_load"
"""The tool name of a request to load a skill from an MCP server. Its digest covers all files of the skill."""

DEFAULTS: Final[Mapping[str, Mapping[str, Verdict]]] = {
    "read-only": {"skill_run": "deny", "install": "deny", "override": "deny", REMOTE_LOAD: "ask"},
    "default": {"skill_run": "ask", "install": "deny", "override": "deny", REMOTE_LOAD: "ask"},
    "full-auto": {"override": "allow", REMOTE_LOAD: "ask"},
}
"""Verdicts when no rule matches. Tools not listed are allowed. Only `profile = "full-auto"` selects `full-auto`."""

GRANTS: Final = ("run_network", "run_project", "run_project_write", "run_unsandboxed")
"""Extra permissions for a script, beyond its sandbox. Under every policy, each needs an allow rule that names it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on requests. Omitted fields match everything. Names match exactly, paths and commands by glob."""

    tool: str
    skill_name: str | None = None
    path: str | None = None
    command: str | None = None
    digest: str | None = None

    def matches(self, request: Request) -> bool:
        return (
            self.tool == request.tool
            and self.skill_name in (None, request.skill_name)
            and (self.path is None or fnmatchcase(request.path, self.path))
            and (self.command is None or fnmatchcase(request.command, self.command))
            and self.digest in (None, request.digest)
        )

    def as_dict(self) -> dict[str, str]:
        given = {"tool": self.tool, "skill_name": self.skill_name, "path": self.path, "command": self.command}
        return {key: value for key, value in (*given.items(), ("digest", self.digest)) if value is not None}

    def __str__(self) -> str:
        return ", ".join(f"{key} = {value!r}" for key, value in self.as_dict().items())


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and the reason for it."""

    verdict: Verdict
    why: str
    rule: Rule | None = None


@dataclass(slots=True)
class Policy:
    """The rules of one session. `warnings` lists dropped rules, `remembered` holds rules added by answers."""

    name: Name = "default"
    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    tools: frozenset[str] | None = None
    """The host tools that the policy allows at all. `None` means the host has no such list."""
    confirm_loads: bool = False
    """Ask before loads that match no rule, if there is someone to ask."""
    redact_arguments: bool = False
    warnings: list[str] = field(default_factory=list[str])
    remembered: list[Rule] = field(default_factory=list[Rule])
    on_remember: Callable[[Rule], None] | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], profile: Profile) -> "Policy":
        """Build a policy from `{profile?, allow?, deny?, ask?, tools?, redact?}`, as in a `[permissions]` table."""
        given = cast("Mapping[str, Any]", settings.get("permissions", settings))
        known = ("profile", "allow", "deny", "ask", "tools", "redact")
        unknown = next((key for key in given if key not in known), None)
        if unknown is not None:
            raise ConfigError(f"unknown key permissions.{unknown}", key=unknown, hint=f"known: {', '.join(known)}")
        name = given.get("profile", "default")
        if name not in DEFAULTS:
            raise ConfigError(f"there is no policy {name!r}", key="profile", hint=f"known: {', '.join(DEFAULTS)}")
        warnings: list[str] = []
        lists = {key: tuple(_rules(given.get(key, ()), key, profile, warnings)) for key in ("allow", "deny", "ask")}
        tools = given.get("tools")
        return cls(
            name=name,
            allow=lists["allow"],
            deny=lists["deny"],
            ask=lists["ask"],
            tools=frozenset(tools) if tools is not None else None,
            confirm_loads=profile.policy.confirm_loads,
            redact_arguments=bool(given.get("redact", False)),
            warnings=warnings,
        )

    @staticmethod
    def canonical(tool: str, profile: Profile) -> str:
        """Metier's name for a tool, given the name that the profile's host uses."""
        roles = (role for role in ROLES if getattr(profile.tools, role) == tool)
        return next((f"skill_{role}" for role in roles), tool)

    def as_dict(self) -> dict[str, Any]:
        """The rules in the format of a configuration file."""
        lists = {"allow": (*self.allow, *self.remembered), "deny": self.deny, "ask": self.ask}
        given: dict[str, Any] = {"profile": self.name, "redact": self.redact_arguments}
        given.update({key: [rule.as_dict() for rule in rules] for key, rules in lists.items() if rules})
        return given | ({"tools": sorted(self.tools)} if self.tools is not None else {})

    def decide(self, request: Request) -> Decision:
        """Check deny, allow and ask rules in that order, then the default. The first matching rule is the reason."""
        lists: tuple[tuple[Verdict, tuple[Rule, ...]], ...] = (
            ("deny", self.deny),
            ("allow", (*self.allow, *self.remembered)),
            ("ask", self.ask),
        )
        for verdict, rules in lists:
            for rule in rules:
                if rule.matches(request):
                    return Decision(verdict, f"{verdict} rule: {rule}", rule)
        if request.tool == "skill_load" and self.confirm_loads:
            return Decision("ask", "no rule covers it, and this host confirms loads")
        default: Verdict = "deny" if request.tool in GRANTS else DEFAULTS[self.name].get(request.tool, "allow")
        return Decision(default, f"no rule covers it; the default of {self.name!r} is {default}")

    def enforce(self, request: Request, approve: "Callable[[Request], bool | str] | None") -> Decision:
        """Return if the request is allowed. Raise `PolicyDenied` if a rule or the person asked refuses it."""
        decision = self.decide(request)
        if decision.verdict == "allow" or (decision.verdict == "ask" and approve is None and self._optional(request)):
            return decision
        if decision.verdict == "deny":
            raise PolicyDenied(request.tool, request.skill_name, decision.why)
        if approve is None:
            raise PolicyDenied(request.tool, request.skill_name, "it must be confirmed, and nobody can be asked")
        answer = approve(request)
        if answer in ("always", "remember"):
            self.remember(request)
        elif not self.is_yes(answer):
            raise PolicyDenied(request.tool, request.skill_name, "the answer was no")
        return decision

    @staticmethod
    def is_yes(answer: bool | str) -> bool:
        """Whether an answer allows the request, once or always."""
        return answer is True or answer in ("once", "yes", "always", "remember")

    def _optional(self, request: Request) -> bool:
        """Whether the question can be skipped: only the host asks for it, and no allow or ask rule is about loads."""
        listed = (*self.allow, *self.ask)
        return self.confirm_loads and request.tool == "skill_load" and not any(r.tool == "skill_load" for r in listed)

    def remember(self, request: Request) -> Rule:
        """Remember a yes for this tool and skill. If the request has a digest, it covers only that content."""
        rule = Rule(request.tool, request.skill_name or None, digest=request.digest or None)
        if rule not in self.remembered:
            self.remembered.append(rule)
            if self.on_remember is not None:
                self.on_remember(rule)
        return rule

    # --- tools of the host ---

    def effective_tools(self, skill: Skill) -> tuple[str, ...] | None:
        """The tools allowed by both policy and hint in a skill's window. `None` if neither limits them."""
        hint = skill.allowed_tools or (sorted(self.tools) if self.tools is not None else None)
        if hint is None:
            return None
        return tuple(entry for entry in hint if self._host_allows(_tool_name(entry), skill.name))

    def _host_allows(self, tool: str, skill_name: str = "", command: str = "") -> bool:
        if self.tools is not None and tool not in self.tools:
            return False
        return self.decide(Request(tool, skill_name, command=command)).verdict != "deny"

    def redact(self, text: str) -> str:
        return "[redacted]" if text and self.redact_arguments else text

    def redacted(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of an operation. If the policy redacts, text by users and models is removed."""
        if not self.redact_arguments:
            return dict(given)
        return {key: value if key in ("tool", "by") else "[redacted]" for key, value in given.items()}


_OVERRIDES: Final = ("model", "context", "agent")


def proposals(frontmatter: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The overrides a skill proposes for its run: its `overrides` table and the common top-level keys."""
    found: list[tuple[str, Any]] = []
    table = frontmatter.get("overrides")
    if isinstance(table, Mapping):
        for key, value in cast("Mapping[str, Any]", table).items():
            if key == "tools" and isinstance(value, Mapping):
                found += [(f"tools.{inner}", item) for inner, item in cast("Mapping[str, Any]", value).items()]
            else:
                found.append((key, value))
    found += [(key, frontmatter[key]) for key in _OVERRIDES if key in frontmatter]
    return found


def _tool_name(entry: str) -> str:
    return entry.partition("(")[0]


def _flaw(name: object, profile: Profile) -> str:
    """Why the name is invalid for a skill of this host. Names the host only warns about are valid in rules."""
    if not isinstance(name, str) or not name:
        return "is not a name"
    checks = profile.validation
    return name_flaw(name, checks.name_pattern) if checks.name_breach == "error" else ""


def _rules(given: object, where: str, profile: Profile, warnings: list[str]) -> Sequence[Rule]:
    if not isinstance(given, (list, tuple)):
        raise ConfigError(f"permissions.{where} must be a list of rules", key=where)
    rules: list[Rule] = []
    for one in cast("Sequence[object]", given):
        if isinstance(one, Rule):
            rules.append(one)
            continue
        if not isinstance(one, Mapping) or not isinstance(one.get("tool"), str):  # pyright: ignore[reportUnknownMemberType]
            raise ConfigError(f"a rule in permissions.{where} must be a table with a tool", key=where)
        rule = cast("Mapping[str, Any]", one)
        unknown = next((key for key in rule if key not in ("tool", "skill_name", "path", "command", "digest")), None)
        if unknown is not None:
            raise ConfigError(f"unknown key {unknown} in a rule of permissions.{where}", key=unknown)
        name = rule.get("skill_name")
        if name is not None and (flaw := _flaw(name, profile)):
            warnings.append(f"a rule in permissions.{where} was dropped: skill_name {name!r} {flaw}")
            continue
        tool: str = rule["tool"]
        rules.append(
            Rule(Policy.canonical(tool, profile), name, rule.get("path"), rule.get("command"), rule.get("digest"))
        )
    return rules
