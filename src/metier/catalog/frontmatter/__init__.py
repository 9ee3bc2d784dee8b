"""Parses the frontmatter of a SKILL.md: bytes become fields. Only this package knows YAML.

A fence is a whole line `---`. Two common mistakes are forgiven and reported: text before the opening fence, and a
heading on the closing fence's line. The text between the first two fences is parsed as YAML 1.2, so `no`, `on` and
dates stay text. Anchors, aliases, merge keys, tags and deep nesting are refused before that, because they could make a
small file large. If a file does not parse, its plain values are quoted and it is parsed once more; the report keeps the
original error. A number that would print differently stays text. Bad input never raises: it returns diagnostics.
"""

import re
from sys import intern
from typing import Final, Literal, NamedTuple

from metier import limits
from metier.catalog.frontmatter.plain import read_plain
from metier.catalog.frontmatter.source import Scan, indent_of, scan
from metier.catalog.frontmatter.yaml import TOO_DEEP, Unusable, explain, is_simple, load, settle, suspicious, too_deep
from metier.files.shapes import is_dict
from metier.values.skill import Diagnostic, Severity

FenceError = Literal["frontmatter-missing", "frontmatter-unclosed", "frontmatter-too-large"]
"""The diagnostic code of a file without usable fences."""

_BOM: Final = b"\xef\xbb\xbf"
_OPENING: Final = re.compile(rb"---[ \t]*(?:\r?\n|\Z)")
_CLOSE: Final = re.compile(rb"---[ \t]*\r?(?=\n|\Z)")
_CLOSE_WITH_HEADING: Final = re.compile(rb"^---[ \t]*(?=#)", re.MULTILINE)


class Fences(NamedTuple):
    """Where the frontmatter is, in bytes from the start of the file."""

    start: int
    end: int
    body: int
    misplaced: Literal["", "opening", "closing"] = ""
    """The fence that is not on a line of its own at its proper place, if one is not."""


class Parsed(NamedTuple):
    """The frontmatter of one file: its fields, or `None` and the errors that say why."""

    fields: dict[str, object] | None
    diagnostics: tuple[Diagnostic, ...] = ()
    body_offset: int = 0
    """Where the body starts, in bytes from the start of the file."""
    text: str = ""
    first_line: int = 1
    """The line of the file on which `text` starts."""
    repaired: bool = False

    def locate(self, key: str) -> tuple[int, int]:
        """Return the line and column of a top-level key in the file; the first line if it is not found."""
        at = self.text.find(f"\n{key}:") + 1
        if at:
            return self.first_line + self.text.count("\n", 0, at), 1
        match = re.search(
            rf"^(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')[ \t]*:", self.text, re.MULTILINE
        )
        return (self.first_line + self.text.count("\n", 0, match.start()), 1) if match else (self.first_line, 1)

    def original(self, key: str) -> str | None:
        """Return a top-level plain scalar as the file has it, so that `Yes` or `null` can be used as text."""
        return next((e.plain for e in scan(self.text).entries if e.path == (key,) and e.plain), None)

    def outline(self) -> "Parsed":
        """The same with as little of the text as `locate` and `original` need: mostly, on which lines the keys are.

        Thousands of files have the same outline, and all of them share one text.
        """
        fields = self.fields or {}
        if any(isinstance(value, bool) for value in fields.values()) or not all(map(_WORD.fullmatch, fields)):
            return self
        keys = _LINES.findall(self.text)
        is_plain = len(keys) == self.text.count("\n") and self.text.endswith("\n")
        return self._replace(text=intern("\n".join((*keys, "")))) if is_plain else self


_WORD: Final = re.compile(r"[A-Za-z][\w-]*")
_LINES: Final = re.compile(r"^(?:([A-Za-z][\w-]*:).*|[ -].*|)\n", re.MULTILINE)
"""A line that starts with a key, one that is below a key, or an empty one."""


_FENCE_ERRORS: Final[dict[FenceError, tuple[str, str]]] = {
    "frontmatter-missing": (
        "the file does not start with YAML frontmatter",
        "start the file with a line `---`, the fields `name` and `description`, and another line `---`",
    ),
    "frontmatter-unclosed": ("the frontmatter is not closed", "add a line `---` after the last field"),
    "frontmatter-too-large": (
        f"the frontmatter has no closing `---` within {limits.FRONTMATTER_BYTES // limits.KIB} KiB",
        "add a line `---` after the last field, or move long text into the body",
    ),
}
"""The message and the hint of each."""

_MISPLACED: Final = {
    "opening": "there is text before the opening `---`",
    "closing": "the closing `---` has a heading on the same line",
}


