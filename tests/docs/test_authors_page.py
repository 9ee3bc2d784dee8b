"""The page for authors: its commands run in order, and print what it shows."""

from pathlib import Path
from typing import Any

import pytest
import yaml12

from catalog.test_codes import AUTHORS
from docs.pages import PROGRAMS, REPOSITORY, run_page, steps

PAGE = (REPOSITORY / "docs/authors.md").read_text()


@pytest.mark.system
def test_every_command_of_the_page_prints_what_the_page_shows(tmp_path: Path) -> None:
    assert len(steps(PAGE)) > 12
    (tmp_path / ".git").mkdir()
    run_page(PAGE, tmp_path, PROGRAMS, fails=("--diff", "forms", "--host codex --host claude-code"))


def test_the_page_has_every_finding_of_a_review_and_every_input_of_the_action() -> None:
    assert [code for code in (*AUTHORS, "hidden-characters") if f"| `{code}` |" not in PAGE] == []
    action: Any = yaml12.parse_yaml((REPOSITORY / "action.yml").read_text())
    assert [name for name in action["inputs"] if f"| `{name}` |" not in PAGE] == []
    hooks: Any = yaml12.parse_yaml((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks if f"id: {hook['id']}" not in PAGE] == []
