"""The hosts that rules give a script, and what it tried to connect to.

Rules add up: a script may connect to every host that an allow rule names, except those that a deny rule names. Each
attempt is an event, up to the bound of the runner. What was refused is a note of the result, with the rule that would
allow it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from metier.policy.rules import Rule
from metier.running.grants import RunGrant
from metier.running.sandbox import HostAttempt, Job
from metier.running.scripts import WantedRun
from metier.values.network import DEFAULT_PORTS, HostPattern, shown
from metier.values.skill import JsonObject, Skill

TOOL: Final = "run_network"

_NOTES: Final = 5
"""The notes about hosts in one result. The rest is counted."""
_CONFIG: Final = "~/.config/metier/config.toml"


@dataclass(frozen=True, kw_only=True)
class NetworkGrant(RunGrant):
    """The whole network, if the tool is given, or only some hosts. One behind a `!` is refused, even if another covers
    it.
    """

    kind: ClassVar[str] = "network"

    hosts: tuple[str, ...] = ()

    @classmethod
    def plan(cls, run: WantedRun) -> Self:
        tools = run.allowed(cls.kind)
        return cls(tools=tools, hosts=() if tools else run.policy.hosts(run.request(TOOL)))

    def facts(self) -> Iterator[tuple[str, str]]:
        allowed = ", ".join(host for host in self.hosts if not host.startswith("!"))
        denied = ", ".join(host[1:] for host in self.hosts if host.startswith("!"))
        but = f", but not to {denied}" if denied else ""
        listed = f"It may connect to {allowed}{but}, and to nothing else." if allowed else "It has no network."
        yield "Network", "It may use the network." if self.tools else listed

    def covers(self) -> Mapping[str, tuple[str, ...]]:
        return {"hosts": self.hosts} if self.hosts else {}

    def shown(self) -> JsonObject:
        return {"hosts": self.hosts}

    def into(self, job: Job, run: WantedRun) -> Job:
        private = run.settings.profile.run.private_hosts
        return replace(job, network=bool(self.tools), hosts=self.hosts, private_hosts=private)


def notes_about(skill: Skill, attempts: Sequence[HostAttempt], left_out: int) -> Iterator[str]:
    """What the reader of the result is told: which hosts were not reached, and how the user can allow them."""
    found = list(dict.fromkeys(_notes(skill, attempts)))
    yield from found[:_NOTES]
    if len(found) > _NOTES:
        yield f"{len(found) - _NOTES} more hosts were refused or not reached; `metier events` lists them"
    if left_out:
        yield f"{left_out:,} more attempts to connect to a host are only counted"


def _notes(skill: Skill, attempts: Sequence[HostAttempt]) -> Iterator[str]:
    for attempt in attempts:
        where = shown(attempt.host, attempt.port)
        if attempt.reason == "not-listed":
            yield f"refused: {where}; the user can allow it in [permissions] of {_CONFIG} with {_rule(skill, attempt)}"
        elif attempt.reason in _WHY:
            yield f"{'not reached' if attempt.allowed else 'refused'}: {where} {_WHY[attempt.reason]}"
        elif attempt.reason:
            yield "refused: a request that is not valid for a proxy"


_WHY: Final = {
    "denied": "is a host that a rule denies; only the user or the host can lift that rule",
    "private-address": f"is not on the public internet; the user can set run.private_hosts in {_CONFIG}",
    "other-host": "was named in TLS, but the connection was for another host",
    "not-tls": "was sent something else than TLS through a tunnel",
    "unresolved": "has no known address",
    "unreachable": "cannot be reached",
}


def _rule(skill: Skill, attempt: HostAttempt) -> str:
    pattern = HostPattern(attempt.host, None if attempt.port in DEFAULT_PORTS else attempt.port)
    rule = Rule(TOOL, skill.name, host=str(pattern))
    if skill.foreign:
        rule = replace(rule, scope=skill.scope, source=skill.source)  # its name alone would not do
    return f"allow = [{rule.as_toml()}]"
