"""The picker as a line-by-line dialogue, for screen readers, simple terminals and pipes.

Everything is printed as text in reading order, on standard error. Nothing is redrawn. A line of input is a number, a
command that starts with a colon, or words to search for.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Final

from metier.errors import MetierError
from metier.surfaces.tui.model import ALL, Picker, PickerEntry, clean, mode_message, preview
from metier.values.skill import Mode

PAGE: Final = 10

_MODES: Final[Mapping[str, Mode]] = {"on": "auto", "off": "off", "pin": "pinned", "unpin": "auto"}

HELP: Final = """\
Type words to search, or a number to choose that skill and exit.
:more       show more results
:show N     preview number N
:on N       switch number N on; :off N switches it off
:pin N      pin number N to every prompt; :unpin N unpins it
:view       list the views; :view NAME changes to one
:help       show this help
:quit       exit without a choice"""


class Dialogue:
    """One dialogue. `ask` returns a line of input, or `None` at the end. `say` prints a line."""

    def __init__(
        self,
        picker: Picker,
        view: str = ALL,
        ask: Callable[[], str | None] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.picker, self.view = picker, view
        self._ask, self._say = ask or _ask, say or _say
        self._query = ""
        self._found: list[PickerEntry] = []
        self._shown = 0

    def run(self, query: str = "") -> PickerEntry | None:
        """Run until a skill is chosen, and return it. Return `None` if none is."""
        self._say(f"{self.picker.total(self.view):,} skills. Type words to search, a number to choose, :help for more.")
        if query or self.picker.total(self.view) <= PAGE:
            self._search(query)
        while (line := self._ask()) is not None:
            line = line.strip()
            if line in (":quit", ":q"):
                return None
            if line.isdigit():
                entry = self._numbered(line)
                if entry is not None and entry.skill is not None:
                    return entry
                if entry is not None:
                    self._say(f"{clean(entry.name)} is not a skill: {clean(entry.about)}")
            elif line.startswith(":"):
                self._command(*line[1:].split(maxsplit=1))
            else:
                self._search(line)
        return None

    def _search(self, query: str) -> None:
        self._query = query
        self._found = self.picker.narrow(query, self.view, self.picker.rank(query, self.view))
        self._shown = 0
        if not self._found:
            self._say(f"No skill matches {query!r}." if query else "This view is empty.")
            return
        self._more()

    def _more(self) -> None:
        page = self._found[self._shown : self._shown + PAGE]
        if not page:
            self._say("There are no more results.")
            return
        for number, entry in enumerate(page, self._shown + 1):
            summary = ", ".join(part for part in (clean(entry.name), clean(entry.scope), entry.tag) if part)
            self._say(f"{number}. {summary}: {clean(entry.about, 160)}")
        self._shown += len(page)
        left = len(self._found) - self._shown
        self._say(
            f"{self._shown:,} of {len(self._found):,} shown; :more shows more." if left else "End of the results."
        )

    def _numbered(self, text: str) -> PickerEntry | None:
        number = int(text) if text.isdigit() and len(text) < 9 else 0
        if 0 < number <= len(self._found):
            return self._found[number - 1]
        count = "1 entry" if len(self._found) == 1 else f"{len(self._found):,} entries"
        self._say(f"There is no number {text[:20]}. The list has {count}.")
        return None

    def _command(self, verb: str = "", rest: str = "") -> None:
        if verb == "more":
            self._more()
        elif verb == "view":
            self._change_view(rest)
        elif verb == "show" and (entry := self._numbered(rest)):
            for line in preview(entry, self.picker.skills.settings.place):
                self._say(f"{line.label}: {line.text}" if line.label else line.text)
        elif verb in _MODES and (entry := self._numbered(rest)):
            self._switch(entry, verb)
        elif verb != "show" and verb not in _MODES:
            self._say(HELP)

    def _change_view(self, name: str) -> None:
        known = {view.name: view.count for view in self.picker.views}
        if name in known:
            self.view = name
            self._search(self._query)
        else:
            self._say("Views: " + ", ".join(f"{view} ({count:,})" for view, count in known.items()) + ".")

    def _switch(self, entry: PickerEntry, verb: str) -> None:
        try:
            self._say(mode_message(entry, self.picker.set(entry, _MODES[verb])) + ".")
        except (MetierError, OSError) as error:
            self._say(f"The skill was not changed: {clean(str(error))}.")
            return
        self.picker.refresh()
        # The numbers that were shown still refer to the same skills.
        current = {each.path: each for view in self.picker.views for each in self.picker.narrow("", view.name)}
        self._found = [current.get(each.path, each) for each in self._found]


_LINE = 4096
"""How much of a line is read, in characters."""


def _ask() -> str | None:
    sys.stderr.write("> ")
    sys.stderr.flush()
    line = sys.stdin.readline(_LINE)
    return line or None


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
