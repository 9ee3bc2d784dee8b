"""One round of a family: a process of its own, with a folder, a seed and a deadline, and what it found.

The process of a round is a subreaper: whatever its descendants leave behind becomes its child, so nothing that survives
can hide. At the end of a round, processes, mounts and temporary folders that are left are findings.
"""

import contextlib
import ctypes
import json
import os
import random
import select
import shutil
import signal
import tempfile
import time
import traceback
import uuid
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from .boxes import NOBODY, mounts, settled
from .preload import preload

Kind = Literal["escape", "limit", "survivor", "broken"]
"""What a finding is. `broken` means that an attack could not be made as it should, so it proves nothing."""

TOLERANCE: Final = 1.10
"""A limit counts as exceeded above this ratio."""
PATIENCE: Final = 90.0
"""Seconds beyond its own time after which a round counts as hanging, on a busy machine."""
SETTLE: Final = 10.0
"""Seconds after which a process that is left counts as a survivor."""
_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    what: str
    script: str = ""
    """The code that did it, to repeat it by hand."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which round to run. Together with the code, it decides what the round does."""

    family: str
    seed: int
    number: int
    identity: str
    seconds: float = 4.0
    enough: int = 20
    """The round ends after this many findings."""

    def again(self) -> str:
        """The command that repeats this round."""
        given = f"--only {self.family} --seed {self.seed} --number {self.number} --identity {self.identity}"
        return f"python -m bench.attack {given} --seconds {self.seconds:g}"


@dataclass(slots=True)
class Round:
    """What an attack works with, and where it reports."""

    plan: Plan
    folder: Path
    chance: random.Random
    token: str
    """A random word that is in every secret. It must never come back."""
    deadline: float = 0.0
    """When the round ends. Its time begins when it first asks whether it goes on, after everything is set up."""
    attempts: int = 0
    worst: float = 0.0
    findings: list[Finding] = field(default_factory=list[Finding])

    @property
    def identity(self) -> str:
        return self.plan.identity

    @property
    def number(self) -> int:
        return self.plan.number

    @property
    def turn(self) -> int:
        """Chooses between the kinds of attack of a family. Another seed begins with another kind."""
        return self.plan.number + self.plan.seed

    def goes_on(self) -> bool:
        self.deadline = self.deadline or time.monotonic() + self.plan.seconds
        return time.monotonic() < self.deadline and len(self.findings) < self.plan.enough

    def tried(self, count: int = 1) -> None:
        self.attempts += count

    def found(self, kind: Kind, what: str, script: str = "") -> None:
        self.findings.append(Finding(kind, what, script))

    def escape(self, what: str, script: str = "") -> None:
        self.found("escape", what, script)

    def used(self, what: str, used: float, allowed: float, script: str = "") -> None:
        """Compare what was used with a limit."""
        ratio = used / allowed
        self.worst = max(self.worst, ratio)
        if ratio > TOLERANCE:
            self.found("limit", f"{what}: {used:,.0f} of {allowed:,.0f} ({ratio:.2f} times the limit)", script)

    def secret_in(self, where: str, data: bytes | str, script: str = "") -> bool:
        """Report a secret in something that came back."""
        raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        if self.token.encode() not in raw:
            return False
        self.escape(f"a secret came back: {where}", script)
        return True


