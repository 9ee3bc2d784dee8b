"""The question of a policy on the whole screen, for a program that already has the terminal.

The text scrolls. What each answer means and the keys stay in view. Text is never markup.
"""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.widgets import Static

from metier.policy.question import Question
from metier.surfaces.tui.themes import ThemedApp, bindings, key_bar
from metier.values.results import Request


class QuestionApp(ThemedApp[str]):
    """Asks one question. It returns `once`, `always` or `no`."""

    TITLE = "metier"
    CSS_PATH = "question.tcss"
    AUTO_FOCUS = "#text"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings({"y": "answer('once')", "a": "answer('always')", "n,escape": "answer('no')", "v": "view"}),
        *bindings({"ctrl+c,ctrl+q": "answer('no')"}, priority=True),
    ]

    def __init__(self, question: Question) -> None:
        super().__init__()
        self._question, self._all = question, False

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="text"):
            yield Static(id="question")
        yield Static(id="meanings")
        more = {"v": "view all of the text"} if self._question.more else {}
        keys = {"y": "once", "a": "always", "n": "no", **more, "up, down": "scroll"}
        yield Static(key_bar(keys), id="keys")

    def on_resize(self, event: Resize) -> None:
        self._draw(event.size.width)

    def _draw(self, columns: int) -> None:
        width = columns - 1  # the scroll bar
        title, _, rest = self._question.as_text(width, ()).partition("\n")
        shown = Text(title, "bold").append(f"\n{rest}", "not bold")
        if self._all:
            shown.append(f"\n\n{self._question.whole(width)}", "not bold")
        self.query_one("#question", Static).update(shown)
        self.query_one("#meanings", Static).update(Text(self._question.meanings(columns)))

    def action_answer(self, answer: str) -> None:
        self.exit(answer)

    def action_view(self) -> None:
        self._all = self._question.more
        self._draw(self.size.width)


def ask(request: Request) -> str:
    """Ask on the terminal, and return the answer. Without one it is a no."""
    return QuestionApp(Question.of(request)).run() or "no"
