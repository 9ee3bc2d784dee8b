"""The benchmarks run; what they measure is looked at by people, not by tests."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]


@pytest.mark.behaviour("R-054", "R-055")
def test_scan_and_frontmatter_benchmarks_report_figures_against_bounds(tmp_path: Path) -> None:
    names = ["scan-io", "frontmatter"]
    command = [sys.executable, "-m", "bench", *names, "--quick", "--no-peers"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert "SCAN-IO" in done.stdout
    assert "FRONTMATTER" in done.stdout
    rows = {name: json.loads((PROJECT / "bench" / "results" / f"{name}.json").read_text()) for name in names}
    io, parses = (json.dumps(rows[name]) for name in names)
    assert "alloc" in io or "memory" in io or "blocks" in io
    assert "/s" in parses
