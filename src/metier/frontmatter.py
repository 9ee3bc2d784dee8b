"""Bytes of a SKILL.md become fields: the only module that knows YAML.

A fence is a whole line `---`. What stands between the first two is parsed as YAML 1.2 (so `no`, `on` and dates stay
text), after a look that refuses what could make a small file large: anchors, aliases, merge keys, tags, deep nesting.
A file that does not parse gets one repair, in which plain values are quoted; the report keeps the original error.
Scalars keep what the author wrote: a number that would not print back the same stays text. Bad input raises nothing.
"""

import re
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, cast

import yaml12

from metier import limits
from metier.model import Diagnostic

_BOM: Final = b"\xef\xbb\xbf"
_OPEN: Final = re.compile(rb"---[ \t]*(?:\r?\n|\Z)")
_CLOSE: Final = re.compile(rb"---[ \t]*\r?(?=\n|\Z)")
_CLOSE_WITH_HEADING: Final = re.compile(rb"^---[ \t]*(?=#)", re.MULTILINE)
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


@dataclass(frozen=True, slots=True)
class Parsed:
    """The frontmatter of one file: its fields, or `None` with the errors that say why not."""

    fields: dict[str, Any] | None
    diagnostics: tuple[Diagnostic, ...] = ()
    body_offset: int = 0
    """Where the body begins, in bytes from the start of the file."""
    text: str = ""
    first_line: int = 1
    """The line of the file that `text` begins on."""
    repaired: bool = False

    def locate(self, key: str) -> tuple[int, int]:
        """Line and column of a top-level key in the file, (first line, 1) where it cannot be told."""
        at = self.text.find(f"\n{key}:") + 1
        if at:
            return self.first_line + self.text.count("\n", 0, at), 1
        match = re.search(
            rf"^(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')[ \t]*:", self.text, re.MULTILINE
        )
        return (self.first_line + self.text.count("\n", 0, match.start()), 1) if match else (self.first_line, 1)

    def original(self, key: str) -> str | None:
        """A top-level plain scalar as it stands in the file, so that `Yes` or `null` can serve where text is wanted."""
        return next((e.plain for e in _scan(self.text).entries if e.path == (key,) and e.plain), None)


class Fences(NamedTuple):
    """Where the frontmatter lies in the bytes of a file."""

    start: int
    end: int
    body: int
    misplaced: str = ""
    """What a reader had to forgive to find the fences."""


def find_fences(data: bytes, complete: bool) -> Fences | str | None:
    """The fences in the bytes read so far, or the code of what is wrong, or `None` when more bytes are needed."""
    if data.startswith(b"---\n"):
        close = data.find(b"\n---", 3)
        if close >= 0 and data.startswith(b"\n", close + 4):
            return Fences(4, close + 1, close + 5)
    start = 3 if data.startswith(_BOM) else 0
    opening = _OPEN.match(data, start)
    misplaced = ""
    if opening is None:
        if not complete and len(data) < limits.HEAD_BYTES:
            return None
        opening = _late_opening(data, start)
        if opening is None:
            return "frontmatter-missing"
        misplaced = "text stands before the opening fence"
    closing = _find_closing(data, opening.end())
    # A fence at the very end of a partial read may be the start of a longer line.
    if closing is not None and (complete or closing.end() < len(data)):
        body = closing.end() + data.startswith(b"\n", closing.end())
        return Fences(opening.end(), closing.start(), body, misplaced)
    if not complete and len(data) < limits.FRONTMATTER_BYTES + limits.HEAD_BYTES:
        return None
    heading = _CLOSE_WITH_HEADING.search(data, opening.end())
    if heading is not None:
        return Fences(opening.end(), heading.start(), heading.end(), "the closing fence shares its line with a heading")
    return "frontmatter-unclosed" if complete else "frontmatter-too-large"


