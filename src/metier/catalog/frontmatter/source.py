"""Reads the source text of a frontmatter line by line, for what a YAML parser does not report.

A scan finds keys and plain values as they were written, duplicate keys, and the YAML features that skills must not use.
It skips quotes, block scalars and comments, and looks into flow style.
"""

import re
from typing import Final, NamedTuple

from msgspec import Struct

from metier import limits

Position = tuple[int, int]
"""Line and column, both from 1."""


class SourceEntry(NamedTuple):
    """A key or a list item, and where it is in the text."""

    path: tuple[str, ...]
    key: str
    line: int
    column: int
    plain: str
    """The value as written, if it is a plain scalar on one line."""


class Refusal(NamedTuple):
    """A YAML feature that is not allowed in a frontmatter, and where it is used."""

    code: str
    message: str
    line: int
    column: int


class Scan:
    """The keys, plain values and duplicate keys of a text, and where it uses YAML features that are not allowed."""

    __slots__ = ("aliases", "anchors", "duplicates", "entries", "merges", "tags")

    def __init__(self) -> None:
        self.entries: list[SourceEntry] = []
        self.duplicates: list[SourceEntry] = []
        self.anchors: list[Position] = []
        self.aliases: list[Position] = []
        self.tags: list[Position] = []
        self.merges: list[Position] = []

    def plains(self) -> dict[tuple[str, ...], str]:
        """Plain values as written, by path."""
        return {entry.path: entry.plain for entry in self.entries if entry.plain}

    def refusal(self) -> Refusal | None:
        """The first feature that is not allowed.

        An alias without an anchor is only text that starts with `*`. The parser fails on it, and the repair quotes it.
        """
        for places, code, what in (
            (self.merges, "yaml-merge-key", "merge keys (`<<`)"),
            (self.anchors, "yaml-anchor", "anchors (`&`)"),
            (self.tags, "yaml-tag", "tags (`!`)"),
        ):
            if places:
                return Refusal(code, f"YAML {what} are not allowed in frontmatter", *places[0])
        return None


