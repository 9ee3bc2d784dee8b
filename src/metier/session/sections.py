"""Puts a listing under a heading that the base prompt has already, instead of under a second one of that name.

Headings are Markdown's `#` lines outside of code blocks. Case does not matter, and neither does the level: the section
that is added is one level below the heading that it joins.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from metier.results import Prompt

_HEADING: Final = re.compile(r" {0,3}(?P<level>#{1,6})[ \t]+(?P<title>.*?)[ \t]*#*[ \t]*")
_FENCE: Final = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})")


def join(base: str, listed: Prompt) -> tuple[str, str]:
    """The base with the part of the listing that belongs under one of its headings, and the rest of the listing.

    A listing that names no heading stays whole, and so does one whose heading the base does not have.
    """
    lines = base.split("\n")
    headings = list(_headings(lines))
    title = listed.heading.casefold()
    place = next((number for number, (_, _, name) in enumerate(headings) if name.casefold() == title), None)
    if not title or place is None:
        return base, listed.text
    _, level, _ = headings[place]
    end = next((line for line, other, _ in headings[place + 1 :] if other <= level), len(lines))
    section, rest = _first_section(listed.text.split("\n"), level)
    before, after = "\n".join(lines[:end]).rstrip("\n"), "\n".join(lines[end:])
    return "\n\n".join(part for part in (before, section, after) if part), rest


def _first_section(lines: Sequence[str], level: int) -> tuple[str, str]:
    """The text below the first heading, with its own headings below `level`, and the text from the next heading on."""
    headings = list(_headings(lines))
    end = next((line for line, other, _ in headings[1:] if other <= headings[0][1]), len(lines))
    own = {line for line, _, _ in headings}
    deeper = "#" * (level - headings[0][1])
    section = [deeper + line if number in own else line for number, line in enumerate(lines[:end])]
    return "\n".join(section[1:]).strip("\n"), "\n".join(lines[end:])


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """The headings of a text: the number of the line, the level and the title of each."""
    fence = ""
    for number, line in enumerate(lines):
        opened = _FENCE.match(line)
        if opened and not fence:
            fence = opened["fence"]
        elif fence and line.strip().startswith(fence) and not line.strip(" \t" + fence[0]):
            fence = ""
        elif not fence and (found := _HEADING.fullmatch(line)):
            yield number, len(found["level"]), found["title"]