def parse(
    data: bytes,
    path: str = "",
    *,
    complete: bool = True,
    repair: bool = True,
    simple_lines: bool = False,
    required: bool = True,
) -> Parsed | None:
    """Parse the frontmatter at the start of `data`.

    Returns `None` if more bytes are needed, which happens only if `data` is not `complete`. Without `required`, a file
    without frontmatter has no fields and is all body. With `simple_lines`, a frontmatter that has only `key: value`
    lines is repaired even without `repair`.
    """
    plain = _parse_plain(data)
    if plain is not None:
        return plain
    fences = find_fences(data, complete)
    if fences is None:
        return None
    if fences == "frontmatter-missing" and not required:
        return Parsed({})
    if isinstance(fences, str):
        return _fence_error(fences, path, 1)
    first_line = data.count(b"\n", 0, fences.start) + 1
    raw = data[fences.start : fences.end]
    if len(raw) > limits.FRONTMATTER_BYTES:
        return _fence_error("frontmatter-too-large", path, first_line)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return _not_utf8(raw, error, path, first_line)
    if "\r" in text:  # a carriage return alone also ends a line: the scans must see the same lines as the parser
        text = text.replace("\r\n", "\n").removesuffix("\r").replace("\r", "\n")
    if "\x00" in text:
        return _nul_byte(text, path, first_line)
    if simple_lines and not repair:
        from metier.catalog.frontmatter.repair import has_simple_lines

        simple_lines = has_simple_lines(text)
    parsed = _YamlText(text, path, first_line, fences.body).parse(repair or simple_lines)
    return parsed if not fences.misplaced else _with_misplaced_fence(parsed, fences, text, path, first_line, repair)


def _parse_plain(data: bytes) -> Parsed | None:
    """The frontmatter between two ordinary fences, if it needs no parser.

    A fence that `find_fences` would find earlier is a line that needs the parser, so it is not missed here.
    """
    if not data.startswith(b"---\n"):
        return None
    close = data.find(b"\n---\n", 4)
    if not 0 < close < limits.FRONTMATTER_BYTES:
        return None
    try:
        text = data[4 : close + 1].decode()
    except UnicodeDecodeError:
        return None
    fields = read_plain(text)
    return Parsed(fields, (), close + 5, text, 2) if fields is not None else None


def _failed(diagnostic: Diagnostic) -> Parsed:
    return Parsed(None, (diagnostic,))


def _fence_error(code: FenceError, path: str, line: int) -> Parsed:
    message, hint = _FENCE_ERRORS[code]
    return _failed(Diagnostic(code, "error", message, path=path, line=line, column=1, hint=hint))


def _not_utf8(raw: bytes, error: UnicodeDecodeError, path: str, first_line: int) -> Parsed:
    line = first_line + raw.count(b"\n", 0, error.start)
    column = len(raw[raw.rfind(b"\n", 0, error.start) + 1 : error.start].decode()) + 1
    message = f"byte {raw[error.start]:#04x} is not valid UTF-8"
    hint = "save the file as UTF-8"
    return _failed(Diagnostic("not-utf8", "error", message, path=path, line=line, column=column, hint=hint))


def _nul_byte(text: str, path: str, first_line: int) -> Parsed:
    at = text.index("\x00")
    line, column = first_line + text.count("\n", 0, at), at - text.rfind("\n", 0, at)
    message = "the frontmatter contains a NUL byte"
    return _failed(
        Diagnostic("nul-byte", "error", message, path=path, line=line, column=column, hint="remove the NUL byte")
    )


def _with_misplaced_fence(
    parsed: Parsed, fences: Fences, text: str, path: str, first_line: int, repair: bool
) -> Parsed:
    """Report a fence that is not where it should be. Without `repair`, that is an error."""
    early = fences.misplaced == "opening"
    line = first_line - 1 if early else first_line + text.count("\n")
    if not repair:
        return (
            _fence_error("frontmatter-missing", path, 1) if early else _fence_error("frontmatter-unclosed", path, line)
        )
    message, hint = _MISPLACED[fences.misplaced], "put each `---` on a line of its own"
    note = Diagnostic("fence-repaired", "warning", message, path=path, line=line, column=1, hint=hint)
    return parsed._replace(diagnostics=(note, *parsed.diagnostics), text=text, repaired=True)


