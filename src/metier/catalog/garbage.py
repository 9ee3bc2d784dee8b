"""Holds back the garbage collector while a catalog is built: that makes many objects and no cycles to collect.

The collector would look at all of them again and again, which takes a third of the time of a scan.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch the collector off for a block, and on again if it was on."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
