"""Skills as the extension describes them: the uri of SKILL.md, the frontmatter, and every file with digest and size.

A digest is always that of the bytes on disk now. A digest is reused only if the file's times and size show that the
file cannot have changed; times that are too recent to show it are ignored.
"""

import mimetypes
import os
import time
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypedDict

from metier.catalog import frontmatter
from metier.catalog.scan_cache import settled
from metier.errors import AmbiguousSkill, InvalidSkill, ResourceError, SkillNotFound
from metier.files.beneath import Content, check_relative
from metier.files.digests import digest_of
from metier.files.source import DiskFiles
from metier.files.text import storable_table
from metier.files.urls import SCHEME, format_url, parse_url
from metier.session.session import Session
from metier.sources.mcp_protocol import SKILL_BYTES, SKILL_FILES
from metier.values.skill import REMOTE, SKILL_FILE, Skill

DIRECTORY: Final = "inode/directory"
_MIME: Final = mimetypes.MimeTypes()
"""The standard library's own table. The machine's table would make the answer differ between servers."""

_Signature = tuple[int, int, int, int]


class File(NamedTuple):
    """A file of a skill as it was read."""

    digest: str
    size: int
    fields: Mapping[str, object] | None
    """The frontmatter, if the file is a SKILL.md."""


class ResourceEntry(TypedDict):
    """A file in the entry of a skill."""

    uri: str
    digest: str
    size: int


class SkillEntry(TypedDict):
    """The entry of a skill in `skills/list` and `skills/get`."""

    uri: str
    frontmatter: dict[str, object]
    resources: list[ResourceEntry] | Literal["dynamic"]


def served(session: Session) -> dict[str, Skill]:
    """The skills that a model may see, by name.

    A skill whose name is ambiguous has no uri, so it is left out. Skills of other servers are left out, too.
    """
    found: dict[str, Skill] = {}
    for skill in session.visible():
        try:
            skill.name.encode()
            if skill.scope != REMOTE and session.skills.catalog.find(skill.name) is skill:
                found[skill.name] = skill
        except (AmbiguousSkill, SkillNotFound, InvalidSkill, UnicodeEncodeError):
            continue
    return found


def mime_type(path: str, *, binary: bool = False) -> str:
    """The MIME type by the file's name; plain text or bytes if the ending is unknown."""
    if path.lower().endswith(".md"):
        return "text/markdown"
    guessed, encoding = _MIME.guess_type(path, strict=True)
    if guessed is not None and encoding is None:
        return guessed
    return "application/octet-stream" if binary or encoding else "text/plain"


class Manifests:
    """Makes the entries of skills. Keeps the digests of files that have not changed since they were read."""

    def __init__(self) -> None:
        self._disk = DiskFiles()
        self._known: dict[str, tuple[_Signature, File]] = {}

    def entry(self, skill: Skill) -> SkillEntry | None:
        """The entry of a skill; `None` if its SKILL.md is missing, broken or has another name."""
        try:
            main = self._file(skill, SKILL_FILE)
        except ResourceError:
            return None
        fields = main.fields
        if fields is None or fields.get("name") != skill.name or not isinstance(fields.get("description"), str):
            return None
        uri = format_url(skill.name, SKILL_FILE)
        return {"uri": uri, "frontmatter": storable_table(fields), "resources": self._resources(skill, uri, main)}

    def _resources(self, skill: Skill, uri: str, main: File) -> list[ResourceEntry] | Literal["dynamic"]:
        listing = self._disk.listing(skill, SKILL_FILES - 1, SKILL_BYTES - main.size)
        if listing.truncated or main.size > SKILL_BYTES:
            return "dynamic"
        resources: list[ResourceEntry] = [{"uri": uri, "digest": main.digest, "size": main.size}]
        for path in listing.files:
            try:
                file = self._file(skill, path)
            except ResourceError:
                continue  # a client could not read it either
            resources.append({"uri": format_url(skill.name, path), "digest": file.digest, "size": file.size})
        return resources

    def files(self, skill: Skill) -> list[str]:
        """The paths of a skill's files, SKILL.md first; none if its folder is missing."""
        try:
            listing = self._disk.listing(skill, SKILL_FILES * 8, SKILL_BYTES * 64)
        except ResourceError:
            return []
        return [SKILL_FILE, *listing.files]

    def children(self, skill: Skill, folder: str) -> dict[str, bool]:
        """The names directly in a folder of a skill, and whether each is a folder. Raises if it is no folder."""
        prefix = f"{folder}/" if folder else ""
        found: dict[str, bool] = {}
        for path in self.files(skill):
            if path.startswith(prefix):
                name, slash, _ = path[len(prefix) :].partition("/")
                found[name] = bool(slash)
        if not found:
            try:
                self._disk.resource(skill, folder, 0)
            except ResourceError as error:
                if error.reason == "folder":
                    return {}
                raise
            raise ResourceError(f"{folder} is not a folder", path=folder, reason="not-a-folder")
        return found

    def _content(self, skill: Skill, path: str) -> Content:
        """The bytes of a file of a skill. A file that is larger than hosts accept is refused."""
        if path == SKILL_FILE:
            content = self._disk.skill_file(skill, SKILL_BYTES)
        else:
            content = self._disk.resource(skill, path, SKILL_BYTES)
        if content.size > len(content.data):
            raise ResourceError(
                f"{path} is larger than the limit of {SKILL_BYTES} bytes", path=path, reason="too-large"
            )
        return content

    def _file(self, skill: Skill, path: str) -> File:
        where = os.path.join(skill.dir, path)
        before = _signature(where)
        known = self._known.get(where)
        if known is not None and known[0] == before:
            return known[1]
        content = self._content(skill, path)
        fields: Mapping[str, object] | None = None
        if path == SKILL_FILE:
            parsed = frontmatter.parse(content.data, skill.path)
            fields = parsed.fields if parsed is not None else None
        file = File(digest_of(content.data), content.size, fields)
        if before is not None and before == _signature(where) and settled(before[0], before[1], time.time_ns()):
            self._known[where] = (before, file)
        else:
            self._known.pop(where, None)
        return file


def _signature(path: str) -> _Signature | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def parse_folder(uri: str) -> tuple[str, str]:
    """The skill's name and the folder in a directory uri; the folder is empty for the skill itself."""
    name, path = parse_url(uri.rstrip("/"))
    bare = "/" not in uri.rstrip("/")[len(SCHEME) :]
    return name, "" if bare else check_relative(path)
