"""For hosts that ask a person first and call afterwards, as agent frameworks do.

`questions` says what a call would ask now, without asking or recording anything. `Answers` is the `approve` of a
session whose host asks ahead: an answer holds for exactly the request that was shown, and for one call. A request that
was not answered counts as a no. With `nobody`, the host says that it has nobody to ask about a call, which then goes as
in a session without an `approve`.
"""

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from metier.policy.asking import UNANSWERED, NobodyToAsk
from metier.session.operations import Call
from metier.values.results import Request

if TYPE_CHECKING:
    from metier.session.session import Session


class Answers:
    """Answers that are known before the session asks: `skills.session(approve=Answers())`."""

    def __init__(self) -> None:
        self._given: dict[Request, bool] = {}
        self._lock = threading.Lock()
        self._calls = threading.local()

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

    @contextmanager
    def nobody(self) -> Generator[None, None, None]:
        """While this thread makes one call: nobody can be asked."""
        self._calls.unasked = True
        try:
            yield
        finally:
            self._calls.unasked = False

    def __call__(self, request: Request) -> bool | str:
        if getattr(self._calls, "unasked", False):
            raise NobodyToAsk
        with self._lock:
            return self._given.pop(request, UNANSWERED)


def questions(session: "Session", tool: str, arguments: Mapping[str, object] | None) -> tuple[Request, ...]:
    """What `session.call(tool, arguments)` would ask, in order, if each answer is yes; most calls ask nothing."""
    return session.questions(Call(tool=tool, arguments=arguments))
