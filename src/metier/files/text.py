"""Cleans text from outside: for one line, for UTF-8, for XML, for a terminal.

Names and descriptions of skills, file names, and what models and clients send are untrusted text. Every surface cleans
them with these functions, so characters that mislead people or break a format are handled in one place.
"""

import codecs
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from metier.files.shapes import is_items, is_mapping

TAGS_AND_BIDI: Final = "[\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
"""A pattern of Unicode tags and bidirectional controls. They hide text from people or show it in another order."""

INVISIBLE: Final = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028\u2029\u2060-\u2065\u206a-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0100-\U000e01ef]"
)
"""A pattern of controls (except tab and line feed), zero-width and other invisible characters.

The patterns here are compiled when they are first used, because most processes need none of them.
"""

_JOINERS: Final = "\u200c\u200d"
"""Zero-width joiners. They are invisible, but some words and emoji need them."""

_ODD: Final = r"[^ -~]"
_ODD_LINES: Final = r"[^ -~\n\t]"
_PLAIN: Final = bytes(range(ord(" "), ord("~") + 1))
_PLAIN_LINES: Final = _PLAIN + b"\n"


# --- UTF-8 ---


def utf8(text: str) -> bytes:
    """Encode text as UTF-8. A lone surrogate, which UTF-8 cannot encode, becomes a question mark."""
    return text.encode("utf-8", "replace")


def from_utf8(data: bytes) -> str:
    """Decode UTF-8. A byte that is not UTF-8 becomes a replacement character."""
    return data.decode("utf-8", "replace")


def from_utf8_part(data: bytes) -> tuple[str, int]:
    """Decode the start of a text. Returns it, and the number of bytes at the end that belong to a cut character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data), len(decoder.getstate()[0])


def without_torn(text: str) -> str:
    """Replace each lone surrogate with a question mark."""
    return text if text.isascii() else utf8(text).decode()


def storable_text(text: str) -> str:
    """Write each lone surrogate as an escape, so that nothing is lost."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def storable(value: object) -> object:
    """Return the value in a form that JSON and UTF-8 can carry. What JSON has no form for becomes text."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if is_mapping(value):
        return {storable_text(str(key)): storable(item) for key, item in value.items()}
    if is_items(value):
        return [storable(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else storable_text(str(value))


def storable_table(values: Mapping[str, object]) -> dict[str, object]:
    """Apply `storable` to the values of a table."""
    return {storable_text(key): storable(value) for key, value in values.items()}


# --- prompts ---


def remove_invisible(text: str) -> str:
    """Remove control characters except tab and line feed, bidirectional controls and other invisible characters."""
    if text.isascii() and text.isprintable():
        return text
    return without_torn(re.sub(INVISIBLE, "", re.sub(TAGS_AND_BIDI, "", text)))  # the name of a folder may be any bytes


def one_line(text: str) -> str:
    """Remove invisible characters and put the text on one line."""
    return " ".join(remove_invisible(text).split())


def escape(text: str) -> str:
    """Remove invisible characters and escape the text for an XML element or attribute."""
    seen = remove_invisible(text)
    return seen.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def shorten(text: str, length: int) -> str:
    """Cut the text to at most `length` characters, between words if a word ends nearby."""
    if len(text) <= length:
        return text
    cut = text[: max(length - 1, 0)]
    space = cut.rfind(" ")
    return (cut[:space] if space > length * 0.7 else cut).rstrip(" ,;:.-") + "…"


# --- terminals and pages ---


def printable(text: str) -> str:
    """Put the text on one line and replace each control character with a space, so that a terminal obeys none."""
    return blank_controls(" ".join(text.split()))


def is_printable(text: str, *, lines: bool = False) -> bool:
    """`text.isprintable()`, in a third of the time for ASCII, as most text is. `lines`: it may have line feeds."""
    if text.isascii():
        return not text.encode().translate(None, _PLAIN_LINES if lines else _PLAIN)
    return (text.replace("\n", "") if lines else text).isprintable()


def blank_controls(text: str) -> str:
    """Replace each control, format or unassigned character with a space."""
    if text.isprintable():
        return text
    return "".join(c if unicodedata.category(c)[0] != "C" else " " for c in text)


def printable_lines(text: str) -> str:
    """Replace each control character except line ends and tabs with a replacement character."""
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "\ufffd" for c in text)


def visible(text: object, *, lines: bool = False) -> str:
    """Write each invisible character as an escape. With `lines`, line ends and tabs stay as they are."""
    given = str(text)
    if given.isprintable():
        return given
    return re.sub(_ODD_LINES, _shown, given.replace("\r\n", "\n")) if lines else re.sub(_ODD, _shown, given)


def _shown(found: re.Match[str]) -> str:
    char = found[0]
    return char if char.isprintable() or char in _JOINERS else _escaped(char)


def _escaped(char: str) -> str:
    if unicodedata.category(char) == "Zs":
        return " "
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def fenced(text: str) -> str:
    """Text in a fence of Markdown that it cannot close."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}\n{text}{end}{fence}"
