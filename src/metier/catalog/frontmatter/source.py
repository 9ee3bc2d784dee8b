"""The source text of a frontmatter, seen line by line: what a parser does not tell.

Keys and plain values as they were written, keys that stand twice, and the features of YAML that skills may not use.
Quotes, block scalars and comments are stepped over; flow style is looked into.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from metier import limits


class SourceEntry(NamedTuple):
    path: tuple[str, ...]
    key: str
    line: int
    column: int
    plain: str
    """The value as written, when it is a plain scalar on one line."""


class Refusal(NamedTuple):
    code: str
    message: str
    line: int
    column: int


@dataclass(slots=True)
class Scan:
    """Keys, plain values, duplicates, and the YAML features that skills may not use."""

    entries: list[SourceEntry]
    duplicates: list[SourceEntry]
    anchors: list[tuple[int, int]]
    aliases: list[tuple[int, int]]
    tags: list[tuple[int, int]]
    merges: list[tuple[int, int]]

    def plains(self) -> dict[tuple[str, ...], str]:
        return {entry.path: entry.plain for entry in self.entries if entry.plain}

    def refusal(self) -> Refusal | None:
        """An alias alone is text that begins with `*`: the parser fails on it, and the repair quotes it."""
        for places, code, what in (
            (self.merges, "yaml-merge-key", "merge keys (`<<`)"),
            (self.anchors, "yaml-anchor", "anchors (`&`)"),
            (self.tags, "yaml-tag", "tags (`!`)"),
        ):
            if places:
                return Refusal(code, f"{what} are not allowed in a skill's frontmatter", *places[0])
        return None


_LINE: Final = re.compile(r"(?P<indent> *)(?P<bullets>(?:[-?][ \t]+)*)(?P<rest>.*)")
_QUOTED_KEY: Final = re.compile(r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*')[ \t]*:(?:[ \t]+|\Z)")
_COLON: Final = re.compile(r":(?:[ \t]+|\Z)")
_COMMENT: Final = re.compile(r"[ \t]#")
INDICATOR: Final = re.compile(r"[&*!](?=[^\s,\]}])")


def _split_key(text: str) -> tuple[str, int] | None:
    """The key that a line begins with and where its value starts, in time linear in the line."""
    if text[:1] in ('"', "'"):
        match = _QUOTED_KEY.match(text)
        return (match[1], match.end()) if match else None
    colon = _COLON.search(text) if text[:1] not in tuple("[]{}#|>%@`,") else None
    key = text[: colon.start()].rstrip(" \t") if colon else ""
    return (key, colon.end()) if colon and key and not _COMMENT.search(key) else None


def scan(text: str) -> Scan:
    """Read block style line by line; quotes, block scalars and comments are stepped over, flow style is looked into."""
    scan = Scan([], [], [], [], [], [])
    # Each open mapping: its indent, its path and the keys it has; bullets open a mapping of their own.
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
            while len(stack) > 1 and stack[-1][0] > indent + 1:  # a list may stand in the column of its key
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
                _note_indicator(scan, key[0], number, column)
            if key == "<<":
                scan.merges.append((number, column + 1))
            word = key[1:-1] if key[0] in "\"'" else key
            if column > stack[-1][0]:
                stack.append((column, path, set()))
            base = stack[-1][1]
            path = (*base, word)
            value, at = match["rest"][start:], column + start
            entry = SourceEntry(path, word, number, column + 1, _plain(value))
            if word in stack[-1][2]:
                scan.duplicates.append(entry)
            stack[-1][2].add(word)
            scan.entries.append(entry)
            if not value or value.startswith("#"):
                # What follows, deeper, belongs to this key.
                stack.append((column + 1, path, set()))
                continue
        elif match["bullets"]:
            scan.entries.append(SourceEntry(path, "", number, column + 1, _plain(value)))
        bullets = len(match["bullets"].rstrip())
        holder = column if found is not None else indent + max(0, bullets - 1)
        number = step_over(scan, lines, number, value, at, holder, path)
    return scan


def _plain(value: str) -> str:
    """The value without comment and blanks, if it is a plain scalar."""
    if not value or value[0] in "\"'|>[{&*!#":
        return ""
    comment = _COMMENT.search(value)
    return (value[: comment.start()] if comment else value).rstrip(" \t")


def _note_indicator(scan: Scan, char: str, line: int, column: int) -> None:
    {"&": scan.anchors, "*": scan.aliases, "!": scan.tags}[char].append((line, column + 1))


def step_over(
    scan: Scan, lines: list[str], number: int, value: str, at: int, indent: int, path: tuple[str, ...] = ()
) -> int:
    """Move past a value that may span lines, noting the indicators in it; the index of the next line to read."""
    while value[:1] in tuple("&*!") and INDICATOR.match(value):
        _note_indicator(scan, value[0], number, at)
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
        return _step_over_flow(scan, lines, number, value, at, path)
    # A plain scalar goes on over deeper lines that are no entries of their own.
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


@dataclass(slots=True)
class _Flow:
    """An open bracket: the path to it, its keys if it is a map, and what its next value belongs to."""

    path: tuple[str, ...]
    keys: set[str] | None
    index: int = 0
    key: str = ""

    def inner(self) -> tuple[str, ...]:
        return (*self.path, str(self.index) if self.keys is None else self.key)


def _step_over_flow(scan: Scan, lines: list[str], number: int, value: str, at: int, path: tuple[str, ...]) -> int:
    """Go through brackets to the end of the line that closes them: keys, plain values and indicators on the way."""
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
                _note_indicator(scan, token[0][0], line, start - line_start)
        elif kind in ("colon", "joined"):
            key, start = (token["quoted"][1:-1], start) if kind == "joined" else last or ("", start)
            if key == "<<" and kind == "colon":
                scan.merges.append((line, start - line_start + 1))
            if top is not None and top.keys is not None:
                if key in top.keys:
                    scan.duplicates.append(SourceEntry((*top.path, key), key, line, start - line_start + 1, ""))
                top.keys.add(key)
                top.key = key
            last = None
        elif kind == "mark":
            if last and top is not None and token[0] in ",]}" and (top.keys is None or top.key):
                scan.entries.append(SourceEntry(top.inner(), "", line, last[1] - line_start + 1, last[0]))
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
