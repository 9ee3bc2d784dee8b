"""Globs that name files of a folder before they are there.

As in a shell, `*`, `?` and `[...]` stay within one part of a path, and `**` stands for any number of folders. The
invariant: a wildcard never stands for a leading dot, so a hidden file is named only by a glob that writes the dot.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

PATTERN: Final = r"^\w[\w .*?-]*$"
"""What a client can always send as a glob."""


def is_inside(glob: str) -> bool:
    """Whether a glob is relative and stays in its folder."""
    return not glob.startswith("~") and not any(part in ("", ".", "..") for part in glob.split("/"))


def covers(globs: Iterable[str], path: str) -> bool:
    """Whether one of the globs names a path."""
    return any(_covers(glob, path) for glob in globs)


def _covers(glob: str, path: str) -> bool:
    wanted = glob.split("/")
    if wanted[-1] == "**":
        wanted.append("*")
    places = {0}
    """How many parts of the glob may have been used up so far."""
    for part in path.split("/"):
        for place, word in enumerate(wanted):
            if word == "**" and place in places:
                places.add(place + 1)
        after: set[int] = set()
        for place in places - {len(wanted)}:
            if wanted[place] == "**" and not part.startswith("."):
                after.add(place)
            elif fnmatchcase(part, wanted[place]) and (not part.startswith(".") or wanted[place].startswith(".")):
                after.add(place + 1)
        places = after
    return len(wanted) in places
