"""One entry in the text of a client's file. What is around it keeps its bytes: order, spaces, indentation, line ends.

In JSON the entry is a member of the table of servers. In TOML it is the table `[mcp_servers.NAME]`, whose lines are
found by their form, so the result is parsed: if anything but the entry differs, the edit is refused.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Final, NamedTuple

from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_list, is_table
from metier.values.value import Value

_SPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder()
_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA: Final = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
TOML_SECTION: Final = "mcp_servers"
_HEADER: Final = re.compile(r"\s*\[")


class Undo(Value):
    """What adding an entry made besides the entry itself, so that removing it leaves the file as it was.

    Only structure is kept, and no content of the file: it may have secrets.
    """

    created: bool = False
    """The file is new."""
    section: bool = False
    """The table of servers is new."""
    blank: str = ""
    """The empty text or object that was replaced, or the empty line before the entry."""
    folders: tuple[str, ...] = ()
    """New folders, the innermost last."""

    @classmethod
    def read(cls, found: Mapping[str, object]) -> "Undo":
        """A record of an earlier call. What is not valid counts as not made."""
        blank, folders = found.get("blank"), found.get("folders")
        return cls(
            created=found.get("created") is True,
            section=found.get("section") is True,
            blank=blank if isinstance(blank, str) and not blank.strip(" \t\r\n{}") else "",
            folders=tuple(one for one in folders if isinstance(one, str)) if is_list(folders) else (),
        )


NOTHING: Final = Undo()


# --- JSON ---


class _Member(NamedTuple):
    key: str
    start: int
    value: int
    end: int


class _Object(NamedTuple):
    """An object in a text: where it begins and ends, and its members."""

    start: int
    end: int
    members: tuple[_Member, ...]

    def find(self, key: str) -> int:
        """The position of a member, or -1. Raises `ValueError` if there are several, of which programs read one."""
        found = [number for number, member in enumerate(self.members) if member.key == key]
        if len(found) > 1:
            raise ValueError(f"the key {key!r} is there {len(found)} times")
        return found[0] if found else -1


def read_commented(text: str) -> object:
    """The data of JSON with comments and trailing commas. Raises `ValueError`."""
    plain = _COMMENT.sub(lambda found: found[1] or " ", text)
    return parse_json(_COMMA.sub(lambda found: found[1] or "", plain))


def put_json(text: str | None, section: str, name: str, entry: Mapping[str, object]) -> tuple[str, Undo]:
    """The text with the entry, and what takes it out again. The text is JSON, empty, or `None` if there is no file."""
    if text is None or not text.strip():
        made = json.dumps({section: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
        return made, Undo(created=text is None, section=True, blank=text or "")
    root = _object(text, len(text) - len(text.lstrip()))
    at = root.find(section)
    if at < 0:
        return _insert(text, root, root, section, {name: entry}), Undo(section=True, blank=_blank(text, root))
    servers = _object(text, root.members[at].value)
    found = servers.find(name)
    if found < 0:
        return _insert(text, root, servers, name, entry), Undo(blank=_blank(text, servers))
    member = servers.members[found]
    shown = _value(text, root, entry, _lead(text, member))
    return text[: member.value] + shown + text[member.end :], Undo()


def take_json(text: str, section: str, name: str, undo: Undo) -> str | None:
    """The text without the entry, which it has. `None` if the file was made for the entry and has nothing else."""
    root = _object(text, len(text) - len(text.lstrip()))
    at = root.find(section)
    servers = _object(text, root.members[at].value)
    if len(servers.members) > 1:
        return _cut(text, servers, servers.find(name))
    if not undo.section:
        return text[: servers.start] + (undo.blank or "{}") + text[servers.end :]
    if len(root.members) > 1:
        return _cut(text, root, at)
    if undo.created:
        return None
    return text[: root.start] + undo.blank + text[root.end :] if undo.blank.strip() else undo.blank


def _blank(text: str, found: _Object) -> str:
    return "" if found.members else text[found.start : found.end]


def _object(text: str, start: int) -> _Object:
    members: list[_Member] = []
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, after = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, after) + 1)
        end = _DECODER.raw_decode(text, value)[1]
        members.append(_Member(key, at, value, end))
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return _Object(start, at + 1, tuple(members))


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _lead(text: str, member: _Member) -> str:
    """The space before a member."""
    start = member.start
    while text[start - 1] in _SPACE:
        start -= 1
    return text[start : member.start]


def _insert(text: str, root: _Object, into: _Object, key: str, value: Mapping[str, object]) -> str:
    """Add a member as the last one, in the style of those around it."""
    if into.members:
        last = into.members[-1]
        lead = _lead(text, last)
        member = f",{lead}{json.dumps(key)}: {_value(text, root, value, lead)}"
        return text[: last.end] + member + text[last.end :]
    if root.members and "\n" not in text.strip():
        lead = close = ""
    else:
        line = text[text.rfind("\n", 0, into.start) + 1 : into.start]
        close = _line_end(text) + line[: len(line) - len(line.lstrip())]
        lead = close + _unit(text, root)
    member = f"{{{lead}{json.dumps(key)}: {_value(text, root, value, lead)}{close}}}"
    return text[: into.start] + member + text[into.end :]


def _value(text: str, root: _Object, value: Mapping[str, object], lead: str) -> str:
    if "\n" not in lead:
        return json.dumps(value, ensure_ascii=False)
    shown = json.dumps(value, ensure_ascii=False, indent=_unit(text, root))
    return shown.replace("\n", _line_end(text) + lead.rpartition("\n")[2])


def _unit(text: str, root: _Object) -> str:
    """The indentation of one level."""
    lead = _lead(text, root.members[0]) if root.members else ""
    return lead.rpartition("\n")[2] if "\n" in lead else "  "


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _cut(text: str, found: _Object, at: int) -> str:
    """Take out one of several members, with one comma."""
    members = found.members
    if at:
        return text[: members[at - 1].end] + text[members[at].end :]
    return text[: members[0].start] + text[members[1].start :]


def section_of(data: object, section: str) -> dict[str, object]:
    """The table of servers. Raises `ValueError` if the data has another form."""
    if not is_table(data):
        raise ValueError("the file is not an object")
    servers = data.get(section, {})
    if not is_table(servers):
        raise ValueError(f"`{section}` is not an object")
    return servers


# --- TOML ---


def put_toml(text: str | None, name: str, entry: Mapping[str, object]) -> tuple[str, Undo]:
    """The text with the entry, and what takes it out again. Raises `ValueError` if that is not possible."""
    given = text or ""
    end = "\r\n" if "\r\n" in given else "\n"
    if name in as_table(tomllib.loads(given).get(TOML_SECTION)):
        made, undo = _changed(given, name, entry, end), Undo()
    else:
        gap = "" if not given.strip() else end if given.endswith("\n") else end * 2
        made = given + gap + toml_table(name, entry).replace("\n", end)
        undo = Undo(created=text is None, blank=gap)
    _check(given, made, name, entry)
    return made, undo


def take_toml(text: str, name: str, undo: Undo) -> str | None:
    """The text without the table and those below it. `None` if the file was made for it and has nothing else."""
    lines = _toml_lines(text)
    dropped = {number for first, end in _tables(lines, name, below=True) for number in range(first, end)}
    if not dropped:
        raise ValueError(f"`{TOML_SECTION}.{name}` is not written as a table [{TOML_SECTION}.{name}]")
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


def toml_table(name: str, entry: Mapping[str, object]) -> str:
    """The entry as a table."""
    return "".join([f"[{TOML_SECTION}.{name}]\n", *(f"{key} = {_toml_value(value)}\n" for key, value in entry.items())])


def _toml_value(value: object) -> str:
    if is_list(value):
        return f"[{', '.join(_toml_value(one) for one in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # a JSON string is one of TOML


def _toml_lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _tables(lines: list[str], name: str, *, below: bool) -> list[tuple[int, int]]:
    """The lines of the entry's table, and with `below` of the tables below it, without what follows them."""
    after = r"[.\]]" if below else r"\]"
    ours = re.compile(rf"\s*\[\s*([\"']?){TOML_SECTION}\1\s*\.\s*([\"']?){name}\2\s*{after}")
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
    lines = _toml_lines(text)
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
            made.append(f"{key} = {_toml_value(wanted.pop(key))}{end}")
            at = _end_of_value(lines, at, last)
        made[1:1] = [f"{key} = {_toml_value(value)}{end}" for key, value in wanted.items()]
        if not made[0].endswith("\n"):
            made[0] += end
        return "".join([*lines[:first], *made, *lines[last:]])
    raise ValueError(f"`{TOML_SECTION}.{name}` is not written as a table [{TOML_SECTION}.{name}]")


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
    servers = dict(as_table(expected.get(TOML_SECTION)))
    if entry is None:
        servers.pop(name, None)
    else:
        servers[name] = {**as_table(servers.get(name)), **entry}
    left = dict(as_table(found.get(TOML_SECTION)))
    if {**expected, TOML_SECTION: servers} != {**found, TOML_SECTION: left}:
        raise ValueError(f"`{TOML_SECTION}` is written in a form that cannot be changed safely")
