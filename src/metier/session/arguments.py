"""Insert the arguments that follow a skill's name into the skill's body.

Every `$ARGUMENTS` is replaced. If the body has no placeholder, or the host always appends them, non-empty arguments are
appended. Indexed and named arguments are replaced only in skills that declare arguments, because `$1` in real bodies is
mostly awk or a price. Expansion is a single pass over the body, so nothing in the arguments themselves is ever
expanded. What it may add is limited: beyond that, placeholders stay as they are.
"""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from metier import limits

_PLACE: Final = r"\$\{CLAUDE_SKILL_DIR\}|\{baseDir\}"
_WORD: Final = re.compile(r"[A-Za-z_][\w-]*")
_DOUBLE: Final = r"""(?:[^"\\]++|\\.)*"""
"""What is in double quotes. No group is repeated possessively: Python before 3.11.5 loses matches of such groups."""
_PIECE: Final = re.compile(rf"""'([^']*+)'|"({_DOUBLE})"|\\(.)|([^'"\\]++)""", re.DOTALL)
"""A part of a word: in single or double quotes, an escaped character, or plain text."""
_RAW: Final = re.compile(rf"""(?:[^ \t\r\n'"\\]++|'[^']*+'|"{_DOUBLE}"|\\.)+""", re.DOTALL)
"""A word with its quotes."""
_CLOSED: Final = re.compile(rf"""'[^']*+'|"{_DOUBLE}"|\\.""", re.DOTALL)
"""A quote that is closed, or an escaped character. Without them, no quote and no backslash is left in a good text."""
_LEFT_OPEN: Final = re.compile(r"""['"\\]""")
_WORDS: Final = 1000
"""How many words can be referred to: three digits in `$ARGUMENTS[999]`. Splitting megabytes into words is slow."""
_ESCAPED: Final = re.compile(r"""\\(["\\])""")
"""In double quotes, a backslash escapes only these."""


def expand(
    body: str,
    arguments: str,
    frontmatter: Mapping[str, Any],
    indexed: bool = True,
    directory: str = "",
    *,
    append: bool = False,
) -> str:
    """Insert the arguments into the body, and the directory if one is given. Without either, return it unchanged.

    `append` puts the arguments at the end in any case.
    """
    if not arguments:
        return re.sub(_PLACE, lambda _: directory, body) if directory and "{" in body else body
    names = _declared(frontmatter)
    may_index = indexed and bool(names or "argument-hint" in frontmatter or "$ARGUMENTS" in body)
    values: list[str] | None = None
    used = False
    room = limits.EXPANDED_CHARACTERS

    def replacement(match: re.Match[str]) -> str:
        nonlocal used, values, room
        if match["place"] is not None:
            return directory
        if match["whole"] is not None:
            if used and len(arguments) > room:
                return match[0]  # a body that repeats it a thousand times must not become gigabytes
            used = True
            room -= len(arguments)
            return arguments
        if match["index"] is not None:
            position = int(match["index"])
        elif match["position"] is not None:
            position = int(match["position"]) - 1
        else:
            position = names.index(match["name"])
        used = True
        values = _split(arguments) if values is None else values
        value = values[position] if 0 <= position < len(values) else ""
        room -= len(value)
        return value if room >= 0 else match[0]

    expanded = _pattern(names, may_index, bool(directory)).sub(replacement, body)
    return expanded if used and not append else f"{expanded.rstrip()}\n\nARGUMENTS: {arguments}\n"


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
    """Split into words like a shell, up to the last one that can be referred to.

    If a quote is never closed, split on whitespace. The words are those of `shlex.split`, which needs seconds for a
    word of 300 kB.
    """
    if _LEFT_OPEN.search(_CLOSED.sub("", arguments)):
        return arguments.split(None, _WORDS)[:_WORDS]
    return [_unquoted(word[0]) for word in islice(_RAW.finditer(arguments), _WORDS)]


def _unquoted(word: str) -> str:
    """A word without its quotes. One kind of quoting needs no loop over its parts, of which there may be millions."""
    escapes, kinds = "\\" in word, [quote for quote in ("'", '"') if quote in word]
    if not kinds:
        return "\\".join(part.replace("\\", "") for part in word.split("\\\\")) if escapes else word
    if not escapes and len(kinds) == 1:
        return word.replace(kinds[0], "")
    return "".join(
        single or (_ESCAPED.sub(r"\1", double) if "\\" in double else double) or one or plain
        for single, double, one, plain in _PIECE.findall(word)
    )
