"""Peak memory of a process that holds a large catalog, against the bytes of the names and descriptions in it.

Each figure comes from a child process of its own and is its peak resident size minus that of a bare interpreter.
"""

import json
import subprocess
import sys

from ..measure import Row, clean_environment
from ..options import Options, scan_arguments

_CHILD = """
import json, resource, sys
arguments = json.loads(sys.argv[1])
if arguments is not None:
    from metier import Skills
if arguments:
    skills = Skills.discover(**arguments)
try:
    with open("/proc/self/status") as stream:
        peak = next(int(line.split()[1]) * 1024 for line in stream if line.startswith("VmHWM"))
except OSError:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak)
"""


def run(options: Options) -> list[Row]:
    tree = options.workspace.tree(max(options.sizes))
    scan = {kind: scan_arguments(options.workspace, tree.path, cache=kind != "no cache") for kind in _KINDS}
    bare = _peak(options, None)
    what = f"{len(tree.files):,} flat"
    floor = tree.text_bytes
    rows = [
        Row(what, "names + descriptions", floor / 1e6, "MB"),
        Row(what, "bare interpreter", bare / 1e6, "MB"),
        Row(what, "import metier", (_peak(options, {}) - bare) / 1e6, "MB"),
    ]
    for kind in _KINDS:
        peak = _peak(options, scan[kind]) - bare
        rows.append(Row(what, f"metier, {kind}", peak / 1e6, "MB", peak / floor, "text", at_most=4))
    peak = _listed(options, tree.path)
    rows.append(Row(what, "list --json, in all", peak / 1e6, "MB", at_most=350))
    return rows


_KINDS = ("no cache", "cache written", "cache read")


_WATCHED = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(os.wait4(child.pid, 0)[2].ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


def _listed(options: Options, path: str) -> int:
    """The peak of the whole command, which prints the catalog item by item."""
    env = clean_environment(options.workspace.folder("home"))
    call = [sys.executable, "-c", _WATCHED, sys.executable, "-m", "metier", "list", "--json", "--skills", path]
    return int(subprocess.run(call, env=env, capture_output=True, check=True).stdout)


def _peak(options: Options, arguments: object) -> int:
    """The smallest of a few peaks: allocators waste at random, but never save."""
    env = clean_environment(options.workspace.folder("home"))
    call = [sys.executable, "-c", _CHILD, json.dumps(arguments)]
    rounds = max(2, options.rounds - 2)
    return min(int(subprocess.run(call, env=env, capture_output=True, check=True).stdout) for _ in range(rounds))
