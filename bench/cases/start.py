"""What a user waits for: the import over a bare interpreter, and a whole `metier list --json` beside its peers.

The import is measured twice, because a lazy package would only move its cost to the first name that is used.
"""

import os
import subprocess
import sys

from ..generate import Tree
from ..measure import Row, Subject, best_of, clean_environment, command
from ..options import Options
from ..peers import NODE_PEERS, NodePeer

_MORE_ROUNDS = 3
"""Short processes are noisy, and cheap to repeat."""


def run(options: Options) -> list[Row]:
    return _import(options) + _small(options) + _list(options)


def _import(options: Options) -> list[Row]:
    workspace = options.workspace
    env = clean_environment(workspace.folder("home"))
    names = {"import metier": "import metier", "from metier import Skills": "... import Skills"}
    subjects = {
        code: command([sys.executable, "-c", code], workspace.folder("project"), env) for code in ("pass", *names)
    }
    best = {code: seconds * 1000 for code, seconds in best_of(options.rounds * _MORE_ROUNDS, subjects).items()}
    what, bare = "import", best["pass"]
    rows = [Row(what, "python -c pass", bare, "ms")]
    rows += (Row(what, names[code], best[code], "ms", best[code] / bare, "bare") for code in names)
    rows += (Row("  more than bare", names[code], best[code] - bare, "ms", at_most=35) for code in names)
    return rows


def _small(options: Options) -> list[Row]:
    """Six skills, as most people have: a list of them, and the help, beside what click alone takes."""
    tree = options.workspace.tree(6)
    env = clean_environment(options.workspace.folder("home"))
    ours = os.path.join(os.path.dirname(sys.executable), "metier")
    commands = {
        "import click": [sys.executable, "-c", "import click"],
        "metier --help": [ours, "--help"],
        "metier list": [ours, "list", "--skills", tree.path],
    }
    project = options.workspace.folder("project")
    subjects = {name: command(arguments, project, env) for name, arguments in commands.items()}
    best = {name: seconds * 1000 for name, seconds in best_of(options.rounds * _MORE_ROUNDS, subjects).items()}
    what, click = "6 skills", best["import click"]
    return [
        Row(what, "import click", click, "ms"),
        Row(what, "metier --help", best["metier --help"], "ms", at_most=80),
        Row(what, "metier list", best["metier list"], "ms", best["metier list"] / click, "click", at_most=2),
    ]


def _list(options: Options) -> list[Row]:
    """The command on the smallest tree: with nothing remembered, with its cache, and each peer's."""
    tree = options.workspace.tree(options.smallest)
    project, home = options.workspace.folder("list-project"), options.workspace.folder("list-home")
    env = clean_environment(home)
    ours = [os.path.join(os.path.dirname(sys.executable), "metier"), "list", "--json", "--skills", tree.path]
    again = command(ours, project, env)
    again()
    subjects: dict[str, Subject] = {
        "bare": command([sys.executable, "-c", "pass"], project, env),
        "first": command(ours, project, {**env, "METIER_CACHE": "false"}),
        "again": again,
    }
    peers = {peer.name: peer for peer in options.peers.node() if _works(peer, tree, project, env, options)}
    subjects |= {name: command(peer.command, project, env) for name, peer in peers.items()}
    best = best_of(options.rounds * 2, subjects)
    what, bare, first = f"list {len(tree.files):,}", best["bare"], best["first"]
    rows = [
        Row(what, "python -c pass", bare),
        Row(what, "metier, no cache", first, "s", first / bare, "bare"),
        Row(what, "metier, cache", best["again"], "s", best["again"] / bare, "bare"),
    ]
    for name, peer in peers.items():
        ratio = best[name] / first
        rows.append(Row(what, options.peers.label(name), best[name], "s", ratio, "metier", at_least=1, note=peer.note))
    missing = options.peers.missing
    absent = [peer.name for peer in NODE_PEERS if peer.name in missing]
    return rows + [Row(what, name, None, note=f"not available: {missing[name]}") for name in absent]


def _works(peer: NodePeer, tree: Tree, project: str, env: dict[str, str], options: Options) -> bool:
    """Put the tree where the peer looks, and let it run once."""
    place = os.path.join(project, peer.skills_folder)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if not os.path.lexists(place):
        os.symlink(tree.path, place)
    try:
        command(peer.command, project, env)()
    except (OSError, subprocess.CalledProcessError) as error:
        options.peers.missing[peer.name] = str(error)
        return False
    return True
