"""How a person is asked, and what an answer means.

`approve` is code of the host, and what it returns decides whether a script runs. Only an explicit yes is a yes, and
`read_answer` is the only place that says what one is. Whatever is neither a yes nor a no is a mistake of the host, and
nothing happens.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar

from metier.values.results import Request

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

P = ParamSpec("P")
R = TypeVar("R")

Answer = Literal["once", "always", "no", "declined", "cancelled", "unanswered", "nobody"]

NOBODY: Final = "nobody"
"""The answer to a request in a session that can ask, where there was nobody to ask at that moment."""

DECLINED: Final = "declined"
CANCELLED: Final = "cancelled"
UNANSWERED: Final = "unanswered"
"""What a host says where no person said no: many decline or dismiss every question when they run without a screen."""

YES: Final = ("once", "always")

_WORDS: Final[Mapping[str, Answer]] = {
    "once": "once",
    "always": "always",
    "remember": "always",
    "no": "no",
    DECLINED: DECLINED,
    CANCELLED: CANCELLED,
    UNANSWERED: UNANSWERED,
}

Approve = Callable[[Request], "bool | str | Awaitable[bool | str | None] | None"]
"""Asks a person. A coroutine function works wherever the caller is asynchronous, as in `await session.arun(...)`."""


class NobodyToAsk(Exception):
    """Raised by `Answers` instead of an answer. No value says this, because what a person asked for then goes on."""


def read_answer(given: object) -> Answer:
    """What an answer means. Raises `TypeError` for anything that is neither a yes nor a no."""
    if given is True:
        return "once"
    if given is False or given is None:
        return "no"
    if isinstance(given, str) and given in _WORDS:
        return _WORDS[given]
    shown = repr(given) if isinstance(given, str | int | float) else f"a value of type {type(given).__name__}"
    raise TypeError(
        f"approve returned {shown}, so nothing was done: "
        'return True, "once" or "always" to allow the request, and False, None or "no" to refuse it'
    )


def ask(approve: Approve, request: Request) -> Answer:
    """Put a question to a person. Raises `TypeError` for an answer that is none."""
    try:
        answer = approve(request)
    except NobodyToAsk:
        return NOBODY
    if not isinstance(answer, Awaitable):
        return read_answer(answer)
    caller = _caller.get()
    if caller is not None and not _in_event_loop():
        return read_answer(caller.result(answer))
    if isinstance(answer, Coroutine):
        answer.close()
    raise TypeError(
        "approve is asynchronous and this call is not, so nothing was done: "
        "use the asynchronous method, such as `arun` for `run`, or an approve that is a plain function"
    )


# --- asynchronous callers ---


def _in_event_loop() -> bool:
    """Whether this thread runs an event loop, which would wait for itself."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Caller:
    """The coroutine that waits for work in a thread, and in whose event loop the work can have something awaited."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = loop
        self._awaited: Future[object] | None = None
        self._cancelled = False

    def result(self, awaitable: Awaitable[object]) -> object:
        import asyncio

        async def awaited() -> object:
            return await awaitable

        self._awaited = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        if self._cancelled:
            self._awaited.cancel()
        return self._awaited.result()

    def cancel(self) -> None:
        self._cancelled = True
        if self._awaited is not None:
            self._awaited.cancel()


_caller: Final[ContextVar[_Caller | None]] = ContextVar("metier_caller", default=None)


@contextmanager
def awaited() -> Generator[None]:
    """A coroutine that waits for work in a thread: what an `approve` returns there is awaited in its event loop.

    If the coroutine is cancelled, so is the question.
    """
    import asyncio

    caller = _Caller(asyncio.get_running_loop())
    before = _caller.set(caller)
    try:
        yield
    except asyncio.CancelledError:
        caller.cancel()
        raise
    finally:
        _caller.reset(before)


async def in_thread(work: Callable[P, R], *given: P.args, **named: P.kwargs) -> R:
    """`asyncio.to_thread` for work that may ask a person, also by an `approve` that is a coroutine function."""
    import asyncio

    with awaited():
        return await asyncio.to_thread(work, *given, **named)
