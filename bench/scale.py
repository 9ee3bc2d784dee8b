"""How costs grow: from 1,000 to 100,000 skills, and from 1 to 256 clients. Writes a page with plots.

    python -m bench.scale [--max-skills 100000] [--max-clients 256] [--minutes 8] [--page docs/growth.md]

The page says of each cost how it grows, where that changes, and why. A size that would begin after `--minutes` is left
out, and the page says so. Plots are SVG files in a folder beside the page, named like it.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .generate import generate
from .http_clients import ROOT
from .plot import Point, Series, bend, figure, growth, plot

SKILLS = (1_000, 3_000, 10_000, 30_000, 100_000)
CLIENTS = (1, 4, 16, 64, 256)
SERVED = 500
"""Skills of the server that clients call."""

Figures = dict[int, dict[str, float]]
"""Figures by name, for each size."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot of the page: which figures it shows, and why they grow as they do."""

    file: str
    title: str
    unit: str
    lines: Mapping[str, str]
    why: str


CATALOG = (
    Plot("scan", "Scanning", "processor seconds", {"cold_s": "without a cache", "warm_s": "with the cache"}, """
Each file is opened and parsed once, so a cold scan costs the same per skill at every size. With the cache a file costs
one `stat` and its part of the cache, which is read as a whole. A bend among the small sizes is noise: a scan of 1,000
skills takes a few hundredths of a second. One folder gives at most 50,000 skills unless `discovery.max_skills` is
raised, as it is here."""),
    Plot("memory", "Memory", "MiB", {"memory_mib": "of the catalog"}, """
A catalog holds the name, the description and the paths of each skill, and nothing of the bodies. The first skills fit
into memory that the process had anyway."""),
    Plot("session", "A session", "processor ms",
         {"load_ms": "load a skill", "prompt_ms": "prompt", "message_ms": "prompt for a message"}, """
A load finds its skill by name and touches no other, so it does not depend on the size of the catalog. A prompt has a
budget of 8,000 characters, which costs the same in every catalog, and looks at each skill once. It bends where the
second part outweighs the first, at some thousand skills, and is a constant cost per skill from there on. With a message
it also ranks them."""),
    Plot("search", "Search", "processor ms", {"search_ms": "one query", "index_ms": "building the index"}, """
A query reads the postings of its words, which grow with the catalog. The index is built once, in processes of its own
whose time counts here, and kept on disk. Larger catalogs than 10,000 are left out here, because building their index
takes long."""),
)  # fmt: skip
LOAD = (
    Plot("rate", "Durable loads", "per second of processor time",
         {"capacity": "a server", "store_capacity": "a store alone"}, """
This is what one process can do with a core of its own. The store alone has its limit far above: most of a load is HTTP
and the session, which is Python, and a server is one process. More clients share transactions, but that saves flushes
and little processor time of a server. Runs differ by a factor of two here, and disagree on whether its line rises or
falls. It never does more work at once than one core can: more clients wait longer, and more processes help."""),
    Plot("wait", "Waiting for a durable load", "ms", {"p50": "p50", "p99": "p99"}, """
Where flushes are slow, few clients wait for one flush, or for the end of the one before and then their own, and the
line is flat until the core is busy. Where they are fast, one client keeps the core busy already. From there on clients
queue, and the wait grows with their number."""),
    Plot("transactions", "Appends in one transaction", "appends", {"per_transaction": "threads of one store"}, """
Whoever comes while a transaction is flushed is in the next one. With one writer each append has a transaction of its
own."""),
)  # fmt: skip


@dataclass
class Run:
    """What was measured, and what was left out because the time was up."""

    seconds: float
    begun: float = field(default_factory=time.monotonic)
    catalog: Figures = field(default_factory=dict[int, dict[str, float]])
    load: Figures = field(default_factory=dict[int, dict[str, float]])
    left_out: list[str] = field(default_factory=list[str])

    def has_time(self, what: str) -> bool:
        if time.monotonic() - self.begun < self.seconds:
            print(f"{what} ...", file=sys.stderr, flush=True)
            return True
        self.left_out.append(what)
        return False


def measure(run: Run, folder: str, most_skills: int, most_clients: int) -> None:
    for name in ("project", "home"):
        os.mkdir(os.path.join(folder, name))
    # Clients first: they take the same time whatever the machine does, and skills take what is left.
    measure_clients(run, folder, [count for count in CLIENTS if count <= most_clients])
    for count in (count for count in SKILLS if count <= most_skills):
        if run.has_time(f"{count:,} skills"):
            with tempfile.TemporaryDirectory(prefix="tree-", dir=folder) as tree:
                generate(tree, count, "flat")
                found = _one("catalog", folder, tree, str(count))
            if "index_s" in found:
                found["index_ms"] = found["index_s"] * 1e3
            run.catalog[count] = found


def measure_clients(run: Run, folder: str, counts: Sequence[int]) -> None:
    from .load import hammer, processor_ms, service

    project = Path(folder, "served", "project")
    (project / ".git").mkdir(parents=True)
    tree = generate(str(project / ".agents" / "skills"), SERVED, "flat")
    names = [os.path.basename(os.path.dirname(path)) for path in tree.files]
    with service("served", project.parent, names, f"sqlite:///{folder}/events.db", 1) as setup:
        (server,) = setup.replicas
        hammer(setup, "load", 2, 16)
        for count in counts:
            if not run.has_time(f"{count} clients"):
                continue
            before = processor_ms(server.process.pid)
            found = hammer(setup, "load", 3, count)
            spent = processor_ms(server.process.pid) - before
            run.load[count] = {
                "rate": found.rate,
                "p50": found.p50,
                "p99": found.p99,
                "processor_ms": spent / max(found.requests, 1),
                "capacity": 1e3 * found.requests / max(spent, 1),
                **_one("store", folder, str(count), "1.5"),
            }


