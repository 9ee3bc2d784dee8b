"""Random walks: real processes work on one session, its files change, processes die, and its record stays right.

`bench/walk` has the walk itself; `make walk` runs more of it.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PARTS, SESSIONS, STEPS = 20, 10, 25


def walk(*options: str) -> str:
    """Run a walk. Nothing may be wrong; what is wrong is printed by kind, with the line that repeats it."""
    command = [sys.executable, "-m", "bench.walk", *options]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout[-8_000:]}\n{done.stderr[-2_000:]}"
    return done.stdout


@pytest.mark.parametrize("part", range(PARTS))
def test_what_processes_did_by_turns_and_at_once_verifies_and_replays(part: int, tmp_path: Path) -> None:
    size = ["--sessions", str(SESSIONS), "--first", str(part * SESSIONS), "--steps", str(STEPS), "--jobs", "1"]
    said = walk(*size, "--folder", str(tmp_path))
    assert f"{SESSIONS} sessions, {SESSIONS * STEPS} steps" in said


def test_200_kills_of_two_processes_on_one_session_lose_nothing_acknowledged(tmp_path: Path) -> None:
    said = walk("--kills", "200", "--sandbox", "1", "--folder", str(tmp_path))
    log = (tmp_path / "session-0" / "log").read_text()
    assert len(re.findall(r"^kill [AB]$", log, re.MULTILINE)) == 200
    assert log.count("-> ok") > 300, "most calls were acknowledged"
    assert "1 sessions" in said