class _YamlText:
    """The text between the fences, and where it is in its file."""

    __slots__ = ("body", "first_line", "path", "text")

    def __init__(self, text: str, path: str, first_line: int, body: int) -> None:
        self.text, self.path, self.first_line, self.body = text, path, first_line, body

    def parse(self, repair: bool) -> Parsed:
        deep_line = too_deep(self.text)
        if deep_line:
            return self.failed("yaml-too-deep", TOO_DEEP, deep_line, 1, _FLATTEN)
        seen: Scan | None = None
        if suspicious(self.text):
            seen = scan(self.text)
            refused = seen.refusal()
            if refused is not None:
                return self.failed(refused.code, refused.message, refused.line, refused.column, _WRITE_OUT)
        try:
            value = load(self.text)
        except ValueError as error:
            return self.repaired(error, repair)
        return self.settled(value, seen)

    def repaired(self, error: ValueError, repair: bool) -> Parsed:
        """Parse a repaired text, and report the error of the original one."""
        message, line, column = explain(error)
        from metier.catalog.frontmatter.repair import repaired  # only a broken file needs it

        mended = repaired(self.text) if repair else None
        if mended is None:
            hint = "quote the value, or write it as a block scalar (`>-`)"
            return self.failed("yaml-invalid", f"invalid YAML: {message}", line, column, hint)
        text, value = mended
        parsed = _YamlText(text, self.path, self.first_line, self.body).settled(value, None)
        if parsed.fields is None:
            return parsed
        note = self.report(
            "yaml-repaired",
            f"invalid YAML ({message}); plain values were read as if they were quoted",
            line,
            column,
            "quote the value: other hosts may reject the file",
        )
        return parsed._replace(diagnostics=(note, *parsed.diagnostics), repaired=True)

    def settled(self, value: object, seen: Scan | None) -> Parsed:
        """Turn what the parser returned into fields."""
        if value is None:
            value = {}
        if not is_dict(value):
            message = (
                f"the frontmatter is a {'list' if isinstance(value, list) else 'single value'}, not a map of fields"
            )
            return self.failed("yaml-not-mapping", message, 1, 1, "write each field as `key: value`")
        notes: tuple[Diagnostic, ...] = ()
        if seen is None and is_simple(value, self.text):
            fields = value
        else:
            seen = seen or scan(self.text)
            try:
                fields = settle(value, seen.plains())
            except Unusable as error:
                return self.unusable(error)
            notes = tuple(
                self.report(
                    "duplicate-key",
                    f"`{entry.key}` is set twice; the last value is used",
                    entry.line,
                    entry.column,
                    "remove one of the two",
                )
                for entry in seen.duplicates
            )
        return Parsed(fields, notes, self.body, self.text, self.first_line)

    def unusable(self, error: Unusable) -> Parsed:
        if error.code == "yaml-key":
            match = _ODD_KEY.search(self.text)
            at = match.end() if match else 0
            line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
            return self.failed(error.code, error.message, line, column, "write the key as plain text")
        hint = _FLATTEN if error.code == "yaml-too-deep" else _WRITE_OUT
        lines = self.text.split("\n")
        deepest = max(range(len(lines)), key=lambda number: indent_of(lines[number]))
        return self.failed(error.code, error.message, deepest + 1, 1, hint)

    def failed(self, code: str, message: str, line: int, column: int, hint: str) -> Parsed:
        """The outcome of a text that cannot be used. Lines count from the start of the text."""
        error = self.report(code, message, line, column, hint, "error")
        return Parsed(None, (error,), self.body, self.text, self.first_line)

    def report(
        self, code: str, message: str, line: int, column: int, hint: str, severity: Severity = "warning"
    ) -> Diagnostic:
        line += self.first_line - 1
        return Diagnostic(code, severity, message, path=self.path, line=line, column=column, hint=hint)


_FLATTEN: Final = "flatten the fields"
_WRITE_OUT: Final = "write the value out instead"
_ODD_KEY: Final = re.compile(r"^[ \t]*(?:- +)*(?=[\[{?])", re.MULTILINE)


# --- fences ---


def find_fences(data: bytes, complete: bool) -> Fences | FenceError | None:
    """Find the fences in the bytes read so far.

    Returns `None` if more bytes are needed, and the diagnostic code if a fence is missing.
    """
    if data.startswith(b"---\n"):
        close = data.find(b"\n---", 3)
        if close >= 0 and data.startswith(b"\n", close + 4):
            return Fences(4, close + 1, close + 5)
    start = 3 if data.startswith(_BOM) else 0
    opening = _OPENING.match(data, start)
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
        opening = _OPENING.match(data, start)
        if opening is not None:
            return opening if re.match(rb"(?:name|description)[ \t]*:", data[opening.end() :]) else None
    return None
