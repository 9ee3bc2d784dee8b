"""`make test-recipes` has an environment for each recipe, and every recipe has one block of code."""

import re
from pathlib import Path

from docs.test_blocks import blocks

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted((REPOSITORY / "docs" / "recipes").glob("*.md"))
SDKS = ("anthropic", "openai")
"""Their recipes run with the tests of the adapters."""


def test_every_recipe_is_run_by_make() -> None:
    listed = re.search(r"^RECIPES := (.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert listed is not None
    assert sorted(listed[1].split()) == [page.stem for page in PAGES if page.stem not in SDKS]


def test_the_code_of_a_recipe_is_one_block_that_is_run() -> None:
    for page in PAGES:
        ((_, code, reason),) = blocks(page.read_text())
        assert (compile(code, page.name, "exec") is not None, reason) == (True, "")
        assert f"pip install metier {page.stem}" in page.read_text()
