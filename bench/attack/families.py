"""The families of attacks, in the order in which they take turns."""

from collections.abc import Mapping, Sequence
from typing import Final

from . import (
    approvals,
    archives,
    containers,
    hosts,
    http_requests,
    kills,
    limit_probes,
    messages,
    packages,
    paths,
    probes,
    project,
    races,
    records,
    repositories,
    rules,
)
from .boxes import IDENTITIES
from .engines import ENGINES
from .rounds import Attack

FAMILIES: Final[Mapping[str, Attack]] = {
    "paths": paths.attack,
    "races": races.attack,
    "sandbox": probes.attack,
    "hosts": hosts.attack,
    "limits": limit_probes.exceed,
    "project": project.attack,
    "kills": kills.attack,
    "http": http_requests.attack,
    "archives": archives.attack,
    "repositories": repositories.attack,
    "packages": packages.attack,
    "approvals": approvals.attack,
    "rules": rules.attack,
    "records": records.attack,
    "messages": messages.attack,
    **{name: containers.attack_at(name) for name in ENGINES},
}


def identities(family: str) -> Sequence[str]:
    """The users as whom a family attacks. The rights on the socket of an engine decide who may use it."""
    return IDENTITIES[:1] if family in ENGINES else IDENTITIES
