"""One table `[mcp_servers.NAME]` in the text of a TOML file. All other lines keep their bytes.

Lines are found by their form, so the result is parsed: if anything but the entry differs, the edit is refused.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Final

from metier.clients.undo import Undo
from metier.files.shapes import as_table, is_list

SECTION: Final = "mcp_servers"
_HEADER: Final = re.compile(r"\s*\[")


def put(text: str | None, name: str, entry: Mapping[str, object]) -> tuple[str, Undo]:
    """The text with the entry, and what takes it out again. Raises `ValueError` if that is not possible."""
    given = text or ""
    end = "\r\n" if "\r\n" in given else "\n"
    if name in as_table(tomllib.loads(given).get(SECTION)):
        made, undo = _changed(given, name, entry, end), Undo()
    else:
        gap = "" if not given.strip() else end if given.endswith("\n") else end * 2
        made = given + gap + table(name, entry).replace("\n", end)
        undo = Undo(created=text is None, blank=gap)
    _check(given, made, name, entry)
    return made, undo


def take(text: str, name: str, undo: Undo) -> str | None:
    """The text without the table and those below it. `None` if the file was made for it and has nothing else."""
    lines = _lines(text)
    dropped = {number for first, end in _tables(lines, name, below=True) for number in range(first, end)}
    if not dropped:
        raise ValueError(f"`{SECTION}.{name}` is not written as a table [{SECTION}.{name}]")
    before = "".join(lines[: min(dropped)])
    after = "".join(line for number, line in enumerate(lines) if number > min(dropped) and number not in dropped)
    if undo.blank:
        kept = before.removesuffix(undo.blank)
    else:
        kept = re.sub(r"(?<=\n)\r?\n\Z", "", before)
    if after and kept and not kept.endswith("\n"):
        kept = before
    left = kept + after
    _check(text, left, name, None)
    return None if undo.created and not left.strip() else left


def table(name: str, entry: Mapping[str, object]) -> str:
    """The entry as a table."""
    return "".join([f"[{SECTION}.{name}]\n", *(f"{key} = {_value(value)}\n" for key, value in entry.items())])


def _value(value: object) -> str:
    if is_list(value):
        return f"[{', '.join(_value(one) for one in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # a JSON string is one of TOML


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _tables(lines: list[str], name: str, *, below: bool) -> list[tuple[int, int]]:
    """The lines of the entry's table, and with `below` of the tables below it, without what follows them."""
    after = r"[.\]]" if below else r"\]"
    ours = re.compile(rf"\s*\[\s*([\"']?){SECTION}\1\s*\.\s*([\"']?){name}\2\s*{after}")
    heads = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    found: list[tuple[int, int]] = []
    for head, following in zip(heads, [*heads[1:], len(lines)], strict=True):
        if ours.match(lines[head]):
            end = following
            while end > head + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
                end -= 1
            found.append((head, end))
    return found


def _changed(text: str, name: str, entry: Mapping[str, object], end: str) -> str:
    """Replace the values of the entry's keys in its table, and keep other keys."""
    lines = _lines(text)
    for first, last in _tables(lines, name, below=False):
        wanted = dict(entry)
        made = [lines[first]]
        at = first + 1
        while at < last:
            key = next((key for key in wanted if re.match(rf"\s*([\"']?){key}\1\s*=", lines[at])), None)
            if key is None:
                made.append(lines[at])
                at += 1
                continue
            made.append(f"{key} = {_value(wanted.pop(key))}{end}")
            at = _end_of_value(lines, at, last)
        made[1:1] = [f"{key} = {_value(value)}{end}" for key, value in wanted.items()]
        if not made[0].endswith("\n"):
            made[0] += end
        return "".join([*lines[:first], *made, *lines[last:]])
    raise ValueError(f"`{SECTION}.{name}` is not written as a table [{SECTION}.{name}]")


def _end_of_value(lines: list[str], at: int, last: int) -> int:
    for end in range(at + 1, last + 1):
        try:
            tomllib.loads("".join(lines[at:end]))
        except tomllib.TOMLDecodeError:
            continue
        return end
    return last


def _check(before: str, after: str, name: str, entry: Mapping[str, object] | None) -> None:
    """Refuse an edit that changed anything else."""
    expected = tomllib.loads(before)
    try:
        found = tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        found: dict[str, object] = {}
    servers = dict(as_table(expected.get(SECTION)))
    if entry is None:
        servers.pop(name, None)
    else:
        servers[name] = {**as_table(servers.get(name)), **entry}
    left = dict(as_table(found.get(SECTION)))
    if {**expected, SECTION: servers} != {**found, SECTION: left}:
        raise ValueError(f"`{SECTION}` is written in a form that cannot be changed safely")
