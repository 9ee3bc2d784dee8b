"""The policy decides what is allowed. A skill never does.

There are three lists of rules: deny outranks allow, and allow outranks ask. A request that matches no rule follows the
defaults of the policy's profile. A skill's `allowed-tools` is a hint that can only narrow: while the skill's window is
open, the effective tools are those allowed by the policy and by every open hint. Two active skills never allow more
than one.

Where a request must be confirmed and nobody can be asked, one rule holds: what a person or the host asks for by name is
its own yes, and a model's call is refused with the rule that would allow it, unless `unasked` says otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from metier.errors import ConfigError, PolicyDenied
from metier.hosts.profiles import Profile
from metier.hosts.settings import Settings
from metier.policy.asking import CANCELLED, DECLINED, UNANSWERED, YES
from metier.policy.remembered import RememberedRules
from metier.policy.rules import (
    DEFAULTS,
    LISTS,
    REMOTE_LOAD,
    Rule,
    RuleLists,
    Verdict,
    as_answer,
    read_lists,
    skill_request,
    unknown_word,
)
from metier.values.grants import is_grant
from metier.values.results import Request
from metier.values.skill import JsonObject, Skill

Name = Literal["default", "read-only", "full-auto"]
Unasked = Literal["refuse", "loads", "allow"]
By = Literal["user", "model"]
"""Who asks: a person or the host, or the model."""

_NOT_APPROVED: Final[Mapping[str, str]] = {
    DECLINED: "nobody approved it: the host declined the question",
    CANCELLED: "nobody approved it: the host dismissed the question",
    UNANSWERED: "nobody approved it: the question got no answer",
}

_TEXTS: Final = ("skill_load", "skill_read", "skill_search", "skill_output")
"""The tools that only return text of skills."""


class Unconfirmed(PolicyDenied):
    """A person would have to be asked, and nobody is."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.tool, request.skill_name, "it must be confirmed", f"allow it {in_settings(request)}")


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and the reason for it."""

    verdict: Verdict
    why: str
    rule: Rule | None = None
    by_default: bool = False
    """Whether no rule is about the request, so that a rule can change the verdict."""


@dataclass(slots=True)
class Policy:
    """The rules of one session. `warnings` lists dropped rules, `remembered` has the rules that answers added."""

    name: Name = "default"
    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    tools: frozenset[str] | None = None
    """The host tools that the policy allows at all. `None` means the host has no such list."""
    confirm_loads: bool = False
    """Ask before loads that match no rule."""
    unasked: Unasked = "refuse"
    """A model's call that must be confirmed where nobody can be asked: `refuse` it, let `loads` and reads of skills
    through, or `allow` scripts, too."""
    applies: frozenset[str] | None = None
    """The kinds of overrides that the host applies; all others are refused. `None`: it looks at them itself."""
    redact_arguments: bool = False
    warnings: list[str] = field(default_factory=list[str])
    remembered: RememberedRules = field(default_factory=RememberedRules)
    on_remember: Callable[[Rule], None] | None = None
    """Called with each rule that an answer adds, for hosts that keep answers themselves."""
    _shown: tuple[tuple[object, ...], dict[str, Any]] = field(default=((), {}), compare=False, repr=False)
    _by_tool: tuple[tuple[object, ...], Mapping[str, Sequence[tuple[Verdict, Rule]]]] = field(
        default=((), {}), compare=False, repr=False
    )

    @classmethod
    def from_settings(
        cls,
        settings: Mapping[str, Any],
        profile: Profile,
        *,
        origins: Mapping[str, Sequence[str]] | None = None,
        names_for: Callable[[str], Profile] | None = None,
        recorded: bool = False,
    ) -> "Policy":
        """Build a policy from `{profile?, allow?, deny?, ask?, tools?, unasked?, redact?}`, as in `[permissions]`.

        For the rest, see `read_lists`.
        """
        given = cast("Mapping[str, Any]", settings.get("permissions", settings))
        known = ("profile", "allow", "deny", "ask", "tools", "unasked", "applies", "redact")
        unknown = next((key for key in given if key not in known), None)
        if unknown is not None:
            raise ConfigError(f"unknown key permissions.{unknown}", key=unknown, hint=f"known: {', '.join(known)}")
        name = given.get("profile", "default")
        if name not in DEFAULTS:
            raise unknown_word("policy", str(name), tuple(DEFAULTS), key="profile")
        unasked = given.get("unasked", profile.policy.unasked)
        if unasked not in ("refuse", "loads", "allow"):
            hint = "known: refuse, loads, allow"
            raise ConfigError(f"permissions.unasked cannot be {unasked!r}", key="unasked", hint=hint)
        lists = read_lists(given, profile, origins=origins, names_for=names_for, recorded=recorded)
        tools, applies = given.get("tools"), given.get("applies")
        return cls(
            name=name,
            allow=lists.allow,
            deny=lists.deny,
            ask=lists.ask,
            tools=frozenset(tools) if tools is not None else None,
            confirm_loads=profile.policy.confirm_loads,
            unasked=unasked,
            applies=frozenset(applies) if applies is not None else None,
            redact_arguments=bool(given.get("redact", False)),
            warnings=list(lists.warnings),
        )

    @classmethod
    def of(cls, given: "Policy | Mapping[str, Any] | None", settings: Settings) -> "Policy":
        """The policy that a host gives, as a `Policy` or as its settings. By default, that of the configuration."""
        if given is None:
            return cls.configured(settings)
        if isinstance(given, Policy):
            return given.under(settings).with_answers_of(settings)
        own = settings.own_profile
        return cls.from_settings(given, settings.profile, names_for=lambda _: own).with_answers_of(settings)

    @classmethod
    def configured(cls, settings: Settings) -> "Policy":
        """The policy of a configuration, with the answers in the user's file."""
        try:
            policy = cls.from_settings(
                settings.permissions, settings.profile, origins=settings.rule_origins, names_for=settings.names_for
            )
        except ConfigError as error:
            origin = settings.origins.get(f"permissions.{error.key}", "")
            raise error.at(origin if origin.endswith(".toml") else "") from None
        return policy.with_answers_of(settings)

    def under(self, settings: Settings) -> "Policy":
        """The policy with its rules as the user's settings would give them. Raises `ConfigError` likewise."""
        own = {"deny": self.deny, "allow": self.allow, "ask": self.ask}
        lists = read_lists(
            {**own, "tools": self.tools or ()}, settings.profile, names_for=lambda _: settings.own_profile
        )
        read = {"deny": lists.deny, "allow": lists.allow, "ask": lists.ask}
        return self if read == own else replace(self, **read, warnings=[*self.warnings, *lists.warnings])

    def with_answers_of(self, settings: Settings) -> "Policy":
        """The policy with the answers in the user's file, unless it has a file or its host keeps answers itself."""
        if self.on_remember is not None or self.remembered.file or not settings.answers_file:
            return self
        return replace(self, remembered=self.remembered.in_file(settings.answers_file, settings.own_profile))

    def rules(self) -> RuleLists:
        """The rules in force, with those that answers added. They can change in any other process at any time."""
        answers = self.remembered.current()
        return RuleLists(
            deny=(*self.deny, *answers.deny),
            allow=(*self.allow, *answers.allow),
            ask=(*self.ask, *answers.ask),
            dropped=(*((why, "") for why in self.warnings), *answers.dropped),
        )

    def as_dict(self) -> dict[str, Any]:
        """The rules in force in the format of a configuration file."""
        answers = self.remembered.current()
        own = (self.name, self.redact_arguments, self.unasked, self.applies, self.tools)
        if self._shown[0] != (own, self.deny, self.allow, self.ask, answers):
            rules = self.rules()
            given: JsonObject = {"profile": self.name, "redact": self.redact_arguments, "unasked": self.unasked}
            listed = ((key, cast("tuple[Rule, ...]", getattr(rules, key))) for key in ("allow", "deny", "ask"))
            given |= {key: [rule.as_dict() for rule in found] for key, found in listed if found}
            given |= {"tools": sorted(self.tools)} if self.tools is not None else {}
            given |= {"applies": sorted(self.applies)} if self.applies is not None else {}
            self._shown = ((own, self.deny, self.allow, self.ask, answers), given)
        return dict(self._shown[1])

    def decide(self, request: Request) -> Decision:
        """Check deny, allow and ask rules in that order, then the default. The first matching rule is the reason."""
        answers = self.remembered.current()
        if request.tool == "override" and self.applies is not None:
            kind = request.path.partition(".")[0]
            if kind not in self.applies:
                return Decision("deny", f"this host does not apply what a skill proposes for {kind!r}")
        for verdict, rule in self._about(request.tool, answers):
            if rule.allows(request) if verdict == "allow" else rule.matches(request):
                return Decision(verdict, f"{verdict} rule: {rule}", rule)
        if request.tool == "skill_load" and self.confirm_loads:
            return Decision("ask", "no rule covers it, and this host confirms loads")
        default: Verdict = "deny" if is_grant(request.tool) else DEFAULTS[self.name].get(request.tool, "allow")
        if request.wants and default == "allow":
            default = "ask"
        why = f"no rule covers it; the default of {self.name!r} is {default}"
        return Decision(default, why, by_default=True)

    def never_denies_loads(self) -> bool:
        """Whether no rule denies loading, whatever the skill is. No default does."""
        return all(verdict != "deny" for verdict, _ in self._about("skill_load", self.remembered.current()))

    def hosts(self, request: Request) -> tuple[str, ...]:
        """The hosts that rules give the script of a request for the network. Those behind a `!` are denied."""
        allowed: dict[str, None] = {}
        denied: dict[str, None] = {}
        for verdict, rule in self._about(request.tool, self.remembered.current()):
            if verdict == "deny" and rule.matches(request):
                if rule.host is None:
                    return ()
                denied[f"!{rule.host}"] = None
            elif verdict == "allow" and rule.allows_host(request):
                allowed[str(rule.host)] = None
        found = [host for host in allowed if f"!{host}" not in denied]
        return (*found, *denied) if found else ()

    def written(self, request: Request) -> tuple[str, ...]:
        """The files that rules let the script of a request change in the working folder, as globs."""
        about = self._about(request.tool, self.remembered.current())
        paths = (rule.path for verdict, rule in about if verdict == "allow" and rule.path and rule.allows(request))
        return tuple(dict.fromkeys(paths))

    def has_rules_about(self, tool: str) -> bool:
        """Whether any rule in force is about a tool."""
        return bool(self._about(tool, self.remembered.current()))

    def _about(self, tool: str, answers: RuleLists) -> Sequence[tuple[Verdict, Rule]]:
        """The rules about a tool, in order. A catalog of thousands of skills is decided on with every prompt."""
        own = (self.deny, self.allow, self.ask, answers)
        if self._by_tool[0] != own:
            found: dict[str, list[tuple[Verdict, Rule]]] = {}
            for verdict in LISTS:
                for rule in (*getattr(self, verdict), *getattr(answers, verdict)):
                    found.setdefault(rule.tool, []).append((verdict, rule))
            self._by_tool = (own, found)
        return self._by_tool[1].get(tool, ())

    def enforce(
        self,
        request: Request,
        answered: "Callable[[Request], str] | None",
        by: By = "model",
    ) -> Decision:
        """Return if the request is allowed. Raise `PolicyDenied` if a rule or the person asked refuses it.

        `answered` gives the person's answer as `read_answer` returns it. The error says how a person can allow it.
        """
        decision = self.decide(request)
        if decision.verdict == "allow":
            return decision
        if decision.verdict == "deny":
            raise self.denied(request, decision)
        if answered is None:
            if not self._goes_unasked(request, by):
                why = "it must be confirmed, and nobody can be asked here; the user can allow it "
                why += f"{in_settings(request)}, and a host with an approve callback"
                raise PolicyDenied(request.tool, request.skill_name, why)
            return decision
        answer = answered(request)
        if answer == "always":
            self.remember(request)
        elif answer not in YES:
            raise self.not_approved(request, answer)
        return decision

    def denied(self, request: Request, decision: Decision) -> PolicyDenied:
        """The refusal of a request that a rule or a default denies."""
        way_out = "only the user or the host can lift that rule; `metier policy list` shows the user's"
        if decision.rule is None:
            way_out = f"the user can allow it {in_settings(request)}" if decision.by_default else ""
        return PolicyDenied(request.tool, request.skill_name, decision.why, way_out)

    @staticmethod
    def not_approved(request: Request, answer: str) -> PolicyDenied:
        """The refusal of a request that somebody was asked about."""
        why = _NOT_APPROVED.get(answer)
        again = "" if why else "when it is asked again, or "
        way_out = f"the user can allow it {again}{in_settings(request)}"
        return PolicyDenied(request.tool, request.skill_name, why or "the answer was no", way_out)

    def _goes_unasked(self, request: Request, by: By) -> bool:
        """Whether a request that must be confirmed is allowed where nobody can be asked."""
        if by == "user":
            return True
        if request.tool == REMOTE_LOAD:
            return False  # text of strangers: only a rule or a person lets it in
        return self.unasked == "allow" or (self.unasked == "loads" and request.tool in _TEXTS)

    def remember(self, request: Request) -> Rule:
        """Remember a yes for this tool and this skill at its place; see `Rule.covering`."""
        rule = Rule.covering(request)
        if as_answer(rule) not in self.remembered.current().allow:
            self.remembered.add(rule)
            if self.on_remember is not None:
                self.on_remember(rule)
        return rule

    # --- tools of the host ---

    def effective_tools(self, skill: Skill) -> tuple[str, ...] | None:
        """The tools allowed by both policy and hint in a skill's window. `None` if neither limits them."""
        hint = skill.allowed_tools
        if hint is None:
            if self.tools is None:
                return None
            hint = sorted(self.tools)
        return tuple(entry for entry in hint if self.host_allows(skill_request(entry.partition("(")[0], skill)))

    def host_allows(self, request: Request) -> bool:
        """Whether a tool of the host may be used at all, or for a skill, for a command if the request has one."""
        if self.tools is not None and request.tool not in self.tools:
            return False
        return self.decide(request).verdict != "deny"

    def redact(self, text: str) -> str:
        return "[redacted]" if text and self.redact_arguments else text

    def redacted(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of an operation. If the policy redacts, text by users and models is removed."""
        if not self.redact_arguments:
            return dict(given)
        return {key: value if key in ("tool", "by") else "[redacted]" for key, value in given.items()}


def in_settings(request: Request) -> str:
    """Where a person writes which rule to allow a request. Says nothing about this machine's folders."""
    rule = replace(Rule.covering(request), folder=None)
    if not request.wants:
        rule = replace(rule, given=None)  # a rule that the user writes covers the folder that is read, too
    if request.tool == REMOTE_LOAD:
        rule = replace(rule, digest=None)  # a record does not have the files of a skill that was refused
    elif request.foreign and rule.digest is None:
        rule = replace(rule, scope=request.scope, source=request.source)  # its name alone would not do
    return f"in [permissions] of ~/.config/metier/config.toml with allow = [{rule.as_toml()}]"


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
