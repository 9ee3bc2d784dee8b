"""The generated reference pages match the code."""

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = runpy.run_path(str(DOCS / "generate.py"))["PAGES"]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_generated_page_is_current(page: str) -> None:
    assert (DOCS / page).read_text() == PAGES[page](), "run `make docs`"
