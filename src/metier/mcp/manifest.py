"""A skill as the extension describes it: the uri of its SKILL.md, its frontmatter, and every file with digest and size.

A digest is always that of the bytes on disk now. A file is read again unless its times and size say that it cannot have
changed, and times that are too fresh to say so do not count.
"""

import mimetypes
import os
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from metier.catalog import frontmatter
from metier.catalog.scan_cache import settled
from metier.errors import AmbiguousSkill, InvalidSkill, ResourceError, SkillNotFound
from metier.files.beneath import Content, check_relative
from metier.files.digests import digest_of
from metier.files.source import DiskFiles
from metier.files.urls import SCHEME, format_url, parse_url
from metier.mcp import SKILL_BYTES, SKILL_FILES
from metier.mcp.wire import clean
from metier.model import REMOTE, SKILL_FILE, Skill
from metier.session.session import Session

DIRECTORY: Final = "inode/directory"
_MIME: Final = mimetypes.MimeTypes()
"""The table of the standard library alone: the machine's own would give each server other answers."""

_Signature = tuple[int, int, int, int]


class File(NamedTuple):
    """A file of a skill as it was read."""

    digest: str
    size: int
    fields: Mapping[str, Any] | None
    """The frontmatter, where the file is a skill's SKILL.md."""


def served(session: Session) -> dict[str, Skill]:
    """The skills of the catalog by name that a model may see.

    A name that decides nothing has no uri to serve it at, and what is another server's is not served as ours.
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
    """By the file's name; what has no known ending is plain text or mere bytes."""
    if path.lower().endswith(".md"):
        return "text/markdown"
    guessed, encoding = _MIME.guess_type(path, strict=True)
    if guessed is not None and encoding is None:
        return guessed
    return "application/octet-stream" if binary or encoding else "text/plain"


class Manifests:
    """Entries of skills, with the digests of files that have not changed since they were read."""

    def __init__(self) -> None:
        self._disk = DiskFiles()
        self._known: dict[str, tuple[_Signature, File]] = {}

    def entry(self, skill: Skill) -> dict[str, Any] | None:
        """The skill as an entry of the extension; `None` where its SKILL.md is gone, broken or bears another name."""
        try:
            main = self._file(skill, SKILL_FILE)
        except ResourceError:
            return None
        fields = main.fields
        if fields is None or fields.get("name") != skill.name or not isinstance(fields.get("description"), str):
            return None
        uri = format_url(skill.name, SKILL_FILE)
        return {"uri": uri, "frontmatter": clean(fields), "resources": self._resources(skill, uri, main)}

    def _resources(self, skill: Skill, uri: str, main: File) -> list[dict[str, Any]] | str:
        listing = self._disk.listing(skill, SKILL_FILES - 1, SKILL_BYTES - main.size)
        if listing.truncated or main.size > SKILL_BYTES:
            return "dynamic"
        resources: list[dict[str, Any]] = [{"uri": uri, "digest": main.digest, "size": main.size}]
        for path in listing.files:
            try:
                file = self._file(skill, path)
            except ResourceError:
                continue  # what we cannot read, nobody can read through us
            resources.append({"uri": format_url(skill.name, path), "digest": file.digest, "size": file.size})
        return resources

    def files(self, skill: Skill) -> list[str]:
        """The paths of a skill's files, SKILL.md first; none where its folder is gone."""
        try:
            listing = self._disk.listing(skill, SKILL_FILES * 8, SKILL_BYTES * 64)
        except ResourceError:
            return []
        return [SKILL_FILE, *listing.files]

    def children(self, skill: Skill, folder: str) -> dict[str, bool]:
        """What lies directly in a folder of a skill: names, and whether each is a folder. Raises for what is none."""
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

    def content(self, skill: Skill, path: str) -> Content:
        """The bytes of a file beneath the skill's folder; a file that no host would take is refused."""
        if path == SKILL_FILE:
            content = self._disk.skill_file(skill, SKILL_BYTES)
        else:
            content = self._disk.resource(skill, path, SKILL_BYTES)
        if content.size > len(content.data):
            raise ResourceError(f"{path} has more than {SKILL_BYTES} bytes", path=path, reason="too-large")
        return content

    def _file(self, skill: Skill, path: str) -> File:
        where = os.path.join(skill.dir, path)
        before = _signature(where)
        known = self._known.get(where)
        if known is not None and known[0] == before:
            return known[1]
        content = self.content(skill, path)
        fields: Mapping[str, Any] | None = None
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
    """The name and the folder of a directory's uri; the skill's own folder is the empty path."""
    name, path = parse_url(uri.rstrip("/"))
    bare = "/" not in uri.rstrip("/")[len(SCHEME) :]
    return name, "" if bare else check_relative(path)
