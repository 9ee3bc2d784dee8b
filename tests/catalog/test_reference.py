"""The reference library's own test cases: strict mode agrees with them, or the table says why not."""

import os
from pathlib import Path

import pytest
from reference.run import CASES, Unreachable, fetch, outcomes

pytestmark = pytest.mark.system

DIFFERENT = {
    "test_parser::test_find_skill_md_accepts_lowercase": "the standard names the file exactly SKILL.md",
    "test_parser::test_read_properties_with_lowercase_skill_md": "the standard names the file exactly SKILL.md",
}


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    try:
        return fetch(tmp_path)
    except Unreachable as error:
        if os.environ.get("CI"):
            pytest.fail(f"the reference's cases are required in CI: {error}")
        pytest.skip(str(error))


def test_strict_mode_agrees_with_the_reference_but_for_the_known_cases(cases: Path) -> None:
    found = outcomes(cases)
    assert len(found) >= 30, "not all cases ran"
    assert {case.split("::")[0] for case in found} == {name.removesuffix(".py") for name in CASES}
    assert {case for case, same in found.items() if not same} == set(DIFFERENT)
