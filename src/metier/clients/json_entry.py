"""One entry in the text of a JSON file. What is around it keeps its bytes: order, spaces, indentation and line ends."""

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from metier.clients.undo import Undo
from metier.files.json_text import parse_json
from metier.files.shapes import is_table

_SPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder()
_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA: Final = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


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


def read(text: str) -> object:
    """The data of a text. Raises `ValueError`; a `json.JSONDecodeError` has the place."""
    return parse_json(text)


def read_commented(text: str) -> object:
    """The data of JSON with comments and trailing commas. Raises `ValueError`."""
    plain = _COMMENT.sub(lambda found: found[1] or " ", text)
    return parse_json(_COMMA.sub(lambda found: found[1] or "", plain))


def put(text: str | None, section: str, name: str, entry: Mapping[str, object]) -> tuple[str, Undo]:
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


def take(text: str, section: str, name: str, undo: Undo) -> str | None:
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
