"""The reference files of a skill that are in the search index: Markdown and plain text beneath its folder.

Tests, evaluations, licences, hidden folders and the folders of inner skills are left out, and links are not followed.
Everything is bounded, because a skill may be the root of a large repository.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from metier import limits
from metier.errors import ResourceError
from metier.files.beneath import read_file
from metier.files.text import from_utf8
from metier.model import SKILL_FILE

SUFFIXES: Final = (".md", ".txt")
_LEFT_OUT: Final = re.compile(
    r"\.|__|node_modules$|dist$|build$|tests?$|evals?$|evaluations?$|fixtures?$|(?:license|licence|notice|copying|changelog)\b"
    r"|requirements[\w-]*\.txt$"
)
"""The beginnings of names, in lower case, of files and folders that do not describe what a skill is for."""


class Reference(NamedTuple):
    """A file by its path in the skill's folder, and what changes when it is written."""

    path: str
    mtime_ns: int
    size: int


def references(skill_file: str) -> list[Reference]:
    """The reference files of the skill with this SKILL.md, by path."""
    folder = os.path.dirname(skill_file)
    found = sorted(_within(folder, "", _Entries()))
    return found[: limits.INDEXED_FILES]


def texts(skill_file: str, files: list[Reference]) -> tuple[tuple[str, str], ...]:
    """The text of these files, in order, as far as it is indexed."""
    folder = os.path.dirname(skill_file)
    left = limits.INDEXED_CHARACTERS
    found: list[tuple[str, str]] = []
    for file in files:
        if left <= 0:
            break
        with contextlib.suppress(ResourceError):
            text = from_utf8(read_file(folder, file.path, 4 * left).data)[:left]
            left -= len(text)
            found.append((file.path, text))
    return tuple(found)


def digest(files: list[Reference]) -> str:
    """What stands for the state of these files. Empty if there are none."""
    if not files:
        return ""
    return hashlib.blake2b(repr(files).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


class _Entries:
    """How many entries of a skill's folder may still be looked at."""

    def __init__(self) -> None:
        self.left = limits.INDEXED_ENTRIES


def _within(folder: str, above: str, entries: _Entries, depth: int = 0) -> Iterator[Reference]:
    inner: list[str] = []
    try:
        with os.scandir(os.path.join(folder, above)) as listing:
            found = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return
    if depth and any(entry.name == SKILL_FILE for entry in found):
        return
    for entry in found:
        entries.left -= 1
        if entries.left < 0:
            return
        name = entry.name.lower()
        if _LEFT_OUT.match(name) or name == SKILL_FILE.lower():
            continue
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.name)
            elif name.endswith(SUFFIXES) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield Reference(above + entry.name, status.st_mtime_ns, status.st_size)
    if depth < limits.INDEXED_DEPTH:
        for name in inner:
            yield from _within(folder, f"{above}{name}/", entries, depth + 1)
