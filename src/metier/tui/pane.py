"""The preview next to the list. Lines are wrapped when they are set, and drawn when they become visible."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from metier.tui.preview import PreviewLine, Role

_LABEL: Final = 12
_CLASSES: Final[dict[Role | str, str]] = {
    "title": "pane--title",
    "heading": "pane--title",
    "code": "pane--code",
    "error": "pane--error",
    "warning": "pane--warning",
}


class Pane(ScrollView, can_focus=False):
    """Shows lines, each with a role, wrapped to the width. Labels are in a separate column."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "pane--title",
        "pane--code",
        "pane--label",
        "pane--error",
        "pane--warning",
    }

    def __init__(self, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.lines: Sequence[PreviewLine] = ()
        self._wrapped: list[tuple[str, str, str]] = []

    def show(self, lines: Sequence[PreviewLine]) -> None:
        self.lines = lines
        self._wrap()
        self.scroll_to(y=0, animate=False)

    def on_resize(self) -> None:
        self._wrap()

    def _wrap(self) -> None:
        width = self.scrollable_content_region.width
        self._wrapped = [row for line in self.lines for row in _rows(line, max(width, 20))]
        self.virtual_size = Size(width, len(self._wrapped))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if number >= len(self._wrapped):
            return Strip.blank(width, self.rich_style)
        label, text, kind = self._wrapped[number]
        segments = [Segment(text, self._style(kind))]
        if label:
            marked = self._style(_CLASSES.get(label.strip(), "pane--label"))
            segments.insert(0, Segment(label, marked))
        return Strip(segments).adjust_cell_length(width, self.rich_style)

    def _style(self, name: str) -> Style:
        return self.rich_style + self.get_component_rich_style(name, partial=True) if name else self.rich_style


def _rows(line: PreviewLine, width: int) -> Iterator[tuple[str, str, str]]:
    """Wrap a line into rows of label, text and style class."""
    kind = _CLASSES.get(line.role, "")
    if not line.label:
        yield from (("", row, kind) for row in _folded(line.text, width))
        return
    for number, row in enumerate(_folded(line.text, width - _LABEL)):
        yield f"{'' if number else line.label:<{_LABEL}}", row, kind


def _folded(text: str, width: int) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    if text.isascii():
        indent = text[: len(text) - len(text.lstrip())][: width // 2]
        return textwrap.wrap(text, width, subsequent_indent=indent) or [""]
    rows: list[str] = []
    while cell_len(text) > width:  # wide characters can break anywhere
        row = set_cell_size(text, width).rstrip() or text[:1]
        rows.append(row)
        text = text[len(row) :].lstrip()
    return [*rows, text]
