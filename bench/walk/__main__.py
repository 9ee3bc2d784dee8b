"""Run the walk.

python -m bench.walk [--sessions 2000] [--steps 40] [--seed N] [--profiles rip,omp] [--jobs N] [--no-drop]
python -m bench.walk --only 17 --seed N     repeat one session; its folder is kept, with everything it did in `log`
python -m bench.walk --kills 200            kill processes at work on one session

The exit code is 1 if anything is wrong.
"""

import argparse
import json
import os
import select
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

from metier.hosts import profiles

from .kills import Kills
from .session import Plan, Walk

_SHOWN: Final = 1_500
"""Characters of an example that are printed."""


def plan_of(options: argparse.Namespace, number: int, folder: str) -> Plan:
    """The profiles take turns."""
    names = options.profiles.split(",") if options.profiles else profiles.names()
    return Plan(
        number=number,
        seed=options.seed,
        steps=options.steps,
        profile=names[number % len(names)],
        folder=os.path.join(folder, f"session-{number}"),
        drops=not options.no_drop,
        sandbox=options.sandbox,
    )


def walk(plan: Plan, keep: bool, kills: int = 0) -> dict[str, Any]:
    """Walk one session, or kill its processes. Its folder is removed, or kept with a log."""
    os.makedirs(plan.folder)
    session = Kills(plan, kills) if kills else Walk(plan)
    report = session.run()
    if keep or (kills and report.wrong):
        with open(os.path.join(plan.folder, "log"), "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.writelines(f"{line}\n" for line in session.log)
        print(f"everything that happened is in {plan.folder}/log")
    else:
        session.world.remove()
    return report.as_dict()


def work(options: argparse.Namespace, numbers: Sequence[int], folder: str, pipe: int) -> None:
    """Walk some sessions, one after the other, and send a line about each."""
    for number in numbers:
        report = walk(plan_of(options, number, folder), keep=options.keep)
        with open(pipe, "w", encoding="utf-8", closefd=False) as stream:
            stream.write(json.dumps(report) + "\n")


def start(options: argparse.Namespace, numbers: Sequence[int], folder: str) -> int:
    """Start a process that walks some sessions. Return the pipe that it reports to."""
    ours, theirs = os.pipe()
    if os.fork():
        os.close(theirs)  # when it ends, nobody else holds the other end
        return ours
    code = 1
    try:
        os.close(ours)
        work(options, numbers, folder, theirs)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def collect(pipes: Sequence[int], total: int) -> list[dict[str, Any]]:
    """Read reports until all processes have ended, and show how far they are."""
    buffers = dict.fromkeys(pipes, b"")
    reports: list[dict[str, Any]] = []
    begun = shown = time.monotonic()
    while buffers:
        for pipe in select.select(list(buffers), [], [], 5)[0]:
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                del buffers[pipe]
                os.wait()
                continue
            *lines, buffers[pipe] = (buffers[pipe] + chunk).split(b"\n")
            for report in map(json.loads, lines):
                reports.append(report)
                for kind, detail in report["wrong"][:3]:  # at once, because a long walk may be broken off
                    print(f"session {report['number']}: {kind}: {detail[:_SHOWN]}", file=sys.stderr, flush=True)
        now = time.monotonic()
        if now - shown > 10:
            shown = now
            bad = sum(bool(report["wrong"]) for report in reports)
            print(f"{len(reports)} of {total} sessions, {bad} wrong, {now - begun:.0f} s", file=sys.stderr, flush=True)
    return reports


def summary(reports: list[dict[str, Any]], options: argparse.Namespace, seconds: float) -> int:
    """Print what was found, by kind. Return the exit code."""
    bad = [report for report in reports if report["wrong"]]
    kinds: dict[str, list[int]] = defaultdict(list)
    times: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for report in sorted(bad, key=lambda one: one["number"]):
        for kind, detail in report["wrong"]:
            if report["number"] not in kinds[kind]:
                kinds[kind].append(report["number"])
            times[kind] += 1
            examples.setdefault(kind, detail)
    for kind, numbers in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"{kind}: {times[kind]} times in {len(numbers)} sessions, such as {', '.join(map(str, numbers[:5]))}")
        print(f"    {examples[kind][:_SHOWN]}")
    by_profile = Counter(report["profile"] for report in bad)
    of_each = Counter(report["profile"] for report in reports)
    print(", ".join(f"{name} {by_profile[name]}/{count}" for name, count in sorted(of_each.items())))
    if options.kills:
        print(f"{reports[0]['kills']} kills, {reports[0]['acknowledged']} calls acknowledged")
    print(
        f"{len(reports)} sessions, {sum(report['steps'] for report in reports)} steps, "
        f"{sum(report['frames'] for report in reports)} frames "
        f"({sum(report['not_compared'] for report in reports)} not compared), {len(bad)} sessions wrong, "
        f"seed {options.seed}, {seconds:.0f} s"
    )
    if bad and not options.kills:
        same = [f"--seed {options.seed}", f"--steps {options.steps}"]
        same += [f"--profiles {options.profiles}"] if options.profiles else []
        same += ["--no-drop"] if options.no_drop else []
        print(f"repeat one: python -m bench.walk {' '.join(same)} --only {bad[0]['number']}")
    return 1 if bad else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.walk", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--sessions", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first session")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profiles", default="", help="names with commas between; all by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sandbox", type=float, default=0.25, help="the share of sessions with a real sandbox")
    parser.add_argument("--no-drop", action="store_true", help="never take the stored snapshot away")
    parser.add_argument("--only", type=int, help="repeat this session, and keep its folder")
    parser.add_argument("--kills", type=int, default=0, help="kill processes this many times, in one session")
    parser.add_argument("--keep", action="store_true", help="keep all folders")
    parser.add_argument("--reports", help="also write a JSON line about each session to this file")
    parser.add_argument("--folder", help="work here instead of in a temporary folder")
    return parser.parse_args()


def new_folder() -> str:
    """A folder in memory, where there is one: nobody cuts the power here, so nothing must reach a disk."""
    memory = "/dev/shm"
    return tempfile.mkdtemp(prefix="walk-", dir=memory if os.access(memory, os.W_OK) else None)


def main() -> int:
    options = parse()
    folder = options.folder or new_folder()
    begun = time.monotonic()
    if options.only is not None or options.kills:
        plan = plan_of(options, options.only or 0, folder)
        reports = [walk(plan, keep=options.only is not None or options.keep, kills=options.kills)]
    else:
        numbers = range(options.first, options.first + options.sessions)
        pipes = [start(options, numbers[job :: options.jobs], folder) for job in range(options.jobs)]
        reports = collect(pipes, len(numbers))
    if not os.listdir(folder):
        os.rmdir(folder)
    if options.reports:
        with open(options.reports, "w", encoding="utf-8") as stream:
            stream.writelines(f"{json.dumps(report)}\n" for report in reports)
    code = summary(reports, options, time.monotonic() - begun)
    complete = len(reports) == options.sessions or options.only is not None or options.kills
    return code if complete else 1


if __name__ == "__main__":
    sys.exit(main())