_LINE: Final = re.compile(r"(?P<indent> *)(?P<bullets>(?:[-?][ \t]+)*)(?P<rest>.*)")
_QUOTED_KEY: Final = re.compile(r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*')[ \t]*:(?:[ \t]+|\Z)")
_COLON: Final = re.compile(r":(?:[ \t]+|\Z)")
_COMMENT: Final = re.compile(r"[ \t]#")
INDICATOR: Final = re.compile(r"[&*!](?=[^\s,\]}])")


def _split_key(text: str) -> tuple[str, int] | None:
    """Return the key at the start of a line and the offset of its value, in time linear in the line."""
    if text[:1] in ('"', "'"):
        match = _QUOTED_KEY.match(text)
        return (match[1], match.end()) if match else None
    colon = _COLON.search(text) if text[:1] not in tuple("[]{}#|>%@`,") else None
    key = text[: colon.start()].rstrip(" \t") if colon else ""
    return (key, colon.end()) if colon and key and not _COMMENT.search(key) else None


def scan(text: str) -> Scan:
    """Scan the text of a frontmatter."""
    seen = Scan()
    # Each open mapping has its indent, its path and its keys. A bullet opens a mapping of its own.
    stack: list[tuple[int, tuple[str, ...], set[str]]] = [(0, (), set())]
    items: dict[tuple[str, ...], int] = {}
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        match = _LINE.fullmatch(line)
        if match is None or not match["rest"] or match["rest"].startswith("#"):
            continue
        indent = len(match["indent"])
        column = indent + len(match["bullets"])
        if match["bullets"]:
            while len(stack) > 1 and stack[-1][0] > indent + 1:  # a list may be in the column of its key
                stack.pop()
            parent = stack[-1][1]
            index = items.get(parent, 0)
            items[parent] = index + 1
            stack.append((column, (*parent, str(index)), set()))
        else:
            while len(stack) > 1 and stack[-1][0] > column:
                stack.pop()
        found = _split_key(match["rest"])
        value, at = match["rest"], column
        path = stack[-1][1]
        if found is not None:
            key, start = found
            if key[0] in "&*!":
                _note_indicator(seen, key[0], number, column)
            if key == "<<":
                seen.merges.append((number, column + 1))
            word = key[1:-1] if key[0] in "\"'" else key
            if column > stack[-1][0]:
                stack.append((column, path, set()))
            base = stack[-1][1]
            path = (*base, word)
            value, at = match["rest"][start:], column + start
            entry = SourceEntry(path, word, number, column + 1, _plain(value))
            if word in stack[-1][2]:
                seen.duplicates.append(entry)
            stack[-1][2].add(word)
            seen.entries.append(entry)
            if not value or value.startswith("#"):
                # The deeper lines that follow belong to this key.
                stack.append((column + 1, path, set()))
                continue
        elif match["bullets"]:
            seen.entries.append(SourceEntry(path, "", number, column + 1, _plain(value)))
        bullets = len(match["bullets"].rstrip())
        holder = column if found is not None else indent + max(0, bullets - 1)
        number = step_over(seen, lines, number, value, at, holder, path)
    return seen


def _plain(value: str) -> str:
    """Return the value without its comment, or an empty string if it is not a plain scalar."""
    if not value or value[0] in "\"'|>[{&*!#":
        return ""
    comment = _COMMENT.search(value)
    return (value[: comment.start()] if comment else value).rstrip(" \t")


def _note_indicator(seen: Scan, char: str, line: int, column: int) -> None:
    {"&": seen.anchors, "*": seen.aliases, "!": seen.tags}[char].append((line, column + 1))


def step_over(
    seen: Scan, lines: list[str], number: int, value: str, at: int, indent: int, path: tuple[str, ...] = ()
) -> int:
    """Skip a value that may span lines and note the indicators in it. Returns the index of the next line to read."""
    while value[:1] in tuple("&*!") and INDICATOR.match(value):
        _note_indicator(seen, value[0], number, at)
        rest = value.split(None, 1)
        if value[0] == "*" or len(rest) == 1:
            return number
        at += len(value) - len(rest[1])
        value = rest[1]
    first = value[:1]
    if first in "|>":
        while number < len(lines) and (not lines[number].strip() or indent_of(lines[number]) > indent):
            number += 1
        return number
    if first in "\"'":
        rest = value[1:]
        while not _closes(rest, first) and number < len(lines):
            rest = lines[number]
            number += 1
        return number
    if first in "[{":
        return _step_over_flow(seen, lines, number, value, at, path)
    # A plain scalar continues on deeper lines that are not entries of their own.
    while number < len(lines) and lines[number].strip() and indent_of(lines[number]) > indent:
        deeper = _LINE.fullmatch(lines[number])
        if deeper is None or deeper["bullets"] or _split_key(deeper["rest"]):
            break
        number += 1
    return number


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _closes(rest: str, quote: str) -> bool:
    body = re.sub(r"\\.", "", rest) if quote == '"' else rest.replace("''", "")
    return quote in body


_FLOW: Final = re.compile(
    r"(?P<quoted>\"(?:[^\"\\]|\\[\s\S])*\"|'(?:[^']|'')*')(?P<joined>[ \t]*:)?"
    r"|(?P<mark>[\[\]{},])|(?P<colon>:(?=[\s,\[\]{}]|\Z))|(?P<comment>(?<=\s)\#.*)|(?P<blank>\s+)"
    r"|(?P<plain>(?:[^\s,\[\]{}:]|:(?![\s,\[\]{}]|\Z)|[ \t]+(?![\s\#,\[\]{}:]))+)"
)


class _Flow(Struct):
    """An open bracket: its path, its keys if it is a map, and the index or key of its next value."""

    path: tuple[str, ...]
    keys: set[str] | None
    index: int = 0
    key: str = ""

    def inner(self) -> tuple[str, ...]:
        return (*self.path, str(self.index) if self.keys is None else self.key)


def _step_over_flow(seen: Scan, lines: list[str], number: int, value: str, at: int, path: tuple[str, ...]) -> int:
    """Skip to the end of the line that closes the brackets, and note the keys, plain values and indicators in them."""
    text = "\n".join((value, *lines[number:]))
    stack: list[_Flow] = []
    line, line_start = number, -at
    last: tuple[str, int] | None = None
    for token in _FLOW.finditer(text):
        kind, start = token.lastgroup, token.start()
        top = stack[-1] if stack else None
        if (kind == "blank" and not stack and "\n" in token[0]) or len(stack) > limits.FRONTMATTER_DEPTH:
            break
        if kind == "plain":
            last = (token[0].rstrip(), start)
            if INDICATOR.match(token[0]):
                _note_indicator(seen, token[0][0], line, start - line_start)
        elif kind in ("colon", "joined"):
            key, start = (token["quoted"][1:-1], start) if kind == "joined" else last or ("", start)
            if key == "<<" and kind == "colon":
                seen.merges.append((line, start - line_start + 1))
            if top is not None and top.keys is not None:
                if key in top.keys:
                    seen.duplicates.append(SourceEntry((*top.path, key), key, line, start - line_start + 1, ""))
                top.keys.add(key)
                top.key = key
            last = None
        elif kind == "mark":
            if last and top is not None and token[0] in ",]}" and (top.keys is None or top.key):
                seen.entries.append(SourceEntry(top.inner(), "", line, last[1] - line_start + 1, last[0]))
            last = None
            if token[0] in "[{":
                stack.append(_Flow(top.inner() if top else path, None if token[0] == "[" else set()))
            elif token[0] == "," and top is not None:
                top.index, top.key = top.index + 1, ""
            elif token[0] in "]}" and stack:
                stack.pop()
        elif kind == "quoted":
            last = None
        if "\n" in token[0]:
            line += token[0].count("\n")
            line_start = token.start() + token[0].rindex("\n") + 1
    return line
