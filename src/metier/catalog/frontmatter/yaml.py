"""YAML, made safe: what could make a small file large or a stack overflow is found before the parser sees it.

The only module that knows the parser. Scalars keep what the author wrote: a number that would not print back the same
stays text.
"""

import re
from itertools import islice
from typing import Any, Final, cast

import yaml12

from metier import limits
from metier.catalog.frontmatter.source import indent_of

_ERROR_PLACE: Final = re.compile(r" at byte \d+ line (\d+) column (\d+)\s*$")
_KEY_LINES: Final = re.compile(r"^[ \t]*[^\s#].*?:(?=[ \t\n]|\Z)", re.MULTILINE)
_SUSPECT: Final = re.compile(r"(?:^|[\s\[{,]|[\"'\]}]:)[&*!]|<<|^%|^[ \t]*\?", re.MULTILINE)
_BULLETS: Final = re.compile(r"([-?:])(?:[ \t]+|\Z)")
_COMMENTS: Final = re.compile(r"(?:^|(?<=\s))#.*")
_CROWDED: Final = re.compile(r"(?:[-?:]\s+){4}")
_OVERCROWDED: Final = re.compile(rf"(?:[-?:]\s+){{{limits.FRONTMATTER_DEPTH}}}")
_PAIR: Final = re.compile(r":(?=\s*:)")
_CROWDING: Final = ("::", " :", "\n:", " ?", "\n?", "- -", "-  ", "\t")
_DEEP_INDENT: Final = "\n" + " " * (limits.FRONTMATTER_DEPTH + 1)


_SURROGATES: Final = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def load(text: str) -> object:
    """Parse; JSON writes an emoji as two escapes, which is YAML, too, but not to every parser."""
    try:
        return _without_anchors(text)
    except ValueError:
        joined = _SURROGATES.sub(lambda pair: bytes.fromhex(pair[1] + pair[2]).decode("utf-16-be"), text)
        if joined == text:
            raise
        return _without_anchors(joined)


def _without_anchors(text: str) -> object:
    """Parse text in which nothing is an anchor: the parser copies what aliases name, so it never sees an ampersand.

    `scan` refuses the anchors it finds, for a good message; this is what holds when it finds none that are there.
    """
    if "&" not in text:
        return cast("object", yaml12.parse_yaml(text))
    stand_in = next(char for char in map(chr, range(0xE000, 0xF8FF)) if char not in text)
    return _replace(yaml12.parse_yaml(text.replace("&", stand_in)), stand_in)


