"""A store from somebody else's package: it has the names of the interface, no base class and nothing private.

It keeps everything in a store in memory. So what works with it asks a store for nothing but the interface.
"""

from collections.abc import Callable
from typing import Any, Self, cast

from metier.record.store import Store, open_store


class _Stranger:
    def __init__(self, location: str) -> None:
        self._kept, self.location = open_store("memory:"), location

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._kept.close()


def _passed_on(name: str) -> Callable[..., Any]:
    return lambda self, *given, **named: getattr(self._kept, name)(*given, **named)


for _name in dir(Store):
    if not _name.startswith("_") and not hasattr(_Stranger, _name):
        setattr(_Stranger, _name, _passed_on(_name))


def StrangerStore(location: str = "stranger:") -> Store:
    return cast("Store", _Stranger(location))


def opened(url: str, *, on_trouble: Callable[[str], None] | None, patience: float, outage: float) -> Store:
    """What the entry point names. There is no file and no server to wait for."""
    return StrangerStore(url)
