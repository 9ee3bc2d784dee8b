"""The question of a policy on the whole screen, for a program that already has the terminal.

The text scrolls. What each answer means and the keys stay in view. Text is never markup.
"""

import os
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widgets import Footer, Static

from metier.policy.question import Question
from metier.values.results import Request


class QuestionApp(App[str]):
    """Asks one question. It returns `once`, `always` or `no`."""

    TITLE = "metier"
    CSS_PATH = "question.tcss"
    AUTO_FOCUS = "#text"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('once')", "once"),
        Binding("a", "answer('always')", "always"),
        Binding("n,escape", "answer('no')", "no"),
        Binding("v", "view", "view all of the text"),
        Binding("ctrl+c,ctrl+q", "answer('no')", show=False, priority=True),
    ]

    def __init__(self, question: Question) -> None:
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._question, self._all = question, False

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="text"):
            yield Static(id="question")
        yield Static(id="meanings")
        yield Footer(show_command_palette=False)

    def on_resize(self, event: Resize) -> None:
        self._draw(event.size.width)

    def _draw(self, columns: int) -> None:
        width = columns - 1  # the scroll bar
        title, _, rest = self._question.as_text(width, ()).partition("\n")
        more = f"\n\n{self._question.whole(width)}" if self._all else ""
        self.query_one("#question", Static).update(Content.assemble((title, "bold"), f"\n{rest}{more}"))
        self.query_one("#meanings", Static).update(Content(self._question.meanings(columns)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return action != "view" or self._question.more

    def action_answer(self, answer: str) -> None:
        self.exit(answer)

    def action_view(self) -> None:
        self._all = True
        self._draw(self.size.width)


def ask(request: Request) -> str:
    """Ask on the terminal, and return the answer. Without one it is a no."""
    return QuestionApp(Question.of(request)).run() or "no"
