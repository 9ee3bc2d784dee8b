"""The families of attacks, in the order in which they take turns."""

from collections.abc import Mapping
from typing import Final

from . import (
    approvals,
    archives,
    hosts,
    http_requests,
    kills,
    limit_probes,
    messages,
    paths,
    probes,
    project,
    races,
    repositories,
)
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
    "approvals": approvals.attack,
    "messages": messages.attack,
}