def _one(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.scale_one", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise AssertionError(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


# --- the page ---


def page(run: Run, plots: Path) -> str:
    """The page as Markdown. Its plots are written to a folder."""
    plots.mkdir(parents=True, exist_ok=True)
    lines = [
        "# How costs grow",
        "",
        _INTRODUCTION.format(cores=os.cpu_count(), load=os.getloadavg()[0], python=platform.python_version()),
        "",
    ]
    if run.left_out:
        lines += [f"Left out, because the time of the run was up: {', '.join(run.left_out)}.", ""]
    if run.catalog:
        lines += ["## With the number of skills", ""]
        for one in CATALOG:
            lines += _section(one, run.catalog, "skills", plots)
        lines += [*_table(run.catalog, "skills", _CATALOG_HEADS), ""]
    if run.load:
        lines += ["## With the number of clients", ""]
        lines += [
            _CLIENTS.format(skills=SERVED),
            "",
        ]
        for one in LOAD:
            lines += _section(one, run.load, "clients", plots)
        lines += [*_table(run.load, "clients", _LOAD_HEADS), ""]
    return "\n".join(lines)


_INTRODUCTION = """\
`python -m bench.scale` measured this on a machine with {cores} cores, which clients, servers and other work shared: the
load average was {load:.0f} (Python {python}). Scans, prompts, loads and searches are processor time of one process.
Rates and waits of clients are by the clock, so they are lower and longer than on a machine of your own; what to look at
is the shape. Both axes are logarithmic: a line of slope 1 is a constant cost per skill, and a flat line a constant
cost."""
_CLIENTS = """\
One server on SQLite with {skills} skills; each client loads a skill in one of 64 sessions, and gets its answer when the
load is durable. The store alone is measured with as many threads."""
_FLAT = 1.5
"""A smaller factor between the ends is the noise of the machine."""
_CATALOG_HEADS = {
    "cold_s": "cold scan s",
    "warm_s": "warm scan s",
    "memory_mib": "memory MiB",
    "prompt_ms": "prompt ms",
    "message_ms": "prompt for a message ms",
    "load_ms": "load ms",
    "index_s": "index s",
    "search_ms": "search ms",
}
_LOAD_HEADS = {
    "rate": "loads/s by the clock",
    "p50": "p50 ms",
    "p99": "p99 ms",
    "processor_ms": "processor ms a load",
    "appends_per_s": "appends/s of the store",
    "per_transaction": "appends a transaction",
}


def _section(one: Plot, figures: Figures, what: str, plots: Path) -> list[str]:
    series = [Series(name, _points(figures, key)) for key, name in one.lines.items()]
    shown = [line for line in series if len(line.points) > 1]
    if not shown:
        return []
    (plots / f"{one.file}.svg").write_text(plot(one.title, what, one.unit, shown), encoding="utf-8")
    lines = [f"### {one.title}", "", f"![{one.title}, {one.unit}]({plots.name}/{one.file}.svg)", ""]
    lines += [f"- {_growth(line, what)}" for line in shown]
    return [*lines, "", one.why.strip(), ""]


def _points(figures: Figures, key: str) -> list[Point]:
    return [(size, found[key]) for size, found in figures.items() if found.get(key, 0) > 0]


def _growth(line: Series, what: str) -> str:
    """How a figure grows, and where that changes, in a sentence."""
    points = line.points
    (first, low), (last, high) = points[0], points[-1]
    slope = growth([points[0], points[-1]])[0]
    is_flat = max(low, high) < _FLAT * min(low, high)
    text = f"**{line.name}**: {figure(low)} at {first:,.0f}, {figure(high)} at {last:,.0f}, "
    text += "about the same" if is_flat else f"so it grows with the number of {what} to the power of {slope:.2f}"
    where = bend(points)
    if where is None or is_flat:
        return f"{text}. It does not bend."
    slopes = growth(points)
    at = [point[0] for point in points].index(where)
    return f"{text}. It bends at {where:,.0f}, from {slopes[at - 1]:.2f} to {slopes[at]:.2f}."


def _table(figures: Figures, what: str, heads: Mapping[str, str]) -> list[str]:
    rows = [f"| {what} | {' | '.join(heads.values())} |", f"|{'---|' * (len(heads) + 1)}"]
    for size, found in figures.items():
        cells = (figure(found[key]) if key in found else "" for key in heads)
        rows.append(f"| {size:,} | {' | '.join(cells)} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="Measure how costs grow.")
    parser.add_argument("--max-skills", type=int, default=SKILLS[-1], help="the largest catalog")
    parser.add_argument("--max-clients", type=int, default=CLIENTS[-1], help="the most clients at once")
    parser.add_argument("--minutes", type=float, default=8, help="no measurement begins later than this")
    parser.add_argument("--page", default=os.path.join(ROOT, "docs", "growth.md"), help="the file to write")
    given = parser.parse_args()
    run = Run(given.minutes * 60)
    with tempfile.TemporaryDirectory(prefix="metier-scale-") as folder:
        measure(run, folder, given.max_skills, given.max_clients)
    target = Path(given.page)
    text = page(run, target.parent / target.stem)
    target.write_text(text, encoding="utf-8")
    print(f"{target} and {target.parent / target.stem}/*.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
