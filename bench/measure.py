"""How a figure comes about: the best of several rounds, in which floor, Metier and peers take turns.

Machines are noisy, so a time alone says little; a `Row` carries its ratio to what was measured beside it, and the
rounds are interleaved so that a slow moment of the machine hits everyone alike. Work inside a process is measured in
its CPU time, user and system, which neighbours on the machine disturb least; with the files in the system's cache, as
they are here, nobody waits for a disk. Whole commands are measured by the clock on the wall, as a user waits for them.
"""

import gc
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Subject = Callable[[], float]
"""Does the work once and returns the seconds it took."""

_NOTHING = subprocess.DEVNULL


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. A goal judges the ratio where there is one, else the value."""

    what: str
    who: str
    value: float | None
    unit: str = "s"
    ratio: float | None = None
    against: str = ""
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; `None` without a goal."""
        judged = self.value if self.ratio is None else self.ratio
        if judged is None or (self.at_most is None and self.at_least is None):
            return None
        return (self.at_most is None or judged <= self.at_most) and (self.at_least is None or judged >= self.at_least)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


def timed(work: Callable[[], object]) -> Subject:
    """The CPU time of the work; garbage of the previous subject is not its business."""

    def subject() -> float:
        gc.collect()
        start = time.process_time()
        work()
        return time.process_time() - start

    return subject


def command(arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> Subject:
    """A whole process, from start to exit; one that fails has no time."""

    def subject() -> float:
        start = time.perf_counter()
        subprocess.run(arguments, cwd=cwd, env=dict(env), stdin=_NOTHING, stdout=_NOTHING, stderr=_NOTHING, check=True)
        return time.perf_counter() - start

    return subject


def best_of(rounds: int, subjects: Mapping[str, Subject]) -> dict[str, float]:
    """The best time of each subject; all take their turn in each round."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, subject in subjects.items():
            seconds = subject()
            best[name] = min(seconds, best.get(name, seconds))
    return best


def clean_environment(home: str) -> dict[str, str]:
    """What a child process sees: the path and a home of its own, and nothing that would configure it otherwise."""
    kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR") if key in os.environ}
    return {**kept, "HOME": home, "NO_COLOR": "1"}
