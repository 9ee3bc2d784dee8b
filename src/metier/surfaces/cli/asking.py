"""Asks the person at the terminal what policy wants to have confirmed.

The question goes to the terminal and never into a file or a pipe. Only what is typed after it was shown is an answer.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Final, TextIO

import click

from metier.errors import ConfigError
from metier.values.results import CHOICES, Request

_ANSWERS: Final = {
    "y": "once",
    "yes": "once",
    "once": "once",
    "a": "always",
    "always": "always",
    "n": "no",
    "no": "no",
    "": "no",
}
_KEYS: Final = {"once": "y", "always": "a", "no": "n"}


def at_terminal() -> Callable[[Request], str] | None:
    """The `approve` of a command: `ask` if a person can type an answer, else nothing."""
    return ask if sys.stdin.isatty() else None


def no_terminal(way_out: str = "pass --yes") -> ConfigError:
    """The error of a command that has to ask and cannot."""
    return ConfigError("there is no terminal to ask for confirmation", key="--yes", hint=way_out)


def ask(request: Request, choices: Sequence[str] = CHOICES) -> str:
    """Show the question and read the answer: a key, a word of `choices`, or an empty line for no."""
    from metier.policy.question import Question

    question = Question.of(request)
    with _terminal() as terminal:
        width = max(30, os.get_terminal_size(terminal.fileno()).columns or 80)
        title, _, rest = question.as_text(width, choices).partition("\n")
        click.echo(f"{click.style(title, bold=True)}\n{rest}\n", file=terminal)
        keys = ", ".join(f"{_KEYS[choice]} = {choice}" for choice in choices)
        prompt = f"Allow it? {keys}{', v = view all of the text' if question.more else ''} [n]: "
        while True:
            forget_typed()
            click.echo(prompt, nl=False, file=terminal)
            line = sys.stdin.readline()
            if not line:
                click.echo(file=terminal)
                return "no"
            said = line.strip().lower()
            if said in ("v", "view") and question.more:
                click.echo(f"\n{question.whole(width)}\n", file=terminal)
            elif _ANSWERS.get(said) in choices:
                return _ANSWERS[said]


@contextlib.contextmanager
def _terminal() -> Generator[TextIO]:
    """Standard error if it is the terminal; otherwise the terminal itself, so that the question is seen."""
    if sys.stderr.isatty():
        yield sys.stderr
        return
    with open(os.ttyname(sys.stdin.fileno()), "w", encoding="utf-8", errors="backslashreplace") as terminal:
        yield terminal


def forget_typed() -> None:
    """Drop what was typed before the prompt: nobody answers a question that was not there yet."""
    try:
        import termios
    except ImportError:  # not on this system
        return
    with contextlib.suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
