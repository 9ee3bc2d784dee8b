"""The benchmarks run; what they measure is looked at by people, not by tests."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.scale import Run, page

PROJECT = Path(__file__).resolve().parents[1]


@pytest.mark.system
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


def test_the_page_of_growth_says_where_a_cost_bends_and_its_plots_are_svg(tmp_path: Path) -> None:
    sizes = (1_000, 3_000, 10_000, 30_000)
    costs = {size: size / 1_000 if size <= 10_000 else size * size / 1e7 for size in sizes}
    run = Run(60)
    run.catalog = {size: {"cold_s": costs[size], "warm_s": 0.5, "load_ms": 0.4} for size in sizes}
    run.left_out = ["100,000 skills"]
    text = page(run, tmp_path / "growth")
    assert "**without a cache**: 1 at 1,000, 90 at 30,000" in text
    assert "It bends at 10,000, from 1.00 to 2.00." in text
    assert "**with the cache**: 0.5 at 1,000, 0.5 at 30,000, about the same. It does not bend." in text
    assert "the time of the run was up: 100,000 skills" in text
    assert "| 30,000 | 90 | 0.5 |" in text
    root = ElementTree.parse(tmp_path / "growth" / "scan.svg").getroot()
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == 2 * len(sizes)
