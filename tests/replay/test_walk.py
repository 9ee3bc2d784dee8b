"""Random walks: real processes work on one session, its files change, processes die, and its record stays right.

`bench/walk` has the walk itself. A few sessions and kills run here; `make walk` and CI run many more.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

PROJECT = Path(__file__).resolve().parents[2]
SESSIONS, STEPS, KILLS = 14, 25, 20


def walk(*options: str) -> str:
    """Run a walk. Nothing may be wrong; what is wrong is printed by kind, with the line that repeats it."""
    command = [sys.executable, "-m", "bench.walk", *options]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-8_000:]}\n{done.stderr[-2_000:]}"
    return done.stdout


def test_what_processes_did_by_turns_and_at_once_verifies_and_replays() -> None:
    said = walk("--sessions", f"{SESSIONS}", "--steps", f"{STEPS}", "--jobs", "1")
    assert f"{SESSIONS} sessions, {SESSIONS * STEPS} steps" in said


def test_kills_of_two_processes_on_one_session_lose_nothing_acknowledged() -> None:
    said = walk("--kills", f"{KILLS}", "--sandbox", "1")
    (counted,) = re.findall(rf"^{KILLS} kills, (\d+) calls acknowledged$", said, re.MULTILINE)
    assert int(counted) > 1.5 * KILLS, "most calls were answered before a process was killed"
