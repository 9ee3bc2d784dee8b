"""The files of a skill that a look can read: its scripts and modules by language, and SKILL.md."""

import os
import re
from collections.abc import Iterable
from typing import Final, Literal

from metier import limits
from metier.files.text import from_utf8
from metier.files.tree import SkillTree, TreeFile
from metier.values.skill import SKILL_FILE
from metier.values.value import Value

Language = Literal["python", "shell", "node", "markdown"]

_SUFFIXES: Final[dict[str, Language]] = {
    ".py": "python",
    ".sh": "shell",
    ".bash": "shell",
    ".js": "node",
    ".mjs": "node",
    ".cjs": "node",
    ".ts": "node",
}
_PROGRAMS: Final[tuple[tuple[re.Pattern[str], Language], ...]] = (
    (re.compile(r"#!.*\b(python[\d.]*|uv)\b"), "python"),
    (re.compile(r"#!.*\b(sh|bash|dash|ash|zsh)\b"), "shell"),
    (re.compile(r"#!.*\b(node|nodejs|bun|deno)\b"), "node"),
)


class SourceFile(Value):
    """One file, with its text."""

    unshown = ("text",)

    path: str
    language: Language
    text: str


class Named(Value):
    """Something that a skill names, the files that name it, and what kind of thing it is, if a look tells."""

    json_keys = ("name", "where", "kind?")

    name: str
    where: tuple[str, ...]
    kind: str = ""


def sources(tree: SkillTree) -> tuple[SourceFile, ...]:
    """The sources of a skill, sorted by path. Links and files of other kinds are left out."""
    return tuple(
        SourceFile(file.path, language, from_utf8(file.data))
        for file in tree.files
        if not file.target and (language := language_of(file)) is not None
    )


def language_of(file: TreeFile) -> Language | None:
    """The language of a file by its suffix or first line."""
    if len(file.data) > limits.SCRIPT_BYTES:
        return None
    if file.path == SKILL_FILE:
        return "markdown"
    suffix = os.path.splitext(file.path)[1].lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    first = from_utf8(file.data[:200].split(b"\n", 1)[0])
    return next((language for pattern, language in _PROGRAMS if not suffix and pattern.match(first)), None)


def collected(found: Iterable[tuple[str, str, str]]) -> tuple[Named, ...]:
    """What was found, as (name, path, kind), with all places of each name together."""
    places: dict[tuple[str, str], dict[str, None]] = {}
    for name, path, kind in found:
        places.setdefault((name, kind), {})[path] = None
    return tuple(Named(name, tuple(sorted(where)), kind) for (name, kind), where in sorted(places.items()))
