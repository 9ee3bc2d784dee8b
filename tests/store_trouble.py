"""What tests of stores in trouble share. The stores themselves are fixtures, in `store_fixtures.py`."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PASSWORD = "tops3cret"
"""The password in the address of the database."""


def fill(place: Path) -> None:
    with (place / "filler").open("ab", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(65536))
                stream.write(b"x")
        except OSError:
            return


class TroubledStore(NamedTuple):
    """A store that `leave` takes away and `come_back` gives back."""

    url: str
    reason: str
    told: str
    """What a person reads of it."""
    leave: Callable[[], None]
    come_back: Callable[[], None]
