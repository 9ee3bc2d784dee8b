"""Bytes of a SKILL.md become fields: the only package that knows YAML.

A fence is a whole line `---`. What stands between the first two is parsed as YAML 1.2 (so `no`, `on` and dates stay
text), after a look that refuses what could make a small file large: anchors, aliases, merge keys, tags, deep nesting.
A file that does not parse gets one repair, in which plain values are quoted; the report keeps the original error.
Scalars keep what the author wrote: a number that would not print back the same stays text. Bad input raises nothing.
"""

import re
from dataclasses import dataclass
from typing import Any, Final, cast

from metier import limits
from metier.catalog.frontmatter.fences import Fences, find_fences
from metier.catalog.frontmatter.repair import repaired
from metier.catalog.frontmatter.source import Scan, indent_of, scan
from metier.catalog.frontmatter.yaml import Unusable, explain, is_simple, load, settle, suspicious, too_deep
from metier.model import Diagnostic

__all__ = ["Fences", "Parsed", "find_fences", "parse"]


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
        return next((e.plain for e in scan(self.text).entries if e.path == (key,) and e.plain), None)


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
    deep_line = too_deep(text)
    if deep_line:
        return failed("yaml-too-deep", f"the YAML nests deeper than {limits.FRONTMATTER_DEPTH} levels", deep_line, 1)
    seen: Scan | None = None
    if suspicious(text):
        seen = scan(text)
        refused = seen.refusal()
        if refused is not None:
            return failed(refused.code, refused.message, refused.line, refused.column, "write the value out instead")
    notes: tuple[Diagnostic, ...] = ()
    try:
        value = load(text)
    except ValueError as error:
        message, line, column = explain(str(error))
        mended = repaired(text) if repair else None
        if mended is None:
            return failed("yaml-invalid", message, line, column, "quote the value, or use a block scalar (`>-`)")
        note = f"the YAML is broken ({message}) and was read with its plain values quoted"
        hint = "quote the value: the next host may not be so forgiving"
        notes = (Diagnostic("yaml-repaired", "warning", note, path, first_line + line - 1, column, hint),)
        text, value, seen = *mended, None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        return failed("yaml-not-mapping", f"the frontmatter is a {_kind(value)}, not key: value pairs", 1, 1)
    fields = cast("dict[Any, Any]", value)
    if seen is not None or not is_simple(fields, text):
        seen = seen or scan(text)
        try:
            fields = cast("dict[str, Any]", settle(fields, seen.plains(), ()))
        except Unusable as error:
            return failed(error.code, error.message, *_place(_ODD_KEY if error.code == "yaml-key" else None, text))
        notes += tuple(
            Diagnostic(
                "duplicate-key", "warning", f"{entry.key!r} stands twice; the last one counts", path,
                first_line + entry.line - 1, entry.column, "delete one of the two",
            )
            for entry in seen.duplicates
        )  # fmt: skip
    return Parsed(fields, notes, body, text, first_line, bool(notes) and notes[0].code == "yaml-repaired")


_ODD_KEY: Final = re.compile(r"^[ \t]*(?:- +)*(?=[\[{?])", re.MULTILINE)


def _place(pattern: re.Pattern[str] | None, text: str) -> tuple[int, int]:
    """Line and column of the end of the first match, else of the deepest line."""
    if pattern is None:
        lines = text.split("\n")
        return 1 + max(range(len(lines)), key=lambda n: indent_of(lines[n])), 1
    match = pattern.search(text)
    at = match.end() if match else 0
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _kind(value: object) -> str:
    return "list" if isinstance(value, list) else "single value"
