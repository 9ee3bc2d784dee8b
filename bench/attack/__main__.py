"""Run the attack suite.

python -m bench.attack [--minutes 2] [--seed N] [--only FAMILY,FAMILY]
python -m bench.attack --only kills --seed 7 --number 3 --identity nobody     repeat one round

The exit code is 1 if anything escaped, exceeded a limit by more than 10 %, survived, or could not be tried.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from . import containers, families, rounds
from .boxes import IDENTITIES
from .rounds import Finding, Plan, Result

_EACH: Final = 12
"""Findings of a round that are printed."""
_LINE: Final = 300
_SHOWN: Final = 1_500
"""Characters of a finding that are printed."""


@dataclass(slots=True)
class Tally:
    """What the rounds of one family as one identity came to."""

    rounds: int = 0
    attempts: int = 0
    escapes: int = 0
    limits: int = 0
    worst: float = 0.0
    survivors: int = 0
    broken: int = 0

    def add(self, result: Result) -> None:
        kinds = [finding.kind for finding in result.findings]
        self.rounds += 1
        self.attempts += result.attempts
        self.worst = max(self.worst, result.worst)
        self.escapes += kinds.count("escape")
        self.limits += kinds.count("limit")
        self.survivors += kinds.count("survivor")
        self.broken += kinds.count("broken")

    @property
    def bad(self) -> bool:
        return bool(self.escapes or self.limits or self.survivors or self.broken or not self.attempts)


def attack(names: Sequence[str], options: argparse.Namespace) -> dict[tuple[str, str], Tally]:
    """Take the families in turn until the time is over. Every family has at least one round as each identity."""
    tallies: dict[tuple[str, str], Tally] = {}
    deadline = time.monotonic() + options.minutes * 60
    turns = [(identity, name) for identity in IDENTITIES for name in names if identity in families.identities(name)]
    for number in [options.number] if options.number is not None else itertools.count():
        for identity, name in turns:
            if number and options.number is None and time.monotonic() >= deadline:
                return tallies
            if options.identity in ("", identity):
                plan = Plan(name, options.seed, number, identity, options.seconds)
                result = rounds.run(plan, families.FAMILIES[name])
                tallies.setdefault((name, identity), Tally()).add(result)
                show(plan, result.findings)
    return tallies


def show(plan: Plan, findings: Sequence[Finding]) -> None:
    """Print findings as they come, because a long attack may be broken off."""
    shown = ""
    for finding in findings[:_EACH]:
        print(f"{finding.kind} in {plan.family} as {plan.identity}: {finding.what[:_SHOWN]}")
        if finding.script != shown:
            shown = finding.script
            print("".join(f"    | {line[:_LINE]}\n" for line in finding.script.strip().splitlines()[:60]), end="")
    if len(findings) > _EACH:
        print(f"and {len(findings) - _EACH} more")
    if findings:
        print(f"repeat it: {plan.again()}", flush=True)


def table(tallies: dict[tuple[str, str], Tally]) -> str:
    """The summary, one line for each family and identity."""
    head = ("family", "as", "rounds", "attempts", "escapes", "limits exceeded", "worst ratio", "survivors", "broken")
    lines: list[tuple[str, ...]] = [head]
    for (name, identity), tally in tallies.items():
        worst = f"{tally.worst:.2f}" if tally.worst else "-"
        counts = (tally.rounds, f"{tally.attempts:,}", tally.escapes, tally.limits, worst, tally.survivors)
        lines.append((name, identity, *map(str, counts), str(tally.broken)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) for line in lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.attack", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help=f"families with commas between: {', '.join(families.FAMILIES)}")
    parser.add_argument("--seconds", type=float, default=4.0, help="the time of one round")
    parser.add_argument("--number", type=int, help="repeat this round")
    parser.add_argument("--identity", default="", help="repeat it as root, nobody or self")
    return parser.parse_args()


def main() -> int:
    options = parse()
    names = options.only.split(",") if options.only else list(families.FAMILIES)
    unknown = [name for name in names if name not in families.FAMILIES]
    if unknown:
        print(f"no such family: {', '.join(unknown)}", file=sys.stderr)
        return 2
    begun = time.monotonic()
    if not options.only and not os.environ.get("CI"):
        for name, reason in containers.missing().items():
            print(f"{name} is left out: {reason}")
            names.remove(name)
    tallies = attack(names, options)
    print(table(tallies))
    bad = any(tally.bad for tally in tallies.values())
    print(f"seed {options.seed}, {time.monotonic() - begun:.0f} s: {'something was found' if bad else 'nothing found'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
