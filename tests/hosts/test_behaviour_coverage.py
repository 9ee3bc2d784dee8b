"""Every behaviour of the hosts has a test that carries its id; this one keeps the list of those that have none yet."""

import re
from pathlib import Path

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
