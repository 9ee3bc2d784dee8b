"""The picker as a full-screen program: a query field, the list, a preview and a key bar.

The invariant: the thread of the screen never searches an index or scans a disk. Typing filters the list at once.
Another thread ranks the latest query, and its result is merged when it arrives. Changes on disk arrive as messages.
Text from skills is drawn as `Text` or segments, which do not interpret markup.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar, Final

from rich.markup import escape
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static

from metier.catalog.watch import News, Watcher
from metier.errors import MetierError
from metier.surfaces.tui.model import (
    ALL,
    OFF,
    PROBLEMS,
    SHADOWED,
    Picker,
    PickerEntry,
    clean,
    mode_message,
    preview,
    short,
)
from metier.surfaces.tui.themes import ThemedApp, bindings, key_bar
from metier.surfaces.tui.widgets import Pane, Rows
from metier.values.skill import Mode

_LOG: Final = logging.getLogger("metier")

_PREVIEW_DELAY: Final = 0.06
_WIDE: Final = 110
_TALL: Final = 18

_BAR: Final = {"enter": "choose", "^v": "view", "^t": "on/off", "^o": "pin", "f1": "keys", "esc": "exit"}

_EMPTY: Final = {
    OFF: "No skill is switched off.",
    SHADOWED: "No skill is shadowed.",
    PROBLEMS: "No skill has a problem.",
}


@dataclass
class Ranked(Message):
    """The ranking of a query in a view is ready."""

    query: str
    view: str
    paths: list[str]


@dataclass
class Switched(Message):
    """The mode of a skill was changed, or could not be."""

    text: str
    failed: bool = False


@dataclass
class Changed(Message):
    """Skills changed on disk."""

    news: News


class Keys(ModalScreen[None]):
    """The help on keys."""

    def compose(self) -> ComposeResult:
        yield Static(Text(Path(__file__).with_name("keys.txt").read_text("utf-8")), id="keys")

    def on_key(self) -> None:
        self.dismiss()


class PickScreen(Screen[None]):
    """The screen of the picker. `done` receives the chosen entry, or `None`."""

    AUTO_FOCUS = "#query"

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings({"enter": "choose", "escape": "leave", "up": "step(-1)", "down": "step(1)"}),
        *bindings({"ctrl+up": "view(-1)", "ctrl+down": "view(1)"}),
        *bindings({"ctrl+v": "view(1)", "ctrl+t": "switch", "ctrl+o": "pin", "f1": "app.keys"}, priority=True),
        *bindings({"ctrl+c": "leave", "ctrl+u": "clear", "pageup": "page(-1)", "pagedown": "page(1)"}, priority=True),
        *bindings({"ctrl+p,ctrl+k": "step(-1)", "ctrl+n,ctrl+j": "step(1)"}, priority=True),
        *bindings({"ctrl+home": "jump(0)", "ctrl+end": "jump(-1)"}, priority=True),
        *bindings({"shift+up": "scroll(-1)", "shift+down": "scroll(1)"}, priority=True),
    ]

    def __init__(
        self, picker: Picker, done: Callable[[PickerEntry | None], None], query: str = "", view: str = ALL
    ) -> None:
        super().__init__()
        self.picker, self.view = picker, view
        self._done, self._first_query = done, query
        self._queries: SimpleQueue[tuple[str, str] | None] = SimpleQueue()
        self._ranked: tuple[str, str, list[str]] = ("", ALL, [])
        self.watcher = Watcher(picker.skills, lambda news: self.post_message(Changed(news)))
        self._status: tuple[str, str] = ("", "")

    def compose(self) -> ComposeResult:
        yield Input(self._first_query, placeholder="Type to search skills", id="query", select_on_focus=False)
        with Horizontal(id="bar"):
            yield Static(id="views")
            yield Static(id="status")
        with Container(id="middle"):
            yield Rows("rows")
            yield Pane("preview")
        yield Static(key_bar(_BAR), id="bottom")

    def on_resize(self, event: Resize) -> None:
        self._arrange(event.size)

    def _arrange(self, size: Size) -> None:
        """Put the preview next to the list, below it, or nowhere on a very small terminal."""
        self.set_class(size.width >= _WIDE, "-wide")
        self.set_class(size.width < _WIDE, "-narrow")
        self.set_class(size.height < _TALL, "-short")

    def on_mount(self) -> None:
        self._arrange(self.size)
        # The preview is drawn when the cursor stops, not for every entry that it passes.
        self._soon = self.set_interval(_PREVIEW_DELAY, self._draw_preview, pause=True)
        field = self.query_one("#query", Input)
        place = self.picker.skills.settings.place
        field.border_title = "metier pick"
        where = place.cwd.replace(place.home, "~", 1) if place.cwd.startswith(place.home) else place.cwd
        field.border_subtitle = escape(clean(f"{self.picker.skills.profile.name} in {where}"))
        threading.Thread(target=self._rank, name="metier-rank", daemon=True).start()
        self.watcher.start()
        self._show_view()

    def on_unmount(self) -> None:
        self._queries.put(None)
        self.watcher.stop()

    # --- the list ---

    @property
    def typed(self) -> str:
        return self.query_one("#query", Input).value

    @property
    def answered(self) -> tuple[str, str]:
        """The query and the view of the ranking on the screen."""
        return self._ranked[0], self._ranked[1]

    @property
    def rows(self) -> Rows:
        return self.query_one("#rows", Rows)

    def on_input_changed(self) -> None:
        self._status = ("", "")
        self._narrow()

    def _show_view(self, keep: str = "") -> None:
        """Show the current view of the current catalog."""
        self.rows.measure(self.picker.narrow("", self.view))
        self._narrow(keep)

    def _narrow(self, keep: str = "") -> None:
        """Show the matches: by letters at once, and by rank as soon as the ranking is ready."""
        query, view = self.typed, self.view
        known = self._ranked[2] if self._ranked[:2] == (query, view) else []
        if query.strip() and self._ranked[:2] != (query, view):
            self._queries.put((query, view))
        found = self.picker.narrow(query, view, known)
        self.rows.show(found, query.split(), "" if found else self._nothing(query), keep)
        self._draw_bar()

    def _nothing(self, query: str) -> str:
        if query.strip():
            elsewhere = len(self.picker.narrow(query, ALL)) if self.view != ALL else 0
            hint = f"{elsewhere:,} match in the view all: press ctrl+v." if elsewhere else "Try fewer or other words."
            return f"No skill matches “{query.strip()[:40]}”.\n{hint}"
        if self.view in _EMPTY:
            return _EMPTY[self.view]
        skills = self.picker.skills
        if not skills.profile.enabled:
            hint = skills.profile.off_hint
            return f"Skills are switched off in the profile {skills.profile.name}.\n{hint[0].upper()}{hint[1:]}."
        place = skills.settings.place
        searched = "\n".join(f"  {clean(short(root.path, place))}" for root in skills.roots[:6])
        return f"There are no skills yet.\nAdd a folder with a SKILL.md to one of these folders:\n{searched}"

    def _draw_bar(self) -> None:
        bar = Text(no_wrap=True, overflow="ellipsis")
        for view in self.picker.views:
            style = "reverse bold" if view.name == self.view else ""
            bar.append(f" {view.name} {view.count:,} ", style)
        self.query_one("#views", Static).update(bar)
        shown, total = len(self.rows.entries), self.picker.total(self.view)
        text, kind = self._status
        count = f"{shown:,} of {total:,}" if self.typed.strip() else ""
        status = self.query_one("#status", Static)
        status.set_class(kind == "failed", "failed")
        status.update(Text(" · ".join(part for part in (text, count) if part), no_wrap=True, overflow="ellipsis"))

    def on_rows_moved(self) -> None:
        self._soon.reset()
        self._soon.resume()

    def _draw_preview(self) -> None:
        self._soon.pause()
        entry = self.rows.current
        lines = preview(entry, self.picker.skills.settings.place) if entry is not None else ()
        self.query_one("#preview", Pane).show(list(lines))

    # --- the ranking, in its own thread ---

    def _rank(self) -> None:
        while (wanted := self._queries.get()) is not None:
            while not self._queries.empty():  # only the latest query matters
                newer = self._queries.get()
                if newer is None:
                    return
                wanted = newer
            try:
                paths = self.picker.rank(*wanted)
            except Exception:  # noqa: BLE001 - without a ranking, letters still filter the list
                _LOG.exception("ranking failed")
                continue
            self.post_message(Ranked(*wanted, paths))

    def on_ranked(self, message: Ranked) -> None:
        self._ranked = (message.query, message.view, message.paths)
        if (self.typed, self.view) == (message.query, message.view) and message.paths:
            at_top = self.rows.cursor == 0
            current = self.rows.current
            self._narrow("" if at_top or current is None else current.path)

    # --- changes ---

    def on_changed(self, message: Changed) -> None:
        if self.picker.refresh():
            self._say(str(message.news.changes) if message.news.changes else "")
            self._renew()

    def on_switched(self, message: Switched) -> None:
        self.picker.refresh()
        self._say(message.text, "failed" if message.failed else "")
        self._renew()

    def _renew(self) -> None:
        """Show the new catalog, and keep the cursor on the same entry."""
        current = self.rows.current
        if self.picker.total(self.view) == 0:
            self.view = ALL
        self._ranked = ("", ALL, [])
        self._show_view(current.path if current is not None else "")

    def _say(self, text: str, kind: str = "") -> None:
        if text:
            self._status = (text, kind)

    # --- keys ---

    def on_input_submitted(self) -> None:
        self.action_choose()

    on_rows_chosen = on_input_submitted

    def action_choose(self) -> None:
        entry = self.rows.current
        if entry is None:
            return
        if entry.skill is None:
            self._say("this file is not a valid skill; the preview shows why", "failed")
            self._draw_bar()
            return
        self._done(entry)

    def action_leave(self) -> None:
        self._done(None)

    def action_step(self, by: int) -> None:
        self.rows.move(self.rows.cursor + by)

    def action_page(self, by: int) -> None:
        self.rows.move(self.rows.cursor + by * max(1, self.rows.size.height - 1))

    def action_jump(self, to: int) -> None:
        self.rows.move(to if to >= 0 else len(self.rows.entries) - 1)

    def action_scroll(self, by: int) -> None:
        self.query_one("#preview", Pane).scroll_relative(y=by * 3, animate=False)

    def action_view(self, step: int) -> None:
        self.view = self.picker.next_view(self.view, step)
        self._show_view()

    def action_search(self) -> None:
        self.query_one("#query", Input).focus()

    def action_clear(self) -> None:
        field = self.query_one("#query", Input)
        field.value = ""
        field.focus()

    def action_switch(self) -> None:
        self._change_mode(self.picker.switch)

    def action_pin(self) -> None:
        self._change_mode(self.picker.pin)

    def _change_mode(self, change: Callable[[PickerEntry], Mode]) -> None:
        entry = self.rows.current
        if entry is None or entry.skill is None:
            return

        def work() -> None:
            try:
                self.post_message(Switched(mode_message(entry, change(entry))))
            except (MetierError, OSError) as error:
                self.post_message(Switched(f"the skill was not changed: {error}", failed=True))

        threading.Thread(target=work, name="metier-switch", daemon=True).start()


class PickApp(ThemedApp[PickerEntry]):
    """The picker as a program. It returns the chosen entry, or `None`."""

    TITLE = "metier pick"
    CSS_PATH = "picker.tcss"

    def __init__(self, picker: Picker, query: str = "", view: str = ALL) -> None:
        super().__init__()
        self._first = PickScreen(picker, self.exit, query, view)

    def get_default_screen(self) -> PickScreen:
        return self._first

    def action_keys(self) -> None:
        self.push_screen(Keys())


def pick(picker: Picker, query: str = "", view: str = ALL) -> PickerEntry | None:
    """Run the picker on the terminal, and return the chosen entry or `None`."""
    _LOG.addHandler(logging.NullHandler())  # a log line would be printed over the screen
    return PickApp(picker, query, view).run()
