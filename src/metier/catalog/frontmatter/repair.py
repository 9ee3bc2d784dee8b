"""Repairs YAML that does not parse, for the mistakes that people make most often.

Values that continue in the first column are indented first. Then plain values that break the YAML are quoted: those of
the top level, then those of every entry. Quoted values, block scalars and comments are not changed.
"""

import re
from typing import Final

from metier.catalog.frontmatter.source import INDICATOR, Scan, indent_of, scan, step_over
from metier.catalog.frontmatter.yaml import load
from metier.files.shapes import is_dict

_REPAIRABLE: Final = re.compile(r"(?P<head> *(?:-[ \t]+)?[A-Za-z_][\w.\- ]*:[ \t]+)(?P<value>[^\s].*)")
_REPAIRABLE_ITEM: Final = re.compile(r"(?P<head> *-[ \t]+)(?P<value>[^\s].*)")
_BLOCK_SCALAR: Final = re.compile(r"[|>][-+0-9]*(?:[ \t]+#.*)?")
_KEY_LINE: Final = re.compile(r"[A-Za-z_][\w.-]*[ \t]*:(?:[ \t]|$)")


_SIMPLE_LINE: Final = re.compile(r"""[A-Za-z_][\w.-]*:(?:[ \t]+[^\s\[\]{}"'|>&*!%@`#,?-].*)?[ \t]*|[ \t]*(?:#.*)?""")


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
