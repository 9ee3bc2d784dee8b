"""Methods for asyncio: each does what its twin without the `a` does, in a thread, and is declared by naming that."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def async_twin(method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """A method as a coroutine function with the same parameters. Cancelling it ends the script that it runs."""

    @functools.wraps(method)
    async def twin(*given: P.args, **named: P.kwargs) -> R:
        import asyncio  # imported only when needed
        import threading

        from metier.policy.asking import in_thread
        from metier.running.sandbox import stopped_by

        stop = threading.Event()
        itself, *rest = given  # a subclass may have another method of that name
        with stopped_by(stop):
            try:
                return await in_thread(getattr(itself, method.__name__), *rest, **named)
            except asyncio.CancelledError:
                stop.set()
                raise

    twin.__name__ = f"a{method.__name__}"
    twin.__qualname__ = ".".join((*method.__qualname__.split(".")[:-1], twin.__name__))
    twin.__doc__ = f"`{method.__name__}` for asyncio."
    return twin
