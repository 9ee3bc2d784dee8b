"""Random walks: real processes work on one session, its files change, processes die, and its record stays right.

`bench/walk` has the walk itself; `make walk` runs more of it.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PARTS, SESSIONS, STEPS = 10, 10, 25


def walk(*options: str) -> str:
    """Run a walk. Nothing may be wrong; what is wrong is printed by kind, with the line that repeats it."""
    command = [sys.executable, "-m", "bench.walk", *options]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout[-8_000:]}\n{done.stderr[-2_000:]}"
    return done.stdout


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.slow) for part in range(2, PARTS))])
def test_what_processes_did_by_turns_and_at_once_verifies_and_replays(part: int) -> None:
    said = walk("--sessions", f"{SESSIONS}", "--first", f"{part * SESSIONS}", "--steps", f"{STEPS}", "--jobs", "1")
    assert f"{SESSIONS} sessions, {SESSIONS * STEPS} steps" in said


@pytest.mark.slow
def test_200_kills_of_two_processes_on_one_session_lose_nothing_acknowledged() -> None:
    said = walk("--kills", "200", "--sandbox", "1")
    (counted,) = re.findall(r"^200 kills, (\d+) calls acknowledged$", said, re.MULTILINE)
    assert int(counted) > 300, "most calls were answered before a process was killed"
