"""Parses YAML safely: text that could make a small file large or overflow the stack never reaches the parser.

This is the only module that knows the parser. Scalars keep what the author wrote: a number that would print differently
stays text.
"""

import re
from itertools import islice
from typing import Final, TypeGuard

import yaml12

from metier import limits
from metier.catalog.frontmatter.source import indent_of
from metier.files.shapes import is_dict, is_list

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
    """Parse a text. Raises `ValueError` if it is not YAML."""
    try:
        return _without_anchors(text)
    except ValueError:
        # JSON writes an emoji as two escapes. That is valid YAML, but this parser wants one.
        joined = _SURROGATES.sub(lambda pair: bytes.fromhex(pair[1] + pair[2]).decode("utf-16-be"), text)
        if joined == text:
            raise
        return _without_anchors(joined)


def _without_anchors(text: str) -> object:
    """Parse a text without showing the parser any ampersand, because it copies what an alias refers to.

    `scan` refuses the anchors it finds and gives a good message. This also covers those that it misses.
    """
    if "&" not in text:
        return yaml12.parse_yaml(text)
    stand_in = next(char for char in map(chr, range(0xE000, 0xF8FF)) if char not in text)
    return _replace(yaml12.parse_yaml(text.replace("&", stand_in)), stand_in)


def _replace(value: object, stand_in: str) -> object:
    if isinstance(value, str):
        return value.replace(stand_in, "&")
    if is_list(value):
        return [_replace(item, stand_in) for item in value]
    if is_dict(value):
        return {_replace(key, stand_in): _replace(item, stand_in) for key, item in value.items()}
    return value


def explain(error: ValueError) -> tuple[str, int, int]:
    """Return the parser's message without its prefix, and the line and column that it contains."""
    message = str(error).removeprefix("YAML parse error: ")  # the parser's errors have no fields
    place = _ERROR_PLACE.search(message)
    if place is None:
        return message, 1, 1
    return message[: place.start()], int(place[1]), int(place[2])


def suspicious(text: str) -> bool:
    """Whether the text may use anchors, aliases, tags, merge keys, directives or complex keys."""
    # Most files have none of the characters and skip the pattern.
    return ("&" in text or "*" in text or "!" in text or "<<" in text or "?" in text or "%" in text) and bool(
        _SUSPECT.search(text)
    )


def too_deep(text: str) -> int:
    """Return the line where the nesting exceeds the limit, or 0.

    It keeps the parser's stack safe, so it never underestimates: quotes and block scalars count as structure. `settle`
    checks the exact depth afterwards. Ordinary files return early.
    """
    count = text.count
    if count(":") + count("-") + count("[") + count("{") + count("?") <= limits.FRONTMATTER_DEPTH:
        return 0  # every level needs one of these
    crowded = False
    if any(marks in text for marks in _CROWDING):
        # Comments may separate the marks of a run. In brackets, each colon of a pair opens a map, run or not.
        for source in (text, _COMMENTS.sub("", text)) if "#" in text else (text,):
            crowded = crowded or bool(_CROWDED.search(source))
            pairs = _PAIR.finditer(source) if "[" in source else iter(())
            run = _OVERCROWDED.search(source) or next(islice(pairs, limits.FRONTMATTER_DEPTH, None), None)
            if run:
                return source.count("\n", 0, run.end()) + 1
    if not crowded and _DEEP_INDENT not in text and text.count("[") + text.count("{") <= limits.FRONTMATTER_DEPTH:
        return 0
    # The column of each open block, and whether it is a sequence, because a sequence may share its mapping's column.
    open_blocks: list[tuple[int, bool]] = []
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


def is_simple(fields: dict[object, object], text: str) -> TypeGuard[dict[str, object]]:
    """Whether the parsed values can be used as they are: no duplicate key, no number that would print differently.

    If the text has as many lines that look like keys as there are keys, no key is a duplicate. Most files pass here, so
    their source is not scanned.
    """
    if "{" in text:
        return False
    keys = 0
    pending = [fields]
    while pending:
        mapping = pending.pop()
        keys += len(mapping)
        for key, value in mapping.items():
            kind = type(value)
            if type(key) is not str:
                return False
            if kind is str or kind is bool or value is None:
                continue
            if is_dict(value):
                pending.append(value)
            elif is_list(value):
                if any(type(item) is not str for item in value):
                    return False
            elif kind is int or kind is float:
                written = f"{key}: {value!r}"
                at = text.find(written)
                if at < 0 or text[at + len(written) : at + len(written) + 1] not in ("", "\n"):
                    return False
                if text.count(f"{key}:") > 1:  # the match may be another key's number
                    return False
            else:
                return False
        if keys > limits.FRONTMATTER_DEPTH and pending:
            return False  # it may be too deep: `settle` checks that
    return keys == text.count(":") or keys == len(_KEY_LINES.findall(text))


class Unusable(Exception):
    """A parsed value that a frontmatter must not contain. `frontmatter.parse` turns it into a diagnostic."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message


TOO_DEEP: Final = f"the YAML is nested more than {limits.FRONTMATTER_DEPTH} levels deep"


def settle(
    fields: dict[object, object], plains: dict[tuple[str, ...], str], path: tuple[str, ...] = ()
) -> dict[str, object]:
    """Return the parsed fields with keys as text and numbers as written. `plains` has the plain values by path.

    Raises `Unusable` for nesting beyond the limit, and for keys and values that are not allowed.
    """
    settled: dict[str, object] = {}
    for key, value in fields.items():
        if not isinstance(key, (str, int, float, bool)) and key is not None:
            raise Unusable("yaml-key", "a key is a list or a map, not text")
        word = key if isinstance(key, str) else str(key).lower()
        settled[word] = _settle_value(value, plains, (*path, word))
    return settled


def _settle_value(value: object, plains: dict[tuple[str, ...], str], path: tuple[str, ...]) -> object:
    if (is_dict(value) or is_list(value)) and len(path) >= limits.FRONTMATTER_DEPTH:
        raise Unusable("yaml-too-deep", TOO_DEEP)
    if is_dict(value):
        return settle(value, plains, path)
    if is_list(value):
        return [_settle_value(item, plains, (*path, str(n))) for n, item in enumerate(value)]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        written = plains.get(path)
        if written is None:
            return value if value == value and abs(value) != float("inf") else str(value)
        return value if repr(value) == written else written
    if isinstance(value, (str, bool)) or value is None:
        return value
    raise Unusable("yaml-tag", "YAML tags (`!`) are not allowed in frontmatter")
