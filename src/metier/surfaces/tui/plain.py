"""The picker as a line-by-line dialogue, for screen readers, simple terminals and pipes.

Everything is printed as text in reading order, on standard error. Nothing is redrawn. A line of input is a number, a
command that starts with a colon, or words to search for.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Final

from metier.errors import MetierError
from metier.surfaces.tui.model import ALL, Picker, PickerEntry, clean, preview
from metier.values.skill import Mode, Skill

PAGE: Final = 10

_LINE: Final = 4096
"""How much of a line is read, in characters."""

_MODES: Final[Mapping[str, Mode]] = {"on": "auto", "off": "off", "pin": "pinned", "unpin": "auto"}

HELP: Final = """\
Type words to search, or a number to choose that skill and exit.
:more       show more results
:show N     preview number N
:on N       switch number N on; :off N switches it off
:pin N      pin number N to every prompt; :unpin N unpins it
:scope      list the scopes; :scope NAME changes to one
:help       show this help
:quit       exit without a choice"""


def _ask() -> str | None:
    sys.stderr.write("> ")
    sys.stderr.flush()
    return sys.stdin.readline(_LINE) or None


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


class Dialogue:
    """One dialogue. `ask` returns a line of input, or `None` at the end. `say` prints a line."""

    def __init__(
        self,
        picker: Picker,
        scope: str = ALL,
        ask: Callable[[], str | None] = _ask,
        say: Callable[[str], None] = _say,
    ) -> None:
        self.picker, self.scope = picker, scope
        self._ask, self._say = ask, say
        self._query = ""
        self._found: list[PickerEntry] = []
        self._shown = 0

    def run(self, query: str = "") -> Skill | None:
        """Run until a skill is chosen, and return it. Return `None` if none is."""
        total = len(self.picker.scopes[self.scope])
        self._say(f"{total:,} skills. Type words to search, a number to choose, :help for more.")
        if query or total <= PAGE:
            self._search(query)
        while (line := self._ask()) is not None:
            line = line.strip()
            if line in (":quit", ":q"):
                return None
            if line.isdigit():
                if skill := self._numbered(line):
                    return skill
            elif line.startswith(":"):
                self._command(*line[1:].split(maxsplit=1))
            else:
                self._search(line)
        return None

    def _search(self, query: str) -> None:
        self._query = query
        self._found = self.picker.narrow(query, self.scope, self.picker.rank(query, self.scope))
        self._shown = 0
        if self._found:
            self._more()
        else:
            self._say(f"No skill matches {query!r}." if query else "There are no skills.")

    def _more(self) -> None:
        page = self._found[self._shown : self._shown + PAGE]
        if not page:
            self._say("There are no more results.")
            return
        for number, entry in enumerate(page, self._shown + 1):
            summary = ", ".join(part for part in (entry.name, entry.scope, entry.tag) if part)
            self._say(f"{number}. {summary}: {entry.about[:160]}")
        self._shown += len(page)
        left = self._shown < len(self._found)
        self._say(
            f"{self._shown:,} of {len(self._found):,} shown; :more shows more." if left else "End of the results."
        )

    def _numbered(self, text: str) -> Skill | None:
        number = int(text) if text.isdigit() and len(text) < 9 else 0
        if 0 < number <= len(self._found):
            return self._found[number - 1].skill
        count = "1 entry" if len(self._found) == 1 else f"{len(self._found):,} entries"
        self._say(f"There is no number {text[:20]}. The list has {count}.")
        return None

    def _command(self, verb: str = "", rest: str = "") -> None:
        if verb == "more":
            self._more()
        elif verb == "scope":
            self._change_scope(rest)
        elif verb == "show":
            if skill := self._numbered(rest):
                for label, text in preview(skill):
                    self._say(f"{label}: {text}" if label else text)
        elif verb in _MODES:
            if skill := self._numbered(rest):
                self._switch(skill, _MODES[verb])
        else:
            self._say(HELP)

    def _change_scope(self, name: str) -> None:
        if name in self.picker.scopes:
            self.scope = name
            self._search(self._query)
        else:
            counts = (f"{scope} ({len(entries):,})" for scope, entries in self.picker.scopes.items())
            self._say("Scopes: " + ", ".join(counts) + ".")

    def _switch(self, skill: Skill, mode: Mode) -> None:
        try:
            self._say(self.picker.set(skill, mode) + ".")
        except (MetierError, OSError) as error:
            self._say(f"The skill was not changed: {clean(str(error))}.")
            return
        self.picker.refresh()
        # The numbers that were shown still refer to the same skills.
        current = {each.skill.path: each for each in self.picker.scopes[ALL]}
        self._found = [current.get(each.skill.path, each) for each in self._found]
