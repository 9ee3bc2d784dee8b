"""Rewrites a frontmatter that is only read after a repair, so that every host can read it.

A rewrite never changes what is read: the fields before and after are the same. The body stays byte for byte, and so
does every line of the frontmatter that needs no repair.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from metier.catalog.frontmatter import Fences, find_fences, parse
from metier.catalog.frontmatter.repair import repaired
from metier.catalog.frontmatter.yaml import load

_TAB_INDENT: Final = re.compile(rb"^( *)(\t+)(?=[^\s#])", re.MULTILINE)
_BLANK: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s+")


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
