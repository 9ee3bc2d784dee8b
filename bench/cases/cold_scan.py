"""Discover, parse and validate every skill with no cache, as the first scan on a machine does.

The floor is what plain Python pays to look at the same files and do nothing with them: list each folder, open the
SKILL.md, read 4 KB, close. The operating system's own cache is warm for everyone.
"""

import os
import platform
from collections.abc import Callable

from ..generate import Shape, Tree
from ..measure import Row, Subject, best_of, timed
from ..options import Options
from ..peers import PATIENCE_SECONDS, PythonPeer

_PROBE = 200
_WILD_UP_TO = 10_000


def run(options: Options) -> list[Row]:
    rows = _with_peers(options)
    for size in options.sizes:
        for shape in _shapes(size):
            if (size, shape) != (options.smallest, "flat"):
                rows += _scan(options, options.workspace.tree(size, shape))
    return rows


def _shapes(size: int) -> tuple[Shape, ...]:
    return ("flat", "nested", "wild") if size <= _WILD_UP_TO else ("flat", "nested")


def _scan(options: Options, tree: Tree) -> list[Row]:
    size = len(tree.files)
    best = best_of(
        options.rounds_for(size),
        {"floor": timed(lambda: floor(tree.path)), "metier": timed(lambda: options.scan(tree, cache=False))},
    )
    return _ours(f"{size:,} {tree.shape}", best)


def _ours(what: str, best: dict[str, float]) -> list[Row]:
    ratio = best["metier"] / best["floor"]
    return [Row(what, "floor", best["floor"]), Row(what, "metier", best["metier"], "s", ratio, "floor", at_most=2.5)]


def _with_peers(options: Options) -> list[Row]:
    """The smallest flat tree, with everyone; the goal is set on the fastest of the Python peers."""
    size, home = options.smallest, options.workspace.folder("peer-home")
    tree = options.workspace.tree(size)
    probe = options.workspace.tree(min(_PROBE, size))
    subjects: dict[str, Subject] = {
        "floor": timed(lambda: floor(tree.path)),
        "metier": timed(lambda: options.scan(tree, cache=False)),
        "bare": timed(lambda: bare(tree.files)),
    }
    loaded: dict[str, tuple[int, int, str]] = {}
    for peer, seconds in options.peers.python(probe.path, home):
        slow = seconds / len(probe.files) * size > PATIENCE_SECONDS
        subjects[peer.name] = _peer(peer, probe if slow else tree, home, loaded)
    best = best_of(options.rounds, subjects)
    what = f"{size:,} flat"
    rows = _ours(what, best)
    rows.append(Row(what, "bare reads", best["bare"], "s", best["bare"] / best["floor"], "floor",
                    note="open, read and close by paths that are known, without listing a folder"))  # fmt: skip
    per_skill = {name: best[name] / of for name, (_, of, _) in loaded.items()}
    fastest = min(per_skill, key=lambda name: per_skill[name], default="")
    for name in sorted(per_skill, key=lambda name: per_skill[name]):
        skills, of, python = loaded[name]
        ratio = per_skill[name] / (best["metier"] / size)
        notes = [f"measured with {of:,} skills"] if of != size else []
        notes += [f"loads {skills:,} of {of:,}"] if skills != of else []
        notes += [f"on Python {python}"] if python != platform.python_version() else []
        goal = 5 if name == fastest else None
        rows.append(Row(what, options.peers.label(name), best[name], "s", ratio, "metier", at_least=goal,
                        note="; ".join(notes)))  # fmt: skip
    rows += (Row(what, name, None, note=f"not available: {why}") for name, why in options.peers.missing.items())
    return rows


def _peer(peer: PythonPeer, tree: Tree, home: str, loaded: dict[str, tuple[int, int, str]]) -> Callable[[], float]:
    def subject() -> float:
        result = peer.load(tree.path, home, PATIENCE_SECONDS * 5)
        loaded[peer.name] = (result["skills"], len(tree.files), result["python"])
        return result["seconds"]

    return subject


def floor(root: str) -> int:
    """Walk and read in plain Python; a folder with a SKILL.md is not searched further."""
    count = 0
    pending = [root]
    while pending:
        below: list[str] = []
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.name == "SKILL.md":
                    with open(entry.path, "rb", buffering=0) as stream:
                        stream.read(4096)
                    count += 1
                    below.clear()
                    break
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
        pending += below
    return count


def bare(files: tuple[str, ...]) -> None:
    """The least that any scan does."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.read(descriptor, 4096)
        os.close(descriptor)
