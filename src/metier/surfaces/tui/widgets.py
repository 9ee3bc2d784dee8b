"""The list of entries and the preview next to it. Only visible lines are drawn, so ten thousand are as fast as ten."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from metier.surfaces.tui import fuzzy
from metier.surfaces.tui.model import PickerEntry, PreviewLine, Role, clean
from metier.surfaces.tui.themes import bindings

_GAP: Final = 2
_NARROWEST: Final = 10
_NAME: Final = 24
"""The most columns of a name in a narrow list. In a wide list it is a third of the width."""
_TAGS: Final = {
    "error": "rows--error",
    "warning": "rows--warning",
    "untrusted": "rows--warning",
    "off": "rows--muted",
    "shadowed": "rows--muted",
}


class Rows(ScrollView, can_focus=True):
    """Shows entries in columns, with a cursor. The query field also moves the cursor, so the letter keys work only
    while the list has the focus."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *("rows--cursor", "rows--name", "rows--scope", "rows--user", "rows--tag"),
        *("rows--error", "rows--warning", "rows--muted", "rows--hit"),
    }

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings({"enter": "choose", "j": "step(1)", "k": "step(-1)", "g": "screen.jump(0)", "G": "screen.jump(-1)"}),
        *bindings({"space": "screen.switch", "p": "screen.pin", "v": "screen.view(1)", "slash": "screen.search"}),
        *bindings({"question_mark": "app.keys", "q": "screen.leave"}),
    ]

    class Moved(Message):
        """The entry under the cursor changed."""

    class Chosen(Message):
        """The user chose the entry under the cursor."""

    def __init__(self, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.entries: Sequence[PickerEntry] = ()
        self.cursor = 0
        self.empty = ""
        self._words: Sequence[str] = ()
        self._hits: re.Pattern[str] | None = None
        self._longest = self._scope = self._tag = 0

    @property
    def current(self) -> PickerEntry | None:
        return self.entries[self.cursor] if self.cursor < len(self.entries) else None

    def measure(self, entries: Sequence[PickerEntry]) -> None:
        """Set the column widths for all entries of a view, so that the columns do not move while the user types."""
        self._longest = max((len(entry.name) for entry in entries), default=0)
        self._scope = min(max((len(entry.scope) for entry in entries), default=0), 10)
        self._tag = min(max((len(entry.tag) for entry in entries), default=0), 10)

    def show(self, entries: Sequence[PickerEntry], words: Sequence[str], empty: str, keep: str = "") -> None:
        """Show entries. The cursor stays on the entry with the path `keep`, or moves to the first one."""
        self.entries, self.empty = entries, empty
        self._words = words
        self._hits = re.compile("|".join(re.escape(word) for word in words), re.IGNORECASE) if words else None
        self.cursor = next((n for n, entry in enumerate(entries) if entry.path == keep), 0) if keep else 0
        self.virtual_size = Size(self.size.width, len(entries))
        self._follow()
        self.refresh()
        self.post_message(self.Moved())

    def move(self, to: int) -> None:
        to = max(0, min(to, len(self.entries) - 1))
        if to != self.cursor:
            self.cursor = to
            self._follow()
            self.refresh()
            self.post_message(self.Moved())

    def _follow(self) -> None:
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True)

    # --- Textual ---

    def action_step(self, by: int) -> None:
        self.move(self.cursor + by)

    def action_choose(self) -> None:
        self.post_message(self.Chosen())

    def on_click(self, event: events.Click) -> None:
        number = event.y + self.scroll_offset.y
        if number < len(self.entries):
            if number == self.cursor and event.chain > 1:
                self.action_choose()
            self.move(number)

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.entries))
        self._follow()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        number = y + self.scroll_offset.y
        if not self.entries:
            return self._empty_line(y, width)
        if number >= len(self.entries):
            return Strip.blank(width, self.rich_style)
        under_cursor = number == self.cursor
        base = self.get_component_rich_style("rows--cursor") if under_cursor else self.rich_style
        mark = Segment("❯ " if under_cursor else "  ", base)
        return (
            Strip([mark, *self._cells(self.entries[number], width - 2, base, under_cursor)])
            .adjust_cell_length(width, base)
            .simplify()
        )

    def _cells(self, entry: PickerEntry, width: int, base: Style, bold: bool) -> Iterator[Segment]:
        name = max(_NARROWEST, min(self._longest, max(_NAME, width // 3)))
        off = entry.tag == "off"
        yield from self._marked_letters(
            clean(entry.name),
            name,
            base + self._style("rows--muted" if off else "rows--name") + Style(bold=bold or None),
        )
        yield Segment(" " * _GAP, base)
        if self._scope:
            style = self._style("rows--user" if entry.scope == "user" else "rows--scope")
            yield Segment(_fit(clean(entry.scope), self._scope) + " " * _GAP, base + style)
        if self._tag:
            style = self._style(_TAGS.get(entry.tag, "rows--tag"))
            yield Segment(_fit(entry.tag, self._tag) + " " * _GAP, base + style)
        used = name + _GAP + sum(part + _GAP for part in (self._scope, self._tag) if part)
        yield from self._marked(clean(entry.about), max(0, width - used - 1), base + self._style("rows--muted"))

    def _marked_letters(self, text: str, width: int, style: Style) -> Iterator[Segment]:
        """A name in its width, with the letters marked that match: a word as a whole, or its letters one by one."""
        matches = [fuzzy.match(word, text) for word in self._words]
        if not matches or None in matches or (self._hits is not None and self._hits.search(text)):
            yield from self._marked(text, width, style)
            return
        places = {place for one in matches if one is not None for place in one.places}
        for at, letter in enumerate(_fit(text, width)):
            yield Segment(letter, style + self._style("rows--hit") if at in places else style)

    def _marked(self, text: str, width: int, style: Style) -> Iterator[Segment]:
        """The text in its width, with the words of the query marked."""
        text = _fit(text, width)
        at = 0
        for found in self._hits.finditer(text) if self._hits else ():
            yield Segment(text[at : found.start()], style)
            yield Segment(found[0], style + self._style("rows--hit"))
            at = found.end()
        yield Segment(text[at:], style)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(name, partial=True)

    def _empty_line(self, y: int, width: int) -> Strip:
        lines = self.empty.split("\n")
        text = lines[y - 1] if 0 < y <= len(lines) else ""
        style = self.rich_style + self._style("rows--muted" if y > 1 else "rows--name")
        return Strip([Segment(set_cell_size("  " + text, width), style)])


def _fit(text: str, width: int) -> str:
    """Pad or cut text to a number of columns. Cut text ends with an ellipsis."""
    if cell_len(text) > width:
        text = set_cell_size(text, max(0, width - 1)).rstrip() + "…"
    return set_cell_size(text, width)


# --- the preview ---

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

    COMPONENT_CLASSES: ClassVar[set[str]] = {"pane--label", *_CLASSES.values()}

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
        self._wrapped = [row for line in self.lines for row in _wrapped_line(line, max(width, 20))]
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


def _wrapped_line(line: PreviewLine, width: int) -> Iterator[tuple[str, str, str]]:
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
