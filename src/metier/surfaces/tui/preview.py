"""The preview of an entry as lines: facts, diagnostics, files and the text of SKILL.md.

At most `BYTES` of the file are read and at most `LINES` are shown. A file that cannot be read gives a note, never an
error. The invariant: no control character of a skill is in a line.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from metier import limits
from metier.catalog.frontmatter import Fences, find_fences
from metier.errors import ResourceError
from metier.files.beneath import list_files, read_file
from metier.files.text import blank_controls, from_utf8
from metier.hosts.roots import Place
from metier.surfaces.tui.model import PickerEntry, clean
from metier.values.skill import SKILL_FILE

Role = Literal["title", "about", "fact", "note", "file", "heading", "code", "text", "blank"]

BYTES: Final = 32 * 1024
LINES: Final = 300
FILES: Final = 40


@dataclass(frozen=True, slots=True)
class PreviewLine:
    """A line of a preview. The role decides its style."""

    role: Role
    text: str
    label: str = ""


def preview(entry: PickerEntry, place: Place) -> list[PreviewLine]:
    """Return the lines for an entry. Paths are relative to the working directory or the home folder."""
    return list(_lines(entry, place))


def _lines(entry: PickerEntry, place: Place) -> Iterator[PreviewLine]:
    skill = entry.skill
    yield PreviewLine("title", clean(entry.name))
    if skill is not None:
        yield PreviewLine("about", clean(skill.description, 2_000))
    yield PreviewLine("blank", "")
    yield PreviewLine("fact", clean(short(entry.path, place), 2_000), "path")
    if entry.shadowed is not None:
        yield PreviewLine("fact", clean(short(entry.shadowed.winner.path, place), 2_000), "shadowed by")
    if skill is not None:
        yield PreviewLine("fact", clean(f"{skill.scope}, from {skill.source}"), "scope")
        yield PreviewLine("fact", f"{skill.mode}{'' if skill.trusted else ', the project is not trusted'}", "mode")
        for label, value in (("version", skill.version), ("license", skill.license), ("needs", skill.compatibility)):
            if value:
                yield PreviewLine("fact", clean(value), label)
        if skill.allowed_tools:
            yield PreviewLine("fact", clean(", ".join(skill.allowed_tools)), "tools")
    for note in entry.notes:
        line = f" (line {note.line})" if note.line else ""
        yield PreviewLine(
            "note", clean(f"{note.message}{line}{f'; {note.hint}' if note.hint else ''}", 2_000), note.severity
        )
    if os.path.basename(entry.path) != SKILL_FILE:
        return
    yield from _files(os.path.dirname(entry.path), entry.skill.inner if entry.skill is not None else ())
    yield PreviewLine("blank", "")
    yield from _body(entry)


def short(path: str, place: Place) -> str:
    """Shorten a path below the working directory, or below the home folder with `~`."""
    for folder, instead in ((place.cwd, ""), (place.home, "~/")):
        if folder and path.startswith(folder.rstrip("/") + "/"):
            return instead + path[len(folder.rstrip("/")) + 1 :]
    return path


def _files(folder: str, inner: Collection[str]) -> Iterator[PreviewLine]:
    listing = list_files(folder, FILES, limits.SKILL_FILE_BYTES, inner)
    more = " and more" if listing.truncated else ""
    if listing.files:
        yield PreviewLine("file", clean(", ".join(listing.files), 2_000) + more, "files")


def _body(entry: PickerEntry) -> Iterator[PreviewLine]:
    real = entry.skill.real_path if entry.skill is not None else entry.path
    folder, file = os.path.split(real)
    try:
        data = read_file(folder, file, BYTES).data
    except ResourceError as error:
        yield PreviewLine("note", clean(f"the text cannot be shown: {error}"), "note")
        return
    fences = find_fences(data, complete=True)
    whole = data[fences.body if isinstance(fences, Fences) and entry.skill is not None else 0 :]
    lines = from_utf8(whole).strip("\r\n").splitlines()
    in_code = False
    for line in lines[:LINES]:
        text = _printable_line(line)
        fence = text.lstrip().startswith(("```", "~~~"))
        role: Role = "code" if in_code or fence else "heading" if text.startswith("#") else "text"
        in_code = in_code != fence
        yield PreviewLine(role, text)
    if len(lines) > LINES or len(data) >= BYTES:
        yield PreviewLine("note", "the rest is not shown; `metier load` prints all of it", "more")


def _printable_line(line: str) -> str:
    """Return a line with its indentation and without control characters."""
    return blank_controls(line.expandtabs(4)[:1_000])