def _find_closing(data: bytes, start: int) -> re.Match[bytes] | None:
    """A `find` per candidate: several times faster than a multi-line pattern over every byte."""
    position = start if data.startswith(b"---", start) else data.find(b"\n---", start) + 1
    while position > 0:
        closing = _CLOSE.match(data, position)
        if closing is not None:
            return closing
        position = data.find(b"\n---", position) + 1
    return None


def _late_opening(data: bytes, start: int) -> re.Match[bytes] | None:
    """An opening fence below text or a comment, if a key follows it: a thematic break is no fence."""
    for _ in range(limits.PREAMBLE_LINES):
        newline = data.find(b"\n", start)
        if newline < 0:
            return None
        start = newline + 1
        opening = _OPEN.match(data, start)
        if opening is not None:
            return opening if re.match(rb"(?:name|description)[ \t]*:", data[opening.end() :]) else None
    return None


_FENCE_MESSAGES: Final = {
    "frontmatter-missing": (
        "the file does not begin with YAML frontmatter",
        "make `---` the first line, then name and description, then `---` again",
    ),
    "frontmatter-unclosed": ("the frontmatter is never closed", "put a line `---` before the body"),
    "frontmatter-too-large": (
        f"no closing fence within {limits.FRONTMATTER_BYTES // 1024} KiB",
        "put a line `---` behind the fields, or move long text into the body",
    ),
}


def parse(
    data: bytes, path: str = "", *, complete: bool = True, repair: bool = True, required: bool = True
) -> Parsed | None:
    """Parse the frontmatter at the start of `data`; `None` asks for more bytes (only when not `complete`).

    Without `required`, a file that has none has no fields, and all of it is body.
    """
    fences = find_fences(data, complete)
    if fences is None:
        return None
    if fences == "frontmatter-missing" and not required:
        return Parsed({})
    if isinstance(fences, str):
        message, hint = _FENCE_MESSAGES[fences]
        return Parsed(None, (Diagnostic(fences, "error", message, path, 1, 1, hint),))
    first_line = data.count(b"\n", 0, fences.start) + 1
    raw = data[fences.start : fences.end]
    if len(raw) > limits.FRONTMATTER_BYTES:
        message, hint = _FENCE_MESSAGES["frontmatter-too-large"]
        return Parsed(None, (Diagnostic("frontmatter-too-large", "error", message, path, first_line, 1, hint),))
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = first_line + raw.count(b"\n", 0, error.start)
        column = len(raw[raw.rfind(b"\n", 0, error.start) + 1 : error.start].decode()) + 1
        message = f"byte {raw[error.start]:#04x} is not UTF-8"
        return Parsed(None, (Diagnostic("not-utf8", "error", message, path, line, column, "save the file as UTF-8"),))
    if "\r" in text:  # alone it ends a line, too: the scans below must see the lines that the parser sees
        text = text.replace("\r\n", "\n").removesuffix("\r").replace("\r", "\n")
    if "\x00" in text:
        at = text.index("\x00")
        line, column = first_line + text.count("\n", 0, at), at - text.rfind("\n", 0, at)
        diagnostic = Diagnostic("nul-byte", "error", "the frontmatter contains a NUL byte", path, line, column)
        return Parsed(None, (diagnostic,))
    parsed = _parse_text(text, path, first_line, fences.body, repair)
    if not fences.misplaced:
        return parsed
    early = "before" in fences.misplaced
    place = first_line - 1 if early else first_line + text.count("\n")
    if not repair:
        code = "frontmatter-missing" if early else "frontmatter-unclosed"
        message, hint = _FENCE_MESSAGES[code]
        return Parsed(None, (Diagnostic(code, "error", message, path, 1 if early else place, 1, hint),))
    note = Diagnostic("fence-repaired", "warning", fences.misplaced, path, place, 1, "put each fence on a line alone")
    return Parsed(parsed.fields, (note, *parsed.diagnostics), fences.body, text, first_line, True)


