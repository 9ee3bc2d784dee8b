"""Every promise of the threat model names a test that exists, and every family of attacks is named."""

import re
from pathlib import Path

import pytest

from bench.attack.families import FAMILIES

PROJECT = Path(__file__).resolve().parents[2]
TEXT = (PROJECT / "docs" / "threat-model.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_the_threat_model_names_exists(file: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (PROJECT / file).read_text(), re.MULTILINE)


def test_every_promise_names_a_test() -> None:
    rows = [row for row in TEXT.splitlines() if row.startswith("| ") and row.count("|") == 4 and row != "|---|---|---|"]
    promises = rows[next(number for number, row in enumerate(rows) if row.startswith("| promise |")) + 1 :]
    assert len(promises) >= 15
    for row in promises:
        assert "::test_" in row or "the same (`" in row, row


def test_every_family_of_attacks_is_the_proof_of_a_promise() -> None:
    table = TEXT[TEXT.index("| promise |") :]
    assert [family for family in FAMILIES if f"`{family}`" not in table] == []
