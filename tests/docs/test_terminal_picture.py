"""The moving picture of the README shows what the commands print today."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

from parts import needs

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.system
@needs("bwrap")
def test_the_picture_is_what_the_commands_print() -> None:
    made = runpy.run_path(str(DOCS / "terminal.py"))
    drawn = made["draw"](made["SCENES"], made["printed"](made["SCENES"]))
    assert (DOCS / "pictures" / "terminal.svg").read_text() == drawn, "run `make screenshots`"


def test_the_picture_has_no_script_and_fetches_nothing() -> None:
    text = (DOCS / "pictures" / "terminal.svg").read_text()
    names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert names == {"svg", "style", "rect", "circle", "g", "text", "tspan"}
    assert "url(" not in text
    assert "prefers-reduced-motion" in text