_PLAIN_LINE: Final = re.compile(r"^([A-Za-z][\w-]*): ([A-Za-z][^\n]*)\n", re.MULTILINE)
_TYPED_WORDS: Final = frozenset(("true", "false", "null"))


def _read_plain(text: str) -> dict[str, Any] | None:
    """The fields of a frontmatter that is nothing but `key: some words` lines; `None` for any other.

    Half of all files are no more than that, and reading them so takes a quarter of the parser's time. Whatever could
    mean anything else in YAML (a second colon, a comment, a typed word, a tab, a key twice) is left to the parser.
    """
    if " #" in text or ":\n" in text or " \n" in text:
        return None
    lines = _PLAIN_LINE.findall(text)
    fields = dict(lines)
    if not fields or not len(fields) == len(lines) == text.count("\n") == text.count(": "):
        return None
    typed = any(word.lower() in _TYPED_WORDS for pair in lines for word in pair)
    return fields if not typed and text.replace("\n", "").isprintable() else None


def _parse_text(text: str, path: str, first_line: int, body: int, repair: bool) -> Parsed:
    def failed(code: str, message: str, line: int, column: int, hint: str = "") -> Parsed:
        diagnostic = Diagnostic(code, "error", message, path, first_line + line - 1, column, hint)
        return Parsed(None, (diagnostic,), body, text, first_line)

    plain = _read_plain(text)
    if plain is not None:
        return Parsed(plain, (), body, text, first_line)
    too_deep = _too_deep(text)
    if too_deep:
        return failed("yaml-too-deep", f"the YAML nests deeper than {limits.FRONTMATTER_DEPTH} levels", too_deep, 1)
    scan: _Scan | None = None
    if _suspect(text):
        scan = _scan(text)
        refused = scan.refusal()
        if refused is not None:
            return failed(refused.code, refused.message, refused.line, refused.column, "write the value out instead")
    notes: tuple[Diagnostic, ...] = ()
    try:
        value = _yaml(text)
    except ValueError as error:
        message, line, column = _explain(str(error))
        repaired = _repair(text) if repair else None
        if repaired is None:
            return failed("yaml-invalid", message, line, column, "quote the value, or use a block scalar (`>-`)")
        note = f"the YAML is broken ({message}) and was read with its plain values quoted"
        hint = "quote the value: the next host may not be so forgiving"
        notes = (Diagnostic("yaml-repaired", "warning", note, path, first_line + line - 1, column, hint),)
        text, value, scan = *repaired, None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        return failed("yaml-not-mapping", f"the frontmatter is a {_kind(value)}, not key: value pairs", 1, 1)
    fields = cast("dict[Any, Any]", value)
    if scan is not None or not _is_simple(fields, text):
        scan = scan or _scan(text)
        try:
            fields = cast("dict[str, Any]", _settle(fields, scan.plains(), ()))
        except _Unusable as error:
            return failed(error.code, error.message, *_place(_ODD_KEY if error.code == "yaml-key" else None, text))
        notes += tuple(
            Diagnostic(
                "duplicate-key", "warning", f"{entry.key!r} stands twice; the last one counts", path,
                first_line + entry.line - 1, entry.column, "delete one of the two",
            )
            for entry in scan.duplicates
        )  # fmt: skip
    return Parsed(fields, notes, body, text, first_line, bool(notes) and notes[0].code == "yaml-repaired")


_ODD_KEY: Final = re.compile(r"^[ \t]*(?:- +)*(?=[\[{?])", re.MULTILINE)


def _place(pattern: re.Pattern[str] | None, text: str) -> tuple[int, int]:
    """Line and column of the end of the first match, else of the deepest line."""
    if pattern is None:
        lines = text.split("\n")
        return 1 + max(range(len(lines)), key=lambda n: _indent(lines[n])), 1
    match = pattern.search(text)
    at = match.end() if match else 0
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