def _replace(value: object, stand_in: str) -> object:
    if isinstance(value, str):
        return value.replace(stand_in, "&")
    if isinstance(value, list):
        return [_replace(item, stand_in) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return {_replace(key, stand_in): _replace(item, stand_in) for key, item in pairs}
    return value


def explain(error: str) -> tuple[str, int, int]:
    """The parser's message without its prefix, and its line and column."""
    message = error.removeprefix("YAML parse error: ")
    place = _ERROR_PLACE.search(message)
    if place is None:
        return message, 1, 1
    return message[: place.start()], int(place[1]), int(place[2])


def suspicious(text: str) -> bool:
    """Whether one of the indicators may be in use; looking for the characters first spares most files the pattern."""
    return ("&" in text or "*" in text or "!" in text or "<<" in text or "?" in text or "%" in text) and bool(
        _SUSPECT.search(text)
    )


def too_deep(text: str) -> int:
    """The line on which the nesting passes the limit, or 0. Cheap for all real files, never too low for the rest.

    It keeps the parser's stack safe; quotes and block scalars count as if they were structure. `settle` is exact.
    """
    count = text.count
    if count(":") + count("-") + count("[") + count("{") + count("?") <= limits.FRONTMATTER_DEPTH:
        return 0  # every level needs one of these
    crowded = False
    if any(marks in text for marks in _CROWDING):
        # Comments may stand between the marks of a run; in brackets each colon of a pair opens a map, run or not.
        for source in (text, _COMMENTS.sub("", text)) if "#" in text else (text,):
            crowded = crowded or bool(_CROWDED.search(source))
            pairs = _PAIR.finditer(source) if "[" in source else iter(())
            run = _OVERCROWDED.search(source) or next(islice(pairs, limits.FRONTMATTER_DEPTH, None), None)
            if run:
                return source.count("\n", 0, run.end()) + 1
    if not crowded and _DEEP_INDENT not in text and text.count("[") + text.count("{") <= limits.FRONTMATTER_DEPTH:
        return 0
    open_blocks: list[tuple[int, bool]] = []  # column, and whether a sequence: one may share its mapping's column
    flow = 0
    for number, line in enumerate(text.split("\n"), 1):
        column = indent_of(line)
        while column < len(line):
            bullet = _BULLETS.match(line, column)
            block = (column, bullet is not None and bullet[1] == "-")
            while not flow and open_blocks and open_blocks[-1] > block:
                open_blocks.pop()
            if not open_blocks or open_blocks[-1] < block:
                open_blocks.append(block)
            if bullet is None:
                break
            column = bullet.end()
        deepest = flow
        for char in line:
            if char in "[{":
                flow += 1
                deepest = max(deepest, flow)
            elif char in "]}" and flow:
                flow -= 1
        if len(open_blocks) + deepest > limits.FRONTMATTER_DEPTH + 1:
            return number
    return 0


def is_simple(fields: dict[Any, Any], text: str) -> bool:
    """Whether the parsed values stand as they are: no key twice, no number that would print back differently.

    As many lines that look like keys as there are keys means that none is a duplicate; most files pass here and are
    spared the scan of their source.
    """
    if "{" in text:
        return False
    keys = 0
    pending: list[dict[Any, Any]] = [fields]
    while pending:
        mapping = pending.pop()
        keys += len(mapping)
        for key, value in mapping.items():
            kind = cast("object", type(value))
            if type(key) is not str:
                return False
            if kind is str or kind is bool or value is None:
                continue
            if kind is dict:
                pending.append(value)
            elif kind is list:
                if any(type(item) is not str for item in value):
                    return False
            elif kind is int or kind is float:
                written = f"{key}: {value!r}"
                at = text.find(written)
                if at < 0 or text[at + len(written) : at + len(written) + 1] not in ("", "\n"):
                    return False
                if text.count(f"{key}:") > 1:  # it may have been another number of another key
                    return False
            else:
                return False
        if keys > limits.FRONTMATTER_DEPTH and pending:
            return False  # perhaps too deep: `settle` tells
    return keys == text.count(":") or keys == len(_KEY_LINES.findall(text))


class Unusable(Exception):
    """What a parsed value cannot be; it never leaves this module."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message


def settle(value: object, plains: dict[tuple[str, ...], str], path: tuple[str, ...]) -> object:
    """The parsed value with keys as text and numbers as written."""
    if isinstance(value, (dict, list)) and len(path) >= limits.FRONTMATTER_DEPTH:
        raise Unusable("yaml-too-deep", f"the YAML nests deeper than {limits.FRONTMATTER_DEPTH} levels")
    if isinstance(value, dict):
        settled: dict[str, Any] = {}
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, (str, int, float, bool)) and key is not None:
                raise Unusable("yaml-key", "a key of the frontmatter is not a plain word")
            word = key if isinstance(key, str) else str(key).lower()
            settled[word] = settle(item, plains, (*path, word))
        return settled
    if isinstance(value, list):
        return [settle(item, plains, (*path, str(n))) for n, item in enumerate(cast("list[object]", value))]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        written = plains.get(path)
        if written is None:
            return value if value == value and abs(value) != float("inf") else str(value)
        return value if repr(value) == written else written
    if isinstance(value, (str, bool)) or value is None:
        return value
    raise Unusable("yaml-tag", "tags (`!`) are not allowed in a skill's frontmatter")
