"""Finds the frontmatter of a file: the text between its first two `---` lines.

Two common mistakes are forgiven and reported: text before the opening fence, and a heading on the closing fence's line.
"""

import re
from typing import Final, Literal, NamedTuple

from metier import limits

FenceError = Literal["frontmatter-missing", "frontmatter-unclosed", "frontmatter-too-large"]
"""The diagnostic code of a file without usable fences."""

_BOM: Final = b"\xef\xbb\xbf"
_OPEN: Final = re.compile(rb"---[ \t]*(?:\r?\n|\Z)")
_CLOSE: Final = re.compile(rb"---[ \t]*\r?(?=\n|\Z)")
_CLOSE_WITH_HEADING: Final = re.compile(rb"^---[ \t]*(?=#)", re.MULTILINE)


class Fences(NamedTuple):
    """Where the frontmatter is, in bytes from the start of the file."""

    start: int
    end: int
    body: int
    misplaced: Literal["", "opening", "closing"] = ""
    """The fence that is not on a line of its own at its proper place, if one is not."""


def find_fences(data: bytes, complete: bool) -> Fences | FenceError | None:
    """Find the fences in the bytes read so far.

    Returns `None` if more bytes are needed, and the diagnostic code if a fence is missing.
    """
    if data.startswith(b"---\n"):
        close = data.find(b"\n---", 3)
        if close >= 0 and data.startswith(b"\n", close + 4):
            return Fences(4, close + 1, close + 5)
    start = 3 if data.startswith(_BOM) else 0
    opening = _OPEN.match(data, start)
    late = opening is None
    if opening is None:
        if not complete and len(data) < limits.HEAD_BYTES:
            return None
        opening = _late_opening(data, start)
        if opening is None:
            return "frontmatter-missing"
    closing = _find_closing(data, opening.end())
    # A fence at the very end of a partial read may be the start of a longer line.
    if closing is not None and (complete or closing.end() < len(data)):
        body = closing.end() + data.startswith(b"\n", closing.end())
        return Fences(opening.end(), closing.start(), body, "opening" if late else "")
    if not complete and len(data) < limits.FRONTMATTER_BYTES + limits.HEAD_BYTES:
        return None
    heading = _CLOSE_WITH_HEADING.search(data, opening.end())
    if heading is not None:
        return Fences(opening.end(), heading.start(), heading.end(), "closing")
    return "frontmatter-unclosed" if complete else "frontmatter-too-large"


def _find_closing(data: bytes, start: int) -> re.Match[bytes] | None:
    # One `find` per candidate is several times faster than a multi-line pattern over every byte.
    position = start if data.startswith(b"---", start) else data.find(b"\n---", start) + 1
    while position > 0:
        closing = _CLOSE.match(data, position)
        if closing is not None:
            return closing
        position = data.find(b"\n---", position) + 1
    return None


def _late_opening(data: bytes, start: int) -> re.Match[bytes] | None:
    """Find an opening fence below text or a comment. A key must follow it, because a thematic break is no fence."""
    for _ in range(limits.PREAMBLE_LINES):
        newline = data.find(b"\n", start)
        if newline < 0:
            return None
        start = newline + 1
        opening = _OPEN.match(data, start)
        if opening is not None:
            return opening if re.match(rb"(?:name|description)[ \t]*:", data[opening.end() :]) else None
    return None
