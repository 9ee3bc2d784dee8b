"""The one home of text from outside: made visible, fitted into one line, into UTF-8, into XML, or onto a terminal.

Names and descriptions of skills, file names, and what models and clients send are hostile text. Every surface cleans
them with the functions below, so that a character that misleads people or breaks a format is handled in one place.
"""

import codecs
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final, cast

TAGS_AND_BIDI: Final = re.compile("[\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
"""Unicode tags and bidirectional controls: text that people cannot see, or see in another order."""

INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028\u2029\u2060-\u2065\u206a-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0100-\U000e01ef]"
)
"""Controls (except tab and line feed), zero-width and other invisible characters."""

_JOINERS: Final = "\u200c\u200d"
"""Invisible, but a part of how words and emoji are written."""

_ODD: Final = re.compile(r"[^ -~]")
_ODD_LINES: Final = re.compile(r"[^ -~\n\t]")


# --- UTF-8 ---


def utf8(text: str) -> bytes:
    """Text as UTF-8; half a surrogate pair, which UTF-8 has no bytes for, becomes a question mark."""
    return text.encode("utf-8", "replace")


def from_utf8(data: bytes) -> str:
    """Bytes as text; a byte that is not UTF-8 becomes a replacement character and loses nothing else."""
    return data.decode("utf-8", "replace")


def from_utf8_part(data: bytes) -> tuple[str, int]:
    """The beginning of a text, and how many bytes at its end belong to a character that was cut."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data), len(decoder.getstate()[0])


def without_torn(text: str) -> str:
    """Text whose halves of surrogate pairs are question marks."""
    return text if text.isascii() else utf8(text).decode()


def storable_text(text: str) -> str:
    """Text whose halves of surrogate pairs are written as escapes, so that nothing is lost."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def storable(value: object) -> object:
    """A value that JSON and UTF-8 can carry: text is made storable, and what JSON has no form for becomes text."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        return {storable_text(str(key)): storable(item) for key, item in table.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in cast("Sequence[object]", value)]
    return value if value is None or isinstance(value, bool | int | float) else storable_text(str(value))


def storable_table(values: Mapping[str, object]) -> dict[str, object]:
    """`storable` for the values of a table."""
    return {storable_text(key): storable(value) for key, value in values.items()}


# --- prompts ---


def remove_invisible(text: str) -> str:
    """Text without control characters (but tab and line feed), bidirectional controls and other unseen characters."""
    if text.isascii() and text.isprintable():
        return text
    return without_torn(INVISIBLE.sub("", TAGS_AND_BIDI.sub("", text)))  # a folder's name may hold any bytes


def one_line(text: str) -> str:
    """Text without unseen characters, on one line."""
    return " ".join(remove_invisible(text).split())


def escape(text: str) -> str:
    """Text for an XML element or attribute, without unseen characters."""
    seen = remove_invisible(text)
    return seen.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def shorten(text: str, length: int) -> str:
    """At most `length` characters, cut between words where one ends nearby."""
    if len(text) <= length:
        return text
    cut = text[: max(length - 1, 0)]
    space = cut.rfind(" ")
    return (cut[:space] if space > length * 0.7 else cut).rstrip(" ,;:.-") + "…"


# --- terminals and pages ---


def printable(text: str) -> str:
    """Text on one line in which a terminal finds nothing to obey: each control character becomes a blank."""
    return blank_controls(" ".join(text.split()))


def blank_controls(text: str) -> str:
    """Text in which each control, format or unassigned character is a blank."""
    return "".join(c if unicodedata.category(c)[0] != "C" else " " for c in text)


def printable_lines(text: str) -> str:
    """The same for several lines: line ends and tabs stay, other controls become replacement characters."""
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "\ufffd" for c in text)


def visible(text: object, *, lines: bool = False) -> str:
    """The text with every character that cannot be seen written as an escape; `lines` keeps line ends and tabs."""
    given = str(text)
    if given.isprintable():
        return given
    return _ODD_LINES.sub(_shown, given.replace("\r\n", "\n")) if lines else _ODD.sub(_shown, given)


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
