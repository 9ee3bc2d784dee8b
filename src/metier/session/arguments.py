"""Insert the arguments that follow a skill's name into the skill's body.

Every `$ARGUMENTS` is replaced. If the body has no placeholder, non-empty arguments are appended. Indexed and named
arguments are replaced only in skills that declare arguments, because `$1` in real bodies is mostly awk or a price.
Expansion is a single pass over the body, so nothing in the arguments themselves is ever expanded.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

_PLACE: Final = r"\$\{CLAUDE_SKILL_DIR\}|\{baseDir\}"
_WORD: Final = re.compile(r"[A-Za-z_][\w-]*")
_PIECE: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+)|(?P<plain>[^ \t\r\n'"\\]+)|'(?P<single>[^']*)'"""
    r"""|"(?P<double>(?:[^"\\]++|\\.)*+)"|\\(?P<one>.)""",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"""\\(["\\])""")
"""In double quotes, a backslash escapes only these."""


def expand(body: str, arguments: str, frontmatter: Mapping[str, Any], indexed: bool = True, directory: str = "") -> str:
    """Insert the arguments into the body, and the directory if one is given. Without either, return it unchanged."""
    if not arguments:
        return re.sub(_PLACE, lambda _: directory, body) if directory and "{" in body else body
    names = _declared(frontmatter)
    may_index = indexed and bool(names or "argument-hint" in frontmatter or "$ARGUMENTS" in body)
    values = _split(arguments) if may_index else []
    used = False

    def replacement(match: re.Match[str]) -> str:
        nonlocal used
        if match["place"] is not None:
            return directory
        if match["whole"] is not None:
            used = True
            return arguments
        if match["index"] is not None:
            position = int(match["index"])
        elif match["position"] is not None:
            position = int(match["position"]) - 1
        else:
            position = names.index(match["name"])
        used = True
        return values[position] if 0 <= position < len(values) else ""

    expanded = _pattern(names, may_index, bool(directory)).sub(replacement, body)
    return expanded if used else f"{expanded.rstrip()}\n\nARGUMENTS: {arguments}\n"


def _pattern(names: list[str], may_index: bool, has_place: bool) -> re.Pattern[str]:
    choices = [r"(?P<index>(?!))", r"(?P<position>(?!))", r"(?P<name>(?!))"]
    if may_index:
        choices[0] = r"ARGUMENTS\[(?P<index>\d{1,3})\]"
        choices[1] = r"(?P<position>[1-9]\d?)(?![\w.,]\w|\w)"
    if names and may_index:
        choices[2] = rf"(?P<name>{'|'.join(re.escape(name) for name in sorted(names, key=len, reverse=True))})(?![\w-])"
    place = rf"(?P<place>{_PLACE if has_place else '(?!)'})"
    return re.compile(rf"{place}|\$(?:{choices[0]}|(?P<whole>ARGUMENTS)(?!\w)|{choices[1]}|{choices[2]})")


def _declared(frontmatter: Mapping[str, Any]) -> list[str]:
    """The names in `arguments`, which is a list, a string, or a list of tables with a `name`."""
    given = frontmatter.get("arguments")
    words: list[Any] = given.split() if isinstance(given, str) else list(given) if isinstance(given, list) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    names: list[str] = []
    for word in words:
        name: Any = word.get("name") if isinstance(word, dict) else word  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(name, str) and _WORD.fullmatch(name):
            names.append(name)
    return names


def _split(arguments: str) -> list[str]:
    """Split into words like a shell. If a quote is never closed, split on whitespace.

    The words are those of `shlex.split`, which needs seconds for a word of 300 kB.
    """
    words: list[list[str]] = []
    position, inside = 0, False
    while position < len(arguments):
        piece = _PIECE.match(arguments, position)
        if piece is None:
            return arguments.split()
        position = piece.end()
        if piece["space"] is not None:
            inside = False
            continue
        if not inside:
            words.append([])
            inside = True
        quoted = piece["double"]
        words[-1].append(
            _ESCAPED.sub(r"\1", quoted) if quoted else piece["plain"] or piece["single"] or piece["one"] or ""
        )
    return ["".join(pieces) for pieces in words]
