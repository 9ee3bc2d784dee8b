"""The picker as a full-screen program: a query field, the list, a preview and a bar of keys.

The invariants: the thread of the screen never searches an index or scans a disk. Typing filters the list at once; other
threads rank the query and read the preview when the keys pause. Text from skills is drawn as `Content`, which does not
interpret markup.
"""

import asyncio
import logging
import math
import os
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.cells import cell_len, set_cell_size
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content, Span
from textual.fuzzy import FuzzySearch
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from metier.catalog.watch import News, Watcher
from metier.errors import MetierError
from metier.surfaces.tui.model import ALL, Picker, PickerEntry, clean, preview
from metier.values.skill import Mode, Skill

_LOG: Final = logging.getLogger("metier")

ROWS: Final = 200
"""How many entries are shown. Textual measures each, so that thousands would take too long for a letter."""

_PAUSE: Final = 0.06
"""Seconds without a key before the query is ranked and the preview is drawn."""
_NAME: Final = 32
"""The most columns of a name."""
_ABOUT: Final = 300
"""The most characters of a description in the list."""

# --- matching ---

_FUZZY: Final = FuzzySearch(case_sensitive=True)  # the words and names that it gets are in lower case
_WAYS: Final = 30
"""The most ways in which a word fits a name. Textual tries each, so a match in more of them counts as chance."""
_CLOSE: Final = 1.75
"""The score of a letter in Textual from which a match is hardly chance."""


def letters_score(words: Sequence[str], name: str) -> float:
    return sum(_match(word, name)[0] / len(word) / _CLOSE for word in words) / len(words)


def _match(word: str, name: str) -> tuple[float, Sequence[int]]:
    """The score of a match, and the places of the letters. The score is 0 if there is none."""
    name = name.lower()
    if word not in name and math.prod(map(name.count, word)) > _WAYS:
        return 0, ()
    return _FUZZY.match(word, name)