_SURROGATES: Final = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def _yaml(text: str) -> object:
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

    `_scan` refuses the anchors it finds, for a good message; this is what holds when it finds none that are there.
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


def _explain(error: str) -> tuple[str, int, int]:
    """The parser's message without its prefix, and its line and column."""
    message = error.removeprefix("YAML parse error: ")
    place = _ERROR_PLACE.search(message)
    if place is None:
        return message, 1, 1
    return message[: place.start()], int(place[1]), int(place[2])


def _kind(value: object) -> str:
    return "list" if isinstance(value, list) else "single value"


def _suspect(text: str) -> bool:
    """Whether one of the indicators may be in use; looking for the characters first spares most files the pattern."""
    return ("&" in text or "*" in text or "!" in text or "<<" in text or "?" in text or "%" in text) and bool(
        _SUSPECT.search(text)
    )


def _too_deep(text: str) -> int:
    """The line on which the nesting passes the limit, or 0. Cheap for all real files, never too low for the rest.

    It keeps the parser's stack safe; quotes and block scalars count as if they were structure. `_settle` is exact.
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
        column = _indent(line)
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


def _is_simple(fields: dict[Any, Any], text: str) -> bool:
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
            return False  # perhaps too deep: `_settle` tells
    return keys == text.count(":") or keys == len(_KEY_LINES.findall(text))


class _Unusable(Exception):
    """What a parsed value cannot be; it never leaves this module."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message


def _settle(value: object, plains: dict[tuple[str, ...], str], path: tuple[str, ...]) -> object:
    """The parsed value with keys as text and numbers as written."""
    if isinstance(value, (dict, list)) and len(path) >= limits.FRONTMATTER_DEPTH:
        raise _Unusable("yaml-too-deep", f"the YAML nests deeper than {limits.FRONTMATTER_DEPTH} levels")
    if isinstance(value, dict):
        settled: dict[str, Any] = {}
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, (str, int, float, bool)) and key is not None:
                raise _Unusable("yaml-key", "a key of the frontmatter is not a plain word")
            word = key if isinstance(key, str) else str(key).lower()
            settled[word] = _settle(item, plains, (*path, word))
        return settled
    if isinstance(value, list):
        return [_settle(item, plains, (*path, str(n))) for n, item in enumerate(cast("list[object]", value))]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        written = plains.get(path)
        if written is None:
            return value if value == value and abs(value) != float("inf") else str(value)
        return value if repr(value) == written else written
    if isinstance(value, (str, bool)) or value is None:
        return value
    raise _Unusable("yaml-tag", "tags (`!`) are not allowed in a skill's frontmatter")


# --- the source text, seen line by line: what the parser does not tell ---------------------------------------------


class _Entry(NamedTuple):
    path: tuple[str, ...]
    key: str
    line: int
    column: int
    plain: str
    """The value as written, when it is a plain scalar on one line."""


class _Refusal(NamedTuple):
    code: str
    message: str
    line: int
    column: int


@dataclass(slots=True)
class _Scan:
    """Keys, plain values, duplicates, and the YAML features that skills may not use."""

    entries: list[_Entry]
    duplicates: list[_Entry]
    anchors: list[tuple[int, int]]
    aliases: list[tuple[int, int]]
    tags: list[tuple[int, int]]
    merges: list[tuple[int, int]]

    def plains(self) -> dict[tuple[str, ...], str]:
        return {entry.path: entry.plain for entry in self.entries if entry.plain}

    def refusal(self) -> _Refusal | None:
        """An alias alone is text that begins with `*`: the parser fails on it, and the repair quotes it."""
        for places, code, what in (
            (self.merges, "yaml-merge-key", "merge keys (`<<`)"),
            (self.anchors, "yaml-anchor", "anchors (`&`)"),
            (self.tags, "yaml-tag", "tags (`!`)"),
        ):
            if places:
                return _Refusal(code, f"{what} are not allowed in a skill's frontmatter", *places[0])
        return None


