"""Fixes what can be fixed in a skill without asking its author.

A fix is safe if no host that accepts the skill reads anything else afterwards: characters that nobody sees, a byte
order mark, YAML that is only read after a repair, a missing `name`. Names, descriptions and links are left to the
author. Everything else in a file stays byte for byte, and what is fixed needs no second fix.
"""

import difflib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from metier.authoring.lint import BOM, SkillText, reached_texts
from metier.catalog.frontmatter.repair import rewrite
from metier.catalog.hidden import HiddenCharacter, hidden_characters
from metier.catalog.links import split_code
from metier.catalog.validate import name_flaw
from metier.files.beneath import read_regular
from metier.files.replace import replace_file
from metier.files.text import visible
from metier.values.skill import SKILL_FILE


class Fix(NamedTuple):
    """What would be changed in one file."""

    folder: str
    """The skill's folder."""
    path: str
    """Relative to it."""
    before: bytes
    after: bytes
    changes: tuple[str, ...]

    @property
    def file(self) -> str:
        return os.path.join(self.folder, self.path)

    def diff(self) -> str:
        """The change as a unified diff. Characters that nobody sees are written as escapes."""
        old, new = (visible(data.decode(), lines=True).split("\n") for data in (self.before, self.after))
        return "\n".join(difflib.unified_diff(old, new, self.file, self.file, lineterm=""))


def plan(folder: str) -> Iterator[Fix]:
    """Yield the fixes of the skill in a folder: of its SKILL.md, and of the text files that it leads to."""
    for text in reached_texts(folder):
        before = text.text.encode()
        after, changes = _fixed(text, os.path.basename(folder))
        if after != before:
            yield Fix(folder, text.path, before, after, changes)


def obstacle(fix: Fix, below: str) -> str:
    """Return why a file must not be written; empty if it may. `below` is the folder that the user named."""
    root = os.path.realpath(below).rstrip("/") + "/"
    if not f"{os.path.realpath(fix.folder)}/".startswith(root):
        return "a link leads to it from outside of the folder that was named"
    if os.path.realpath(fix.file) != os.path.join(os.path.realpath(fix.folder), *fix.path.split("/")):
        return "it is a symbolic link"
    try:
        status = os.lstat(fix.file)
        if not stat.S_ISREG(status.st_mode):
            return "it is not a regular file"
        if not status.st_mode & 0o222 or not os.access(fix.file, os.W_OK) or not os.access(fix.folder, os.W_OK):
            return "it is read-only"
        if read_regular(fix.file, len(fix.before)) != fix.before:
            return "it has changed in the meantime"
    except OSError as error:
        return error.strerror or "it cannot be read"
    return ""


def apply(fix: Fix) -> None:
    """Write the fixed file in one step. Raises `OSError` if it cannot be written."""
    replace_file(fix.file, fix.after)


def _fixed(text: SkillText, name: str) -> tuple[bytes, tuple[str, ...]]:
    changes: list[str] = []
    content = text.text
    if text.path == SKILL_FILE and content.startswith(BOM):
        content = content.removeprefix(BOM)
        changes.append("removed the byte order mark")
    clean, removed = _without_hidden(content)
    if removed:
        content = clean
        changes.append(
            f"removed {removed:,} characters that nobody sees"
            if removed > 1
            else "removed a character that nobody sees"
        )
    data = content.encode()
    if text.path == SKILL_FILE:
        data, rewritten = rewrite(data, name if not name_flaw(name, "ascii") else "")
        changes += rewritten
    return data, tuple(changes)


def _without_hidden(text: str) -> tuple[str, int]:
    """Remove what nobody sees, and return how many characters that were.

    What is left is looked at again, because it is next to other characters now.
    """
    removed = 0
    while gone := {one.at for one in _removable(text)}:
        removed += len(gone)
        text = "".join(char for at, char in enumerate(text) if at not in gone)
    return text, removed


def _removable(text: str) -> list[HiddenCharacter]:
    found = [one for one in hidden_characters(text) if one.removable]
    if not any(one.kind == "invisible" for one in found):
        return found
    # In code, an invisible character can be what the code is about. One that can hide text has no place there either.
    _, code = split_code(text)
    spans = [(piece.at, piece.at + len(piece.text)) for piece in code]
    return [one for one in found if one.kind == "hidden" or not any(a <= one.at < b for a, b in spans)]
