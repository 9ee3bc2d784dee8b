"""Attempts to get out of containers, and to use more than they may, at a Podman and a Docker that the round starts.

The engine is started by the process of the round, so that its containers are measured like every other sandbox, and
nothing of them can hide.
"""

from . import limit_probes, probes
from .attempts import NOT_PROMISED_IN_CONTAINERS, Attempt
from .engines import ENGINES, NoEngine, an_engine
from .rounds import Attack, Round

NOT_HERE = "the engine cannot run containers here: "


def attack_at(name: str) -> Attack:
    """The attack at an engine: one probe of a limit, and then as many attempts as fit into the round."""

    def attack(round_: Round) -> None:
        try:
            with an_engine(name) as runner:
                limit_probes.exceed(round_, runner, most=1)
                probes.attack(round_, runner, _must_fail)
        except NoEngine as error:
            round_.found("broken", f"{NOT_HERE}{error}")

    return attack


def _must_fail(attempt: Attempt) -> bool:
    refused = attempt.also.network or attempt.also.project_writable or "packages" in attempt.name
    return attempt.name not in NOT_PROMISED_IN_CONTAINERS and not refused


def missing() -> dict[str, str]:
    """The engines that cannot run containers here, with the reason."""
    reasons: dict[str, str] = {}
    for name in ENGINES:
        try:
            with an_engine(name):
                pass
        except NoEngine as error:
            reasons[name] = str(error)
    return reasons
