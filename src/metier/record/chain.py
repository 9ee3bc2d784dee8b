"""Frames are chained: each has a hash over its own text and the hash of the frame before it.

A frame that is changed, removed, moved or put in between no longer fits the frames after it. The chain has no key, so
it shows damage and careless edits; whoever can rewrite the whole record can also rewrite the chain.
"""

import hashlib
from collections.abc import Iterable, Iterator

from metier.record.store.values import Frame, canonical


def link(previous: str, frame: Frame) -> str:
    """The hash of a frame after the one with the hash `previous`. The frame's own `chain` does not count."""
    plain = {key: value for key, value in frame.items() if key != "chain"} if "chain" in frame else frame
    return _hash(previous, canonical(plain))


def chained(previous: str, frame: Frame) -> tuple[str, str]:
    """The hash of a frame that has none yet, as `link` gives it, and the text of the frame with it."""
    text = canonical(frame)
    found = _hash(previous, text)
    return found, f'{text[:-1]},"chain":"{found}"}}'


def _hash(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def breaks(frames: Iterable[Frame]) -> Iterator[tuple[int, str, str]]:
    """Where the frames of one stream, from its first, do not fit: the index, the expected hash and the one found."""
    previous = ""
    for index, frame in enumerate(frames):
        found = frame.get("chain")
        try:
            expected = link(previous, frame)
        except UnicodeEncodeError:
            expected = ""  # no store takes such a text
        if found != expected:
            yield index, expected, str(found)
        previous = found if isinstance(found, str) else expected
