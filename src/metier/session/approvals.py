"""For hosts that ask a person first and call afterwards, as agent frameworks do.

`questions` says what a call would ask now, without asking or recording anything. `Answers` is the `approve` of a
session whose host asks ahead: an answer holds for exactly the request that was shown, and for one call. A request that
nobody answered counts as a no.
"""

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from metier.results import Request
from metier.session.operations import Call

if TYPE_CHECKING:
    from metier.session.session import Session


class Answers:
    """Answers that are known before the session asks: `skills.session(approve=Answers())`."""

    def __init__(self) -> None:
        self._given: dict[Request, bool] = {}
        self._lock = threading.Lock()

    @contextmanager
    def given(self, requests: Sequence[Request], answer: bool) -> Generator[None, None, None]:
        """While one call is made: the answer to these requests, each once."""
        with self._lock:
            self._given.update(dict.fromkeys(requests, answer))
        try:
            yield
        finally:
            with self._lock:
                for request in requests:
                    self._given.pop(request, None)

    def __call__(self, request: Request) -> bool | str:
        with self._lock:
            return self._given.pop(request, "unanswered")


def questions(session: "Session", tool: str, arguments: Mapping[str, object] | None) -> tuple[Request, ...]:
    """What `session.call(tool, arguments)` would ask, in order, if each answer is yes; most calls ask nothing."""
    return session.questions(Call(tool=tool, arguments=arguments))
