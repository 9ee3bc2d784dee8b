"""The picker as a dialogue, line by line: for screen readers, dumb terminals and pipes.

It says everything in words and in reading order, on standard error; nothing moves and nothing is drawn twice. A line
is a number, a command that begins with a colon, or words to search for.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Final

from metier.errors import MetierError
from metier.model import Mode
from metier.tui.model import ALL, Picker, PickerEntry, clean, said
from metier.tui.preview import preview

PAGE: Final = 10

_MODES: Final[Mapping[str, Mode]] = {"on": "auto", "off": "off", "pin": "pinned", "unpin": "auto"}

HELP: Final = """\
Type words to search, or a number to choose that skill and leave.
:more       the next results
:show N     read about number N
:on N       switch number N on; :off N switches it off
:pin N      pin number N to every prompt; :unpin N undoes it
:view       the views; :view NAME changes to one
:help       this text
:quit       leave without a choice"""


class Dialogue:
    """One run of the dialogue; `ask` gives a line, or `None` at the end of them, and `say` takes one."""

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
        self._told = 0

    def run(self, query: str = "") -> PickerEntry | None:
        """Talk until something is chosen; `None` where nothing is."""
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
        self._told = 0
        if not self._found:
            self._say(f"Nothing fits {query!r}." if query else "There is nothing here.")
            return
        self._more()

    def _more(self) -> None:
        page = self._found[self._told : self._told + PAGE]
        if not page:
            self._say("There are no more.")
            return
        for number, entry in enumerate(page, self._told + 1):
            told = ", ".join(part for part in (clean(entry.name), clean(entry.scope), entry.tag) if part)
            self._say(f"{number}. {told}: {clean(entry.about, 160)}")
        self._told += len(page)
        left = len(self._found) - self._told
        self._say(f"{self._told:,} of {len(self._found):,} told; :more for the next." if left else "That is all.")

    def _numbered(self, text: str) -> PickerEntry | None:
        number = int(text) if text.isdigit() and len(text) < 9 else 0
        if 0 < number <= len(self._found):
            return self._found[number - 1]
        self._say(f"There is no number {text[:20]}; there are {len(self._found):,}.")
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
            self._say(said(entry, self.picker.set(entry, _MODES[verb])) + ".")
        except (MetierError, OSError) as error:
            self._say(f"Not switched: {clean(str(error))}.")
            return
        self.picker.refresh()
        # The numbers that were told stay those of the same skills.
        current = {each.path: each for view in self.picker.views for each in self.picker.narrow("", view.name)}
        self._found = [current.get(each.path, each) for each in self._found]


def _ask() -> str | None:
    sys.stderr.write("> ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line or None


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