class PickApp(App[Skill]):
    """The picker as a program. It returns the chosen skill, or `None`."""

    CSS_PATH = "picker.tcss"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "#query"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012 - as Textual has it
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "choose", priority=True),
        Binding("ctrl+v", "scope", "scope", priority=True),
        Binding("ctrl+t", "mode('off')", "on/off", priority=True),
        Binding("ctrl+o", "mode('pinned')", "pin", priority=True),
        Binding("escape", "quit", "exit", priority=True),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+u", "focused.delete_left_all", show=False, priority=True),
        Binding("up,ctrl+p", "cursor('cursor_up')", show=False, priority=True),
        Binding("down,ctrl+n", "cursor('cursor_down')", show=False, priority=True),
        Binding("pageup", "cursor('page_up')", show=False, priority=True),
        Binding("pagedown", "cursor('page_down')", show=False, priority=True),
        Binding("shift+up", "scroll(-3)", show=False, priority=True),
        Binding("shift+down", "scroll(3)", show=False, priority=True),
    ]

    def __init__(self, picker: Picker, query: str = "", scope: str = ALL) -> None:
        # Only the colours of the terminal can be switched off completely.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.picker, self.scope = picker, scope
        self.entries: list[PickerEntry] = []
        """What matches. The first of them are on the screen."""
        self.ranked: tuple[str, str, list[str]] = ("", ALL, [])
        """The last ranking: its query, its scope and the paths."""
        self.watcher = Watcher(picker.skills, lambda news: self.call_later(self._changed, news))
        self._first_query, self._status = query, ""

    def compose(self) -> ComposeResult:
        yield Input(self._first_query, placeholder="Type to search skills", id="query", select_on_focus=False)
        with Horizontal(id="bar"):
            yield Static(id="scopes")
            yield Static(id="status")
        with Container(id="middle"):
            yield OptionList(id="rows", markup=False, compact=True)
            with VerticalScroll(id="preview", can_focus=False):
                yield Static(id="text")
        yield Static(id="empty")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.rows.can_focus = False  # letters belong to the query
        self.watcher.start()
        self._narrow()

    def on_unmount(self) -> None:
        self.watcher.stop()

    @property
    def rows(self) -> OptionList:
        return self.query_one("#rows", OptionList)

    @property
    def typed(self) -> str:
        return self.query_one("#query", Input).value

    @property
    def current(self) -> Skill | None:
        rows = self.query(OptionList)  # none when the program is ending
        number = rows.first().highlighted if rows else None
        return None if number is None else self.entries[number].skill

    # --- the list ---

    def on_input_changed(self) -> None:
        self._status = ""
        self._narrow()

    def _narrow(self, keep: str = "") -> None:
        """Show what matches: by letters at once, and by rank when the ranking is there."""
        if not self.query(OptionList):
            return  # the program is ending
        query, scope = self.typed, self.scope
        ranked = self.ranked[2] if self.ranked[:2] == (query, scope) else []
        if query.strip() and self.ranked[:2] != (query, scope):
            self._rank(query, scope)
        self.entries = self.picker.narrow(query, scope, ranked, letters_score)
        self._draw_rows(keep)
        self._draw_bar()

    def _draw_rows(self, keep: str) -> None:
        seen, words = self.entries[:ROWS], self.typed.casefold().split()
        name = min(max((cell_len(entry.name) for entry in seen), default=0), _NAME)
        tag = max((len(entry.tag) for entry in seen), default=0)
        options = [Option(_row(entry, words, name, tag)) for entry in seen]
        self.rows.set_options(options)
        if seen:
            self.rows.highlighted = next((n for n, entry in enumerate(seen) if entry.skill.path == keep), 0)
        empty = self.query_one("#empty", Static)
        empty.display, self.query_one("#middle").display = not seen, bool(seen)
        query = self.typed.strip()[:40]
        empty.update(Content(f"No skill matches “{query}”." if query else "There are no skills: see `metier doctor`."))

    def _draw_bar(self) -> None:
        scopes = self.picker.scopes.items()
        tabs = ((f" {name} {len(found):,} ", "reverse" if name == self.scope else "") for name, found in scopes)
        self.query_one("#scopes", Static).update(Content.assemble(*tabs))
        count = f"{len(self.entries):,} of {len(self.picker.scopes[self.scope]):,}" if self.typed.strip() else ""
        more = f"{ROWS} shown, {len(self.entries) - ROWS:,} more" if len(self.entries) > ROWS else ""
        self.query_one("#status", Static).update(Content(" · ".join(filter(None, (self._status, count, more)))))

    # --- what takes longer; a newer call ends an older one ---

    @work(exclusive=True, group="rank", exit_on_error=False)  # without a ranking, letters still filter the list
    async def _rank(self, query: str, scope: str) -> None:
        await asyncio.sleep(_PAUSE)
        self.ranked = (query, scope, await asyncio.to_thread(self.picker.rank, query, scope))
        self._narrow(self.current.path if self.current and self.rows.highlighted else "")

    @work(exclusive=True, group="preview")
    async def on_option_list_option_highlighted(self) -> None:
        await asyncio.sleep(_PAUSE)
        if (skill := self.current) is None:
            return
        found = await asyncio.to_thread(lambda: list(preview(skill)))
        if skill is not self.current:
            return
        lines = [Content.assemble((f"{label}: " if label else "", "dim"), text) for label, text in found]
        self.query_one("#text", Static).update(Content("\n").join([lines[0].stylize("bold"), *lines[1:]]))
        self.query_one("#preview").scroll_to(y=0, animate=False)

    def _changed(self, news: News) -> None:
        if self.picker.refresh():
            self._renew(str(news.changes) if news.changes else self._status)

    def _renew(self, status: str) -> None:
        """Show the new catalog, and keep the cursor on the same entry."""
        self._status, self.ranked = status, ("", ALL, [])
        if self.scope not in self.picker.scopes:
            self.scope = ALL
        self._narrow(self.current.path if self.current else "")

    # --- keys ---

    def action_choose(self) -> None:
        if self.current is not None:
            self.exit(self.current)

    on_option_list_option_selected = action_choose

    def action_cursor(self, action: str) -> None:
        getattr(self.rows, f"action_{action}")()

    def action_scroll(self, by: int) -> None:
        self.query_one("#preview").scroll_relative(y=by, animate=False)

    def action_scope(self) -> None:
        names = list(self.picker.scopes)
        self.scope = names[(names.index(self.scope) + 1) % len(names)]
        self._narrow()

    @work
    async def action_mode(self, mode: Mode) -> None:
        """Switch a skill to a mode, or back if it has it."""
        if (skill := self.current) is None:
            return
        try:
            said = await asyncio.to_thread(self.picker.set, skill, "auto" if skill.mode == mode else mode)
        except (MetierError, OSError) as error:
            said = f"the skill was not changed: {clean(str(error))}"
        self.picker.refresh()
        self._renew(said)


def _row(entry: PickerEntry, words: Sequence[str], name_width: int, tag_width: int) -> Content:
    places = {place for word in words for place in _match(word, entry.name)[1]}
    marks = [Span(place, place + 1, "$text-accent bold underline") for place in places]
    name = Content(set_cell_size(entry.name, name_width), marks)
    scope = (f"  {entry.scope[:10]:<8}", "$text-secondary")
    tag = (f"  {entry.tag:<{tag_width}}" if tag_width else "", "$text-warning")
    return Content.assemble(name, scope, tag, (f"  {entry.about[:_ABOUT]}", "dim"))


def pick(picker: Picker, query: str = "", scope: str = ALL) -> Skill | None:
    """Run the picker on the terminal, and return the chosen skill or `None`."""
    _LOG.addHandler(logging.NullHandler())  # a log line would be printed over the screen
    return PickApp(picker, query, scope).run()
