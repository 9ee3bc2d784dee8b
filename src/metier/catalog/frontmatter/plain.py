"""Reads a frontmatter without the YAML parser, if it uses only the simplest forms of YAML.

Nearly nine in ten public files do: words, quoted text, a block of text, a list of words, a map of such values. Reading
them here takes a fraction of the parser's time. Whatever could mean something else (a comment, a duplicate key, a tab,
an empty line) is left to the parser, so the two never disagree.
"""

import re
from sys import intern
from typing import Final

from metier.files.text import is_printable

_ENTRY: Final = re.compile(r"([A-Za-z][\w-]*):(?: (.+))?((?:\n[ -].*)*)\n")
"""A key, the rest of its line, and the lines below that are indented or start with a hyphen."""

_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,15})*")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_LINE_BREAK: Final = re.compile(r"\n +")
_FLOW_WORDS: Final = re.compile(r"[A-Za-z][\w/.+-]*(?: [\w/.+-]+)*(?:, ?[A-Za-z][\w/.+-]*(?: [\w/.+-]+)*)*")
_FLOW_QUOTED: Final = re.compile(r'"[^"\\]*"(?:, ?"[^"\\]*")*')
_QUOTED: Final = re.compile(r'"([^"]*)"')

_TYPED: Final = frozenset(form for word in ("true", "false", "null") for form in (word, word.title(), word.upper()))
_FLAGS: Final = {"true": True, "false": False}
_FOLDS: Final = {">-": (" ", ""), ">": (" ", "\n"), "|-": ("\n", ""), "|": ("\n", "\n")}
"""What the lines of a block scalar are joined with, and what it ends with."""

_DEPTH: Final = 3


class _NotPlain(Exception):
    """The text needs the parser."""


def read_plain(text: str) -> dict[str, object] | None:
    """The fields of a text that needs no parser, and `None` for any other."""
    if not is_printable(text, lines=True) or " \n" in text:
        return None
    if text.endswith("\n\n"):
        text = text.rstrip("\n") + "\n"
    try:
        return _map(text, _DEPTH)
    except _NotPlain:
        return None


def _map(text: str, depth: int) -> dict[str, object]:
    fields: dict[str, object] = {}
    entries: list[tuple[str, str, str]] = _ENTRY.findall(text)
    length = 0
    for key, value, below in entries:
        length += len(key) + len(value) + len(below) + (3 if value else 2)
        key = intern(key)  # thousands of files have the same keys
        if below:
            fields[key] = _below(value, below, depth)
        elif value:
            fields[key] = _scalar(value)
        else:
            raise _NotPlain
    # Text between the entries, a key that is set twice, or one that is no text
    if length != len(text) or len(fields) != len(entries) or not _TYPED.isdisjoint(fields) or not fields:
        raise _NotPlain
    return fields


def _scalar(value: str) -> object:
    first = value[0]
    if first.isalpha():
        if ": " in value or " #" in value or value[-1] == ":":
            raise _NotPlain
        if value in _TYPED:
            if value not in _FLAGS:
                raise _NotPlain
            return _FLAGS[value]
        return value
    if first in "\"'":
        return _quoted(value, first)
    if first == "[" and value[-1] == "]":
        return _flow(value[1:-1])
    if _NUMBER.fullmatch(value):
        return _number(value)
    if _DATE.fullmatch(value):
        return value
    raise _NotPlain


def _quoted(value: str, quote: str) -> str:
    inside = value[1:-1]
    if len(value) < 2 or value[-1] != quote:
        raise _NotPlain
    if quote == '"' and "\\" in inside:
        rest = inside.replace('\\"', "")
        if "\\" in rest or '"' in rest:
            raise _NotPlain
        return inside.replace('\\"', '"')
    if quote in inside:
        raise _NotPlain
    return inside


def _number(written: str) -> object:
    """A number, or text if the number would print differently or has several dots."""
    if written.count(".") > 1:
        return written
    number = float(written) if "." in written else int(written)
    return number if repr(number) == written else written


def _flow(inside: str) -> list[object]:
    """A list in brackets: of words, of quoted text, or of nothing."""
    if not inside:
        return []
    if _FLOW_WORDS.fullmatch(inside):
        return [_scalar(item.lstrip()) for item in inside.split(",")]
    if _FLOW_QUOTED.fullmatch(inside):
        return list(_QUOTED.findall(inside))
    raise _NotPlain


def _below(value: str, below: str, depth: int) -> object:
    """What is below its key: a block of text, a list or a map, or more lines of the same text."""
    if value and value not in _FOLDS:
        return _lines(value, below)
    indent = below[: len(below) - len(below.lstrip("\n "))]  # a newline and the spaces of the first line
    if not depth or below.count("\n") != below.count(indent):
        raise _NotPlain
    if value:
        if len(indent) == 1 or f"{indent} " in below:
            raise _NotPlain
        joint, end = _FOLDS[value]
        return below[len(indent) :].replace(indent, joint) + end
    lines = below.replace(indent, "\n")
    if lines.startswith("\n- "):
        items = lines[3:].split("\n- ")
        if any("\n" in item for item in items):
            raise _NotPlain
        return [_scalar(item) for item in items]
    if len(indent) == 1:
        raise _NotPlain
    return _map(f"{lines[1:]}\n", depth - 1)


def _lines(value: str, below: str) -> object:
    """Words or quoted text that goes on in the lines below."""
    if "\n-" in below or ":\n" in below or not (value[0].isalpha() or value[0] in "\"'"):
        raise _NotPlain
    return _scalar(value + _LINE_BREAK.sub(" ", below))
