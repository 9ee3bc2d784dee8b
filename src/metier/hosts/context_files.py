"""The AGENTS.md files of a place: instructions that come before the skills in the system prompt.

A repository brings them, so they are opened as files of a skill are: beneath the project, never through a link that
leaves it, only if they are regular files of a bounded size. A link to a file that is no Markdown is not followed
either, because a project also holds files that are nobody's instructions, such as keys. Where trust is required, the
files of an untrusted project are not read at all. What is refused is reported, and nothing of it is read.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from metier import limits
from metier.errors import PathEscape, ResourceError, ResourceNotFound
from metier.files.beneath import Content, location, open_beneath, open_folder, read_opened
from metier.files.text import from_utf8
from metier.hosts.roots import Place, upwards
from metier.hosts.schema import Profile
from metier.values.skill import Diagnostic

_FILE = "AGENTS.md"


class ContextFile(NamedTuple):
    """An AGENTS.md that applies, with its text, or with the problem for which it is not read."""

    path: str
    text: str = ""
    problem: Diagnostic | None = None


def texts(profile: Profile, place: Place, trusted: bool) -> list[tuple[str, str]]:
    """Path and text of the files that apply, the outermost first. `trusted`: the user trusts the project."""
    return [(file.path, file.text) for file in _files(profile, place, trusted) if file.problem is None]


def diagnostics(profile: Profile, place: Place, trusted: bool) -> list[Diagnostic]:
    """The files that are not read, and why."""
    return [file.problem for file in _files(profile, place, trusted) if file.problem is not None]


def _refused(path: str, why: str) -> ContextFile:
    message, hint = f"{_FILE} is not read: {why}", "put a regular Markdown file there"
    return ContextFile(path, problem=Diagnostic("context-file-refused", "warning", message, path, hint=hint))


def _files(profile: Profile, place: Place, trusted: bool) -> Iterator[ContextFile]:
    foreign = profile.policy.trust == "required" and not trusted
    for base, folder in _folders(profile, place):
        path = os.path.join(folder, _FILE)
        if not os.path.lexists(path):
            continue  # most folders have none, and the first file that is opened safely costs some milliseconds
        if foreign and base == place.project:
            message, hint = f"{_FILE} is not read, because the project is not trusted", "run `metier trust` to trust it"
            yield ContextFile(path, problem=Diagnostic("untrusted", "warning", message, path, hint=hint))
            continue
        try:
            content = _read(base, os.path.relpath(path, base))
        except ResourceNotFound:
            if os.path.lexists(path):
                yield _refused(path, "it is a link to nothing")
        except PathEscape:
            yield _refused(path, "it is a link that leaves the project, or leads nowhere")
        except ResourceError as error:
            yield _refused(path, str(error))
        else:
            yield ContextFile(path, from_utf8(content.data))


def _folders(profile: Profile, place: Place) -> Iterator[tuple[str, str]]:
    """The folders whose file applies, the outermost first, each with the folder that its links must not leave."""
    rule = profile.context.agents_files
    if rule == "none":
        return
    folders = list(place.chain)
    if rule == "ancestors":
        above = upwards(place.cwd)[: profile.context.max_levels + 1]
        folders = [folder for folder in above if not any(part.startswith(".") for part in folder.split("/"))]
    inside = place.project.rstrip("/") + "/"
    for folder in reversed(folders):
        yield (place.project if f"{folder}/".startswith(inside) else folder), folder


def _read(base: str, path: str) -> Content:
    with open_folder(os.path.realpath(base)) as folder:
        opened = open_beneath(folder, path, path)
        try:
            if not (location(folder, opened) or path).lower().endswith(".md"):
                raise ResourceError("it is a link to a file that is no Markdown", path=path, reason="link")
            if os.fstat(opened).st_size > limits.CONTEXT_FILE_BYTES:
                message = f"it has more than {limits.CONTEXT_FILE_BYTES:,} bytes"
                raise ResourceError(message, path=path, reason="too-large")
            content = read_opened(opened, path, limits.CONTEXT_FILE_BYTES)
        finally:
            os.close(opened)
    if b"\0" in content.data:
        raise ResourceError("it is not text", path=path, reason="binary")
    return content
