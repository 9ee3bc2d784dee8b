"""A person who is asked, and what a session recorded, for the tests of policy and of runs."""

from collections.abc import Callable
from typing import Any

from metier.policy.question import Question
from metier.session.session import Session
from metier.values.results import Request


class Person:
    """Gives the same answer to every question, and keeps them. `meanwhile` happens while the first is read."""

    def __init__(self, answer: str = "once", meanwhile: Callable[[], object] | None = None) -> None:
        self.answer, self.asked, self._meanwhile = answer, list[Request](), meanwhile

    def __call__(self, request: Request) -> str:
        self.asked.append(request)
        if self._meanwhile is not None:
            self._meanwhile()
            self._meanwhile = None
        return self.answer

    @property
    def shown(self) -> str:
        """The last question."""
        return Question.of(self.asked[-1]).as_text(400)


def frames(session: Session, kind: str) -> list[dict[str, Any]]:
    """The events of one type in the record of a session."""
    return [frame for frame in session.events if frame["type"] == kind]
