"""Every command of the README and of the documentation runs, and prints what the page shows.

`make test-install` makes an environment as the page on installing says, and runs the same tests in it.
"""

import os
import re
from pathlib import Path

import pytest

from docs.pages import PROGRAMS, REPOSITORY, a_project, has_commands, run_page, steps
from parts import needs

PAGES = [
    path
    for path in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
    if path.name not in ("tutorial.md", "authors.md") and has_commands(path.read_text())
]
INSTALLED = Path(os.environ["METIER_TEST_INSTALLED"]) / "bin" if "METIER_TEST_INSTALLED" in os.environ else PROGRAMS


@pytest.mark.system
@needs("curl", "git", "openssl")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_run_and_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    a_project(folder)
    run_page(page.read_text(), folder, INSTALLED)


@pytest.mark.system
@needs("curl", "git")
def test_the_tutorial_runs_from_the_first_command_to_the_last(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "tutorial.md").read_text()
    assert len(steps(page)) > 15
    printed = run_page(page, tmp_path, INSTALLED)
    assert "['meeting-minutes']\n# Meeting minutes\n" in printed, "the comments in the Python block show what it prints"


def test_a_command_is_left_out_only_with_a_reason() -> None:
    for page in [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]:
        assert not re.search(r"<!-- no-run:\s*-->", page.read_text()), page
        assert not re.search(r"^ *```(?:sh|bash|shell)$", page.read_text(), re.MULTILINE), f"{page}: use console"