_LINE: Final = re.compile(r"(?P<indent> *)(?P<bullets>(?:[-?][ \t]+)*)(?P<rest>.*)")
_QUOTED_KEY: Final = re.compile(r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*')[ \t]*:(?:[ \t]+|\Z)")
_COLON: Final = re.compile(r":(?:[ \t]+|\Z)")
_COMMENT: Final = re.compile(r"[ \t]#")
_INDICATOR: Final = re.compile(r"[&*!](?=[^\s,\]}])")


def _split_key(text: str) -> tuple[str, int] | None:
    """The key that a line begins with and where its value starts, in time linear in the line."""
    if text[:1] in ('"', "'"):
        match = _QUOTED_KEY.match(text)
        return (match[1], match.end()) if match else None
    colon = _COLON.search(text) if text[:1] not in tuple("[]{}#|>%@`,") else None
    key = text[: colon.start()].rstrip(" \t") if colon else ""
    return (key, colon.end()) if colon and key and not _COMMENT.search(key) else None


def _scan(text: str) -> _Scan:
    """Read block style line by line; quotes, block scalars and comments are stepped over, flow style is looked into."""
    scan = _Scan([], [], [], [], [], [])
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
            entry = _Entry(path, word, number, column + 1, _plain(value))
            if word in stack[-1][2]:
                scan.duplicates.append(entry)
            stack[-1][2].add(word)
            scan.entries.append(entry)
            if not value or value.startswith("#"):
                # What follows, deeper, belongs to this key.
                stack.append((column + 1, path, set()))
                continue
        elif match["bullets"]:
            scan.entries.append(_Entry(path, "", number, column + 1, _plain(value)))
        bullets = len(match["bullets"].rstrip())
        holder = column if found is not None else indent + max(0, bullets - 1)
        number = _step_over(scan, lines, number, value, at, holder, path)
    return scan


def _plain(value: str) -> str:
    """The value without comment and blanks, if it is a plain scalar."""
    if not value or value[0] in "\"'|>[{&*!#":
        return ""
    comment = _COMMENT.search(value)
    return (value[: comment.start()] if comment else value).rstrip(" \t")


def _note_indicator(scan: _Scan, char: str, line: int, column: int) -> None:
    {"&": scan.anchors, "*": scan.aliases, "!": scan.tags}[char].append((line, column + 1))


def _step_over(
    scan: _Scan, lines: list[str], number: int, value: str, at: int, indent: int, path: tuple[str, ...] = ()
) -> int:
    """Move past a value that may span lines, noting the indicators in it; the index of the next line to read."""
    while value[:1] in tuple("&*!") and _INDICATOR.match(value):
        _note_indicator(scan, value[0], number, at)
        rest = value.split(None, 1)
        if value[0] == "*" or len(rest) == 1:
            return number
        at += len(value) - len(rest[1])
        value = rest[1]
    first = value[:1]
    if first in "|>":
        while number < len(lines) and (not lines[number].strip() or _indent(lines[number]) > indent):
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
    while number < len(lines) and lines[number].strip() and _indent(lines[number]) > indent:
        deeper = _LINE.fullmatch(lines[number])
        if deeper is None or deeper["bullets"] or _split_key(deeper["rest"]):
            break
        number += 1
    return number


def _indent(line: str) -> int:
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


def _step_over_flow(scan: _Scan, lines: list[str], number: int, value: str, at: int, path: tuple[str, ...]) -> int:
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
            if _INDICATOR.match(token[0]):
                _note_indicator(scan, token[0][0], line, start - line_start)
        elif kind in ("colon", "joined"):
            key, start = (token["quoted"][1:-1], start) if kind == "joined" else last or ("", start)
            if key == "<<" and kind == "colon":
                scan.merges.append((line, start - line_start + 1))
            if top is not None and top.keys is not None:
                if key in top.keys:
                    scan.duplicates.append(_Entry((*top.path, key), key, line, start - line_start + 1, ""))
                top.keys.add(key)
                top.key = key
            last = None
        elif kind == "mark":
            if last and top is not None and token[0] in ",]}" and (top.keys is None or top.key):
                scan.entries.append(_Entry(top.inner(), "", line, last[1] - line_start + 1, last[0]))
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


# --- one repair, for what people really write ----------------------------------------------------------------------

_REPAIRABLE: Final = re.compile(r"(?P<head> *(?:-[ \t]+)?[A-Za-z_][\w.\- ]*:[ \t]+)(?P<value>[^\s].*)")
_REPAIRABLE_ITEM: Final = re.compile(r"(?P<head> *-[ \t]+)(?P<value>[^\s].*)")
_BLOCK_SCALAR: Final = re.compile(r"[|>][-+0-9]*(?:[ \t]+#.*)?")
_KEY_LINE: Final = re.compile(r"[A-Za-z_][\w.-]*[ \t]*:(?:[ \t]|$)")


def _repair(text: str) -> tuple[str, object] | None:
    """Mend what spans lines, then quote the plain values that are broken: of the top level, then of every entry."""
    indented = _indent_continuations(text)
    for candidate in (indented, _quote_values(indented, deep=False), _quote_values(indented, deep=True)):
        if candidate == text or _scan(candidate).refusal() is not None:
            continue
        try:
            value = _yaml(candidate)
        except ValueError:
            continue
        if isinstance(value, dict) and value:
            return candidate, cast("object", value)
    return None


def _indent_continuations(text: str) -> str:
    """Quotes and brackets that go on in the first column: YAML 1.1 let them, 1.2 wants them indented."""
    lines = text.split("\n")
    result: list[str] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        result.append(line)
        number += 1
        match = _REPAIRABLE.fullmatch(line)
        if match is None or match["value"][0] not in "\"'[{":
            continue
        end = _step_over(_Scan([], [], [], [], [], []), lines, number, match["value"], 0, 0)
        result.extend(f" {lines[n]}" if lines[n][:1] not in ("", " ") else lines[n] for n in range(number, end))
        number = end
    return "\n".join(result)


def _quote_values(text: str, deep: bool) -> str:
    lines = text.split("\n")
    result: list[str] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        match = _REPAIRABLE.fullmatch(line) or (_REPAIRABLE_ITEM.fullmatch(line) if deep else None)
        if match is None or (line[:1] in " -" and not deep):
            result.append(line)
            continue
        value = match["value"]
        indent = _indent(line)
        if _BLOCK_SCALAR.fullmatch(value):
            result.append(line)
            while number < len(lines) and (not lines[number].strip() or _indent(lines[number]) > indent):
                result.append(lines[number])
                number += 1
            continue
        end = number
        while end < len(lines) and _continues(lines[end], indent):
            end += 1
        whole = " ".join((value, *(rest.strip() for rest in lines[number:end]))).rstrip()
        if value[0] == "#" or _parses("\n".join((value, *lines[number:end]))):
            result.extend((line, *lines[number:end]))
        else:
            result.append(match["head"] + "'" + whole.replace("'", "''") + "'")
        number = end
    return "\n".join(result)


def _continues(line: str, indent: int) -> bool:
    """Whether a line belongs to the value above: it is deeper, or stands in the first column and is no key."""
    if not line.strip() or _indent(line) > indent:
        return True
    return indent == 0 and line[0] not in " #" and _KEY_LINE.match(line) is None


def _parses(value: str) -> bool:
    """Whether a value would be fine on its own; then it is not what broke the file."""
    if _INDICATOR.match(value):
        return False
    try:
        parsed = _yaml("key: " + value)
    except ValueError:
        return False
    return isinstance(parsed, dict) and len(cast("dict[object, object]", parsed)) == 1
