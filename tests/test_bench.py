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
    figures = {name: rows[name]["rows"] if isinstance(rows[name], dict) else rows[name] for name in names}
    bounded = {row["who"] for row in figures["scan-io"] if row["at_most"] is not None}
    assert {"KB that stay", "blocks that stay"} <= bounded
    assert any(who.startswith("calls") for who in bounded)
    assert [row["value"] for row in figures["frontmatter"] if row["who"] == "parse + check" and row["unit"] == "/s"]
