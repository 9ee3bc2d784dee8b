"""Every behaviour of the hosts has a test that carries its id, and nearly every one has a test in `make test`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lanes

HERE = Path(__file__).parent
IDS = [line.split("\t")[0] for line in (HERE / "behaviours.tsv").read_text().splitlines()[1:]]
MARK = re.compile(r"\.behaviour\(([^)]*)\)")


def covered() -> dict[str, list[str]]:
    """The tests that carry each id, by reading the marks in the test files."""
    found: dict[str, list[str]] = {}
    for file in sorted(HERE.parent.rglob("test_*.py")):
        text = file.read_text()
        for mark in MARK.finditer(text):
            name = re.search(r"def (test_\w+)", text[mark.end() :])
            for one in re.findall(r'"([A-Z]-\d+)"', mark[1]):
                found.setdefault(one, []).append(f"{file.name}::{name[1] if name else '?'}")
    return found


def test_marks_name_only_known_behaviours() -> None:
    assert sorted(set(covered()) - set(IDS)) == []


def test_the_behaviours_without_a_test_are_exactly_the_listed_ones() -> None:
    pending = set((HERE / "pending.txt").read_text().split())
    uncovered = set(IDS) - set(covered())
    assert sorted(uncovered - pending) == [], "these lost their test"
    assert sorted(pending - uncovered) == [], "these have a test now; take them off pending.txt"


class Lanes:
    """A plugin that notes in which lanes each behaviour is tested."""

    def __init__(self) -> None:
        self.found: dict[str, set[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for mark in item.iter_markers("behaviour"):
                for one in mark.args:
                    self.found.setdefault(one, set()).add(lanes.lane_of(item))


def lanes_of_behaviours() -> None:
    """Print the behaviours that no in-process test has, each with its lanes."""
    plugin = Lanes()
    pytest.main(["--collect-only", "--quiet", "--quiet", "-p", "no:cacheprovider"], plugins=[plugin])
    rows = (f"{one} {' '.join(sorted(found))}" for one, found in sorted(plugin.found.items()))
    print("LANES", *(row for row in rows if lanes.IN_PROCESS not in row), sep="\n")


@pytest.mark.system
def test_the_behaviours_that_make_test_does_not_cover_are_the_listed_ones() -> None:
    command = [sys.executable, "-c", "import test_behaviour_coverage as one; one.lanes_of_behaviours()"]
    paths = os.pathsep.join([str(HERE), str(HERE.parent), str(HERE.parents[1]), *sys.path])
    done = subprocess.run(
        command, cwd=HERE.parents[1], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    found = done.stdout.partition("LANES\n")[2]
    assert found == (HERE / "other_lanes.txt").read_text(), "write what was found into other_lanes.txt"
    assert len(found.splitlines()) < 40