Attack = Callable[[Round], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What the process of a round reported."""

    attempts: int
    worst: float
    findings: tuple[Finding, ...]


def run(plan: Plan, attack: Attack) -> Result:
    """Run one round in a process of its own. Nothing of it is left afterwards."""
    preload()
    base = tempfile.mkdtemp(prefix="metier-attack-")
    os.chmod(base, 0o755)
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork of a process with threads; the child starts none of them
        child = os.fork()
    if not child:
        os.close(ours)
        _be_the_round(plan, attack, base, theirs)
    os.close(theirs)
    try:
        return _wait(child, ours, plan)
    finally:
        os.close(ours)
        shutil.rmtree(base, ignore_errors=True)


def _wait(child: int, pipe: int, plan: Plan) -> Result:
    deadline = time.monotonic() + plan.seconds + PATIENCE
    content = b""
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            os.waitpid(child, 0)
            break
        content += chunk
    else:
        tree = [child, *descendants(child)]
        for pid in tree:
            _kill(pid)
        os.waitpid(child, 0)
        return Result(0, 0.0, (Finding("limit", f"the round did not end in {plan.seconds + PATIENCE:g} seconds"),))
    if not content:
        return Result(0, 0.0, (Finding("broken", "the process of the round ended without a report"),))
    report: dict[str, Any] = json.loads(content)
    return Result(report["attempts"], report["worst"], tuple(Finding(**one) for one in report["findings"]))


def _be_the_round(plan: Plan, attack: Attack, base: str, pipe: int) -> None:
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        round_ = begin(plan, base)
        before = _state(round_.folder)
        try:
            attack(round_)
        except BaseException:
            round_.found("broken", traceback.format_exc()[-3_000:])
        _report_what_is_left(round_, before)
        report = {
            "attempts": round_.attempts,
            "worst": round_.worst,
            "findings": [asdict(finding) for finding in round_.findings],
        }
        data = json.dumps(report).encode()
        while data:
            data = data[os.write(pipe, data) :]
        code = 0
    finally:
        os._exit(code)


def begin(plan: Plan, base: str) -> Round:
    """The folders, the surroundings and the random numbers of a round."""
    for name in list(os.environ):
        if name.startswith(("METIER_", "XDG_", "CODELIA_", "SKILLS_")):
            del os.environ[name]
    temporary = os.path.join(base, "tmp")
    os.mkdir(temporary)
    os.chmod(temporary, 0o1777)
    tempfile.tempdir = temporary
    os.environ.update(HOME=os.path.join(base, "no-home"), TMPDIR=temporary, NO_COLOR="1")
    chance = random.Random(f"{plan.seed}/{plan.family}/{plan.identity}/{plan.number}")
    return Round(plan, Path(base).resolve(), chance, uuid.uuid4().hex)


def own(path: Path, identity: str) -> None:
    """Give a folder and everything in it to the identity."""
    if identity != "nobody":
        return
    for entry in (path, *path.rglob("*")):
        os.chown(entry, NOBODY, NOBODY, follow_symlinks=False)


# --- what is left ---


def descendants(root: int) -> list[int]:
    """The processes below one, however deep. Zombies do not count."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(name)] = int(fields[1])
    found: list[int] = []
    pending = [root]
    while pending:
        above = pending.pop()
        below = [pid for pid, parent in parents.items() if parent == above]
        found += below
        pending += below
    return found


def reap() -> None:
    """Collect children that have ended, also those that were inherited."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def describe(pid: int) -> str:
    """A process in one line."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        waits = Path(f"/proc/{pid}/wchan").read_text()
        return f"{pid} ({state}, in {waits}): {words[:120]}"
    return str(pid)


def _state(folder: Path) -> tuple[set[str], set[str]]:
    return set(mounts(folder)), {entry.name for entry in (folder / "tmp").iterdir()}


def _report_what_is_left(round_: Round, before: tuple[set[str], set[str]]) -> None:
    me = os.getpid()

    def left() -> list[int]:
        reap()
        return descendants(me)

    remaining = settled(left, [], SETTLE)
    if remaining:
        round_.found("survivor", "; ".join(describe(pid) for pid in remaining[:5]))
        for pid in remaining:
            _kill(pid)
        settled(left, [], SETTLE)
    mounted, temporary = _state(round_.folder)
    if mounted - before[0]:
        round_.found("survivor", f"mounts are left: {sorted(mounted - before[0])[:5]}")
    if temporary - before[1]:
        round_.found("survivor", f"temporary folders are left: {sorted(temporary - before[1])[:5]}")


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
