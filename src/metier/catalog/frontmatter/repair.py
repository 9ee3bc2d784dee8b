"""One repair for YAML that does not parse, for what people really write.

What spans lines is mended first, then plain values that are broken are quoted: of the top level, then of every entry.
Values that are quoted already, block scalars and comments are left alone.
"""

import re
from typing import Final, cast

from metier.catalog.frontmatter.source import INDICATOR, Scan, indent_of, scan, step_over
from metier.catalog.frontmatter.yaml import load

_REPAIRABLE: Final = re.compile(r"(?P<head> *(?:-[ \t]+)?[A-Za-z_][\w.\- ]*:[ \t]+)(?P<value>[^\s].*)")
_REPAIRABLE_ITEM: Final = re.compile(r"(?P<head> *-[ \t]+)(?P<value>[^\s].*)")
_BLOCK_SCALAR: Final = re.compile(r"[|>][-+0-9]*(?:[ \t]+#.*)?")
_KEY_LINE: Final = re.compile(r"[A-Za-z_][\w.-]*[ \t]*:(?:[ \t]|$)")


def repaired(text: str) -> tuple[str, object] | None:
    """Mend what spans lines, then quote the plain values that are broken: of the top level, then of every entry."""
    indented = _indent_continuations(text)
    for candidate in (indented, _quote_values(indented, deep=False), _quote_values(indented, deep=True)):
        if candidate == text or scan(candidate).refusal() is not None:
            continue
        try:
            value = load(candidate)
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
        end = step_over(Scan([], [], [], [], [], []), lines, number, match["value"], 0, 0)
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
    """Whether a line belongs to the value above: it is deeper, or stands in the first column and is no key."""
    if not line.strip() or indent_of(line) > indent:
        return True
    return indent == 0 and line[0] not in " #" and _KEY_LINE.match(line) is None


def _parses(value: str) -> bool:
    """Whether a value would be fine on its own; then it is not what broke the file."""
    if INDICATOR.match(value):
        return False
    try:
        parsed = load("key: " + value)
    except ValueError:
        return False
    return isinstance(parsed, dict) and len(cast("dict[object, object]", parsed)) == 1
