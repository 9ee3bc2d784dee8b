"""The families of attacks, in the order in which they take turns."""

from collections.abc import Mapping
from typing import Final

from . import kills, paths, probes, project, races
from .preload import preload
from .rounds import Attack

preload()  # before the first fork

FAMILIES: Final[Mapping[str, Attack]] = {
    "paths": paths.attack,
    "races": races.attack,
    "sandbox": probes.attack,
    "limits": probes.exceed,
    "project": project.attack,
    "kills": kills.attack,
}
