"""What a benchmark gets to work with, and the one way in which all of them scan."""

import os
from dataclasses import dataclass, field
from typing import Any, Final

from metier import Skills

from .generate import Tree, Workspace
from .peers import Peers

CORPUS: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "shared", "corpus")


@dataclass(frozen=True, slots=True)
class Options:
    """How much to measure, and the workspace and peers that the benchmarks of a run share."""

    sizes: tuple[int, ...] = (2_000, 10_000, 50_000)
    rounds: int = 5
    workspace: Workspace = field(default_factory=Workspace)
    peers: Peers = field(default_factory=Peers)
    corpus: str = CORPUS
    """A folder with real skills and queries for them."""
    full: bool = False
    """Also what takes minutes."""

    @property
    def smallest(self) -> int:
        return min(self.sizes)

    def rounds_for(self, size: int) -> int:
        """Large trees average out their own noise."""
        return self.rounds if size <= 10_000 else max(2, self.rounds - 2)

    def scan(self, tree: Tree, *, cache: bool) -> Skills:
        """Discover a tree from an empty project and home, and insist that every skill was found."""
        skills = Skills.discover(**scan_arguments(self.workspace, tree.path, cache=cache))
        if len(skills) != len(tree.files):
            raise AssertionError(f"{len(skills)} of {len(tree.files)} skills found in {tree.path}")
        return skills


def scan_arguments(workspace: Workspace, path: str, *, cache: bool) -> dict[str, Any]:
    return {
        "cwd": workspace.folder("project"),
        "home": workspace.folder("home"),
        "roots": [path],
        "settings": {"cache": cache},
        "env": {},
    }
