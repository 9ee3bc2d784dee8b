"""The command: choose benchmarks, run them one after the other, print one table, keep the figures as JSON."""

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys
import textwrap
from collections.abc import Sequence

from . import cases
from .measure import Row
from .options import CORPUS, Options
from .peers import Peers

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
WIDTH = 80


def main() -> int:
    names = [module.name.replace("_", "-") for module in pkgutil.iter_modules(cases.__path__)]
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Metier against floors and peers.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run: {', '.join(names)} (default: all)")
    parser.add_argument("--sizes", help="numbers of skills, such as 2000,10000 (default: 2000,10000,50000)")
    parser.add_argument("--quick", action="store_true", help="500 skills, two rounds, no peers: does it run at all?")
    parser.add_argument("--no-peers", action="store_true", help="only floors, nothing is installed")
    parser.add_argument(
        "--corpus", default=CORPUS, help="folder with skills.tar.xz and queries.jsonl (default: ../shared/corpus)"
    )
    parser.add_argument("--full", action="store_true", help="also search in the largest size, which takes minutes")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(names))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(names)}")
    try:
        sizes = tuple(sorted({int(size.replace("_", "")) for size in (arguments.sizes or "").split(",") if size}))
    except ValueError:
        parser.error("--sizes takes whole numbers with commas between them")
    options = Options(
        sizes=sizes or ((500,) if arguments.quick else (2_000, 10_000, 50_000)),
        rounds=2 if arguments.quick else 5,
        peers=Peers(wanted=not (arguments.quick or arguments.no_peers)),
        corpus=os.path.abspath(arguments.corpus),
        full=arguments.full,
    )
    try:
        for name in arguments.names or names:
            print(f"running {name} ...", file=sys.stderr, flush=True)
            rows = importlib.import_module(f"bench.cases.{name.replace('-', '_')}").run(options)
            report(name, rows)
            save(name, rows, options)
    finally:
        options.workspace.close()
    return 0


def report(name: str, rows: Sequence[Row]) -> None:
    """One benchmark's part of the table: what, who, figure, ratio, goal; notes below."""
    print(f"\n{name.upper():<21} {'WHO':<22} {'FIGURE':>11} {'RATIO':>13}  GOAL")
    notes: list[str] = []
    previous = ""
    for row in rows:
        mark = ""
        if row.note:
            notes += [row.note] if row.note not in notes else []
            mark = f" ({notes.index(row.note) + 1})"
        what, previous = ("" if row.what == previous else row.what), row.what
        who = row.who[: 22 - len(mark)] + mark
        print(f"  {what[:19]:<19} {who:<22} {_figure(row):>11} {_ratio(row):>13}  {_goal(row)}".rstrip())
    for number, note in enumerate(notes, 1):
        print(textwrap.fill(f"({number}) {note}", WIDTH, initial_indent="  ", subsequent_indent="      "))
    sys.stdout.flush()


def _figure(row: Row) -> str:
    if row.value is None:
        return "-"
    digits = 0 if row.value >= 1000 else 1 if row.value >= 10 else 2 if row.value >= 1 else 3
    return f"{row.value:,.{digits}f} {row.unit}".rstrip()


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return ""
    return f"{row.ratio:.{1 if row.ratio >= 10 else 2}f}x {row.against}"


def _goal(row: Row) -> str:
    if row.met is None:
        return ""
    bound = f"<={row.at_most:g}" if row.at_most is not None else f">={row.at_least:g}"
    return bound if row.met else f"{bound} !"


def save(name: str, rows: Sequence[Row], options: Options) -> None:
    os.makedirs(RESULTS, exist_ok=True)
    content = {
        "benchmark": name,
        "python": platform.python_version(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "sizes": options.sizes,
        "rounds": options.rounds,
        "rows": [row.as_dict() for row in rows],
    }
    with open(os.path.join(RESULTS, f"{name}.json"), "w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=2, ensure_ascii=False)
        stream.write("\n")


if __name__ == "__main__":
    sys.exit(main())
