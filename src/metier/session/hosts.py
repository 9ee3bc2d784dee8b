"""The hosts that rules give a script, and what it tried to connect to.

Rules add up: a script may connect to every host that an allow rule names, except those that a deny rule names. Each
attempt is an event, up to the bound of the runner. What was refused is a note of the result, with the rule that would
allow it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from metier.files.text import storable_text
from metier.model import Skill
from metier.record.events import ToolNetwork
from metier.sandbox import HostAttempt
from metier.sandbox.hosts import DEFAULT_PORTS, HostPattern, shown
from metier.session.rules import Rule

if TYPE_CHECKING:
    from metier.session.context import SessionContext

_NOTES: Final = 5
"""The notes about hosts in one result. The rest is counted."""
_CONFIG: Final = "~/.config/metier/config.toml"


class HostAttempts:
    """The attempts of one run, each in the record as it comes."""

    def __init__(self, context: "SessionContext", skill: Skill) -> None:
        self._context, self._skill = context, skill
        self._seen: list[HostAttempt] = []

    def __call__(self, attempt: HostAttempt) -> None:
        host = self._context.policy.redact(storable_text(attempt.host))
        attempt = replace(attempt, host=host)
        self._seen.append(attempt)
        self._context.note_now(ToolNetwork(host, attempt.port, attempt.allowed, attempt.reason))

    def notes(self, left_out: int) -> tuple[str, ...]:
        """What the reader of the result is told: which hosts were not reached, and how the user can allow them."""
        found = list(dict.fromkeys(_notes(self._skill, self._seen)))
        notes = found[:_NOTES]
        if len(found) > _NOTES:
            notes.append(f"{len(found) - _NOTES} more hosts were refused or not reached; `metier events` lists them")
        if left_out:
            notes.append(f"{left_out:,} more attempts to connect to a host are only counted")
        return tuple(notes)


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
    rule = Rule("run_network", skill.name, host=str(pattern))
    if skill.foreign:
        rule = replace(rule, scope=skill.scope, source=skill.source)  # its name alone would not do
    return f"allow = [{rule.as_toml()}]"
