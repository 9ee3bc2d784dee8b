"""Repairs YAML that does not parse, for the mistakes that people make most often.

Values that continue in the first column are indented first. Then plain values that break the YAML are quoted: those of
the top level, then those of every entry. Quoted values, block scalars and comments are not changed.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from metier.catalog.frontmatter import Fences, find_fences, parse
from metier.catalog.frontmatter.source import INDICATOR, Scan, indent_of, scan, step_over
from metier.catalog.frontmatter.yaml import load
from metier.files.shapes import is_dict

_REPAIRABLE: Final = re.compile(r"(?P<head> *(?:-[ \t]+)?[A-Za-z_][\w.\- ]*:[ \t]+)(?P<value>[^\s].*)")
_REPAIRABLE_ITEM: Final = re.compile(r"(?P<head> *-[ \t]+)(?P<value>[^\s].*)")
_BLOCK_SCALAR: Final = re.compile(r"[|>][-+0-9]*(?:[ \t]+#.*)?")
_KEY_LINE: Final = re.compile(r"[A-Za-z_][\w.-]*[ \t]*:(?:[ \t]|$)")


_SIMPLE_LINE: Final = re.compile(r"""[A-Za-z_][\w.-]*:(?:[ \t]+[^\s\[\]{}"'|>&*!%@`#,?-].*)?[ \t]*|[ \t]*(?:#.*)?""")


_TAB_INDENT: Final = re.compile(rb"^( *)(\t+)(?=[^\s#])", re.MULTILINE)
_BLANK: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s+")


def has_simple_lines(text: str) -> bool:
    """Whether every line is empty, a comment, or a key with a plain value."""
    return all(_SIMPLE_LINE.fullmatch(line) for line in text.split("\n"))


def repaired(text: str) -> tuple[str, dict[object, object]] | None:
    """Return the first repaired text that parses as a mapping, and its fields; `None` if there is none."""
    indented = _indent_continuations(text)
    for candidate in (indented, _quote_values(indented, deep=False), _quote_values(indented, deep=True)):
        if candidate == text or scan(candidate).refusal() is not None:
            continue
        try:
            value = load(candidate)
        except ValueError:
            continue
        if is_dict(value) and value:
            return candidate, value
    return None


def _indent_continuations(text: str) -> str:
    """Indent quotes and brackets that continue in the first column: YAML 1.1 allowed that, 1.2 does not."""
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
        end = step_over(Scan(), lines, number, match["value"], 0, 0)
        result.extend(f" {lines[n]}" if lines[n][:1] not in ("", " ") else lines[n] for n in range(number, end))
        number = end
    return "\n".join(result)


def _quote_values(text: str, deep: bool) -> str:
    """Quote the plain values that do not parse on their own; without `deep`, only those of the top level."""
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
        indent = indent_of(line)
        if _BLOCK_SCALAR.fullmatch(value):
            result.append(line)
            while number < len(lines) and (not lines[number].strip() or indent_of(lines[number]) > indent):
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
    """Whether a line belongs to the value above it: it is deeper, or it is in the first column and has no key."""
    if not line.strip() or indent_of(line) > indent:
        return True
    return indent == 0 and line[0] not in " #" and _KEY_LINE.match(line) is None


def _parses(value: str) -> bool:
    """Whether a value parses on its own, so that it is not what broke the file."""
    if INDICATOR.match(value):
        return False
    try:
        parsed = load("key: " + value)
    except ValueError:
        return False
    return is_dict(parsed) and len(parsed) == 1


# --- rewriting a file ---


class Rewrite(NamedTuple):
    """A file with a better frontmatter, and what was changed in it."""

    data: bytes
    changes: tuple[str, ...]


def rewrite(data: bytes, name: str = "") -> Rewrite:
    """Rewrite a frontmatter. `name` is added as its `name` if it has none."""
    steps: tuple[tuple[str, Callable[[bytes], bytes | None]], ...] = (
        ("put each `---` on a line of its own", _fences),
        ("indented with spaces instead of tabs", _spaces),
        ("quoted the values that are not valid YAML", _quotes),
        (f"added `name: {name}`", partial(_named, name)),
    )
    changes: list[str] = []
    for change, step in steps:
        new = step(data)
        if new is not None and new != data:
            data = new
            changes.append(change)
    return Rewrite(data, tuple(changes))


def _fences(data: bytes) -> bytes | None:
    fences = find_fences(data, complete=True)
    if not isinstance(fences, Fences) or not fences.misplaced:
        return None
    end = _line_end(data)
    if fences.misplaced == "closing":
        new = data[: fences.end] + b"---" + end + data[fences.body :]
    else:
        blank = _BLANK.match(data)
        if blank is None or not data.startswith(b"---", blank.end()):
            return None  # the text before the fence belongs somewhere, and only the author knows where
        new = data[blank.end() :]
    return new if _same(data, new) else None


def _spaces(data: bytes) -> bytes | None:
    """Tabs are no indentation in YAML. Only a frontmatter that cannot be read with them is changed."""
    fences = find_fences(data, complete=True)
    if not isinstance(fences, Fences) or b"\t" not in data[fences.start : fences.end]:
        return None
    parsed = parse(data)
    if parsed is not None and parsed.fields is not None and not parsed.repaired:
        return None
    raw = data[fences.start : fences.end]
    new = data[: fences.start] + _TAB_INDENT.sub(lambda m: m[1] + b"  " * len(m[2]), raw) + data[fences.end :]
    after = parse(new)
    return new if after is not None and after.fields and not after.diagnostics else None


def _quotes(data: bytes) -> bytes | None:
    parsed, fences = parse(data), find_fences(data, complete=True)
    if parsed is None or parsed.fields is None or not isinstance(fences, Fences):
        return None
    raw = data[fences.start : fences.end]
    end = _line_end(raw)
    text = raw.decode()
    if end == b"\r\n":
        text = text.replace("\r\n", "\n")
    if "\r" in text or (end == b"\r\n" and raw.count(b"\n") != raw.count(b"\r\n")):
        return None  # lines that end in several ways cannot be kept as they are
    try:
        load(text)
        return None
    except ValueError:
        mended = repaired(text)
    if mended is None:
        return None
    lines = mended[0].removesuffix("\n") + "\n"  # the closing fence stays on a line of its own
    new = data[: fences.start] + lines.encode().replace(b"\n", end) + data[fences.end :]
    return new if _same(data, new) else None


def _named(name: str, data: bytes) -> bytes | None:
    """Hosts that accept a skill without a name use that of its folder, so nothing changes for them."""
    parsed, fences = parse(data), find_fences(data, complete=True)
    if not name or parsed is None or not parsed.fields or "name" in parsed.fields or not isinstance(fences, Fences):
        return None
    new = data[: fences.start] + f"name: {name}".encode() + _line_end(data) + data[fences.start :]
    after = parse(new)
    unchanged = after is not None and after.fields == {"name": name, **parsed.fields}
    return new if unchanged else None


def _line_end(data: bytes) -> bytes:
    return b"\r\n" if data[: data.find(b"\n") + 1].endswith(b"\r\n") else b"\n"


def _same(old: bytes, new: bytes) -> bool:
    """Whether both files have the same fields and body."""
    before, after = parse(old), parse(new)
    return (
        before is not None
        and after is not None
        and before.fields is not None
        and before.fields == after.fields
        and old[before.body_offset :] == new[after.body_offset :]
        and len(after.diagnostics) < len(before.diagnostics)
    )
