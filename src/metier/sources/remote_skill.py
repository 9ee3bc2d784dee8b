"""A skill of another server, as its entry describes it, and the checks that its bytes must pass.

An entry is untrusted. Each file has an address below the skill's own, a digest and a size, and the listed frontmatter
must match the file. An approval covers the digest of the whole set of files, so any change requires a new approval.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from metier.catalog import frontmatter
from metier.errors import MetierError, ResourceError
from metier.files.beneath import check_relative, is_bytecode
from metier.files.digests import digest_of, is_digest
from metier.files.json_text import infinite_in
from metier.files.shapes import as_table, is_list, is_object
from metier.sources.mcp_protocol import SKILL_BYTES, SKILL_FILES
from metier.values.skill import SKILL_FILE
from metier.values.value import Value

_YES: Final = frozenset(("true", "yes", "on", "y"))
_NO: Final = frozenset(("false", "no", "off", "n"))
_MIDNIGHT: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:T00:00:00(?:\.0+)?(?:Z|\+00:00)?)?")


class RemoteFile(NamedTuple):
    """A file as the entry lists it."""

    uri: str
    digest: str
    size: int


class RemoteSkill(Value):
    """A checked entry: the configured name of its server, the address of its SKILL.md, and its files by path."""

    unhashed = ("frontmatter", "files")

    server: str
    uri: str
    name: str
    frontmatter: Mapping[str, object]
    files: Mapping[str, RemoteFile]

    @property
    def digest(self) -> str:
        """The digest that an approval covers: of the server, the address, and the address and digest of every file."""
        pairs = sorted((file.uri, file.digest) for file in self.files.values())
        return digest_of(json.dumps([self.server, self.uri, pairs], ensure_ascii=True).encode())

    def file(self, path: str) -> RemoteFile:
        """The listed file at a path. The list is complete, so any other path is refused."""
        known = self.files.get(path)
        if known is None:
            message = f"{path} is not among the files that the server {self.server} lists for {self.name}"
            raise ResourceError(message, path=path, reason="unlisted")
        return known

    def check(self, path: str, data: bytes) -> None:
        """Raise unless these bytes match the entry. For SKILL.md, the frontmatter must match as well."""
        listed = self.file(path)
        if len(data) != listed.size:
            message = f"{path} of {self.name} has {len(data)} bytes, but its server {self.server} listed {listed.size}"
            raise ResourceError(message, path=path, reason="size")
        if digest_of(data) != listed.digest:
            message = f"the digest of {path} of {self.name} is not the one that its server {self.server} listed"
            raise ResourceError(message, path=path, reason="digest")
        if path == SKILL_FILE:
            parsed = frontmatter.parse(data, self.uri)
            if parsed is None or parsed.fields is None or not same_value(parsed.fields, self.frontmatter):
                message = f"the frontmatter of {self.name} is not the one that its server {self.server} listed"
                raise ResourceError(message, path=path, reason="frontmatter")


class RemoteSkillRefused(MetierError):
    """An invalid entry. The message says what is wrong."""


def parse(server: str, given: object) -> RemoteSkill:
    """Check an entry of `skills/list` or `skills/get`. Raises `RemoteSkillRefused` for the first problem."""
    entry = as_table(given)
    uri, fields, listed = entry.get("uri"), entry.get("frontmatter"), entry.get("resources")
    if not isinstance(uri, str) or not uri.endswith(f"/{SKILL_FILE}") or "://" not in uri:
        raise RemoteSkillRefused("the entry has no uri of a SKILL.md")
    if not is_object(fields):
        raise RemoteSkillRefused("the entry has no frontmatter")
    if infinite_in(fields):
        raise RemoteSkillRefused("the frontmatter has NaN or Infinity, which JSON does not have")
    name = fields.get("name")
    base = uri.removesuffix(f"/{SKILL_FILE}")
    if not isinstance(name, str) or _decoded(base.rpartition("/")[2]) != name:
        raise RemoteSkillRefused("the name in the frontmatter is not the one in the uri")
    if listed == "dynamic":
        raise RemoteSkillRefused("the content is dynamic, so there are no digests to check it against")
    if not is_list(listed):
        raise RemoteSkillRefused("the entry has no list of files")
    files = _files(base, listed)
    if SKILL_FILE not in files:
        raise RemoteSkillRefused("the list of files has no SKILL.md")
    return RemoteSkill(server, uri, name, dict(fields), files)


def _files(base: str, listed: Sequence[object]) -> dict[str, RemoteFile]:
    if len(listed) > SKILL_FILES:
        raise RemoteSkillRefused(f"the skill has {len(listed)} files, more than the limit of {SKILL_FILES}")
    files: dict[str, RemoteFile] = {}
    for item in listed:
        path, file = _file(base, as_table(item))
        if path in files:
            raise RemoteSkillRefused(f"{file.uri} is listed twice")
        files[path] = file
    total = sum(file.size for file in files.values())
    if total > SKILL_BYTES:
        raise RemoteSkillRefused(f"the skill has {total} bytes, more than the limit of {SKILL_BYTES}")
    return files


def _file(base: str, listed: Mapping[str, object]) -> tuple[str, RemoteFile]:
    """A listed file and its path, relative to the skill's folder."""
    uri, digest, size = listed.get("uri"), listed.get("digest"), listed.get("size")
    if not isinstance(uri, str) or not uri.startswith(f"{base}/"):
        raise RemoteSkillRefused(f"{uri!r} is not a file of the skill")
    if not is_digest(digest):
        raise RemoteSkillRefused(f"{uri} has no sha256 digest")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise RemoteSkillRefused(f"{uri} has no valid size")
    path = _decoded(uri[len(base) + 1 :])
    try:
        checked = check_relative(path)
    except ResourceError as error:
        raise RemoteSkillRefused(f"{uri}: {error}") from error
    if checked != path or not path:
        raise RemoteSkillRefused(f"{uri} is not a plain path")
    if is_bytecode(path):
        raise RemoteSkillRefused(f"{uri} is compiled Python, which nobody can read")
    return path, RemoteFile(uri, digest, size)


def _decoded(text: str) -> str:
    """Text with its percent escapes decoded once."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise RemoteSkillRefused(f"{text!r} does not decode to UTF-8") from error


def same_value(ours: object, theirs: object) -> bool:
    """Whether two parsers read the same frontmatter. Ours keeps numbers, flags and dates as text; theirs may not."""
    if is_object(ours) and is_object(theirs):
        return ours.keys() == theirs.keys() and all(same_value(ours[key], theirs[key]) for key in ours)
    if is_list(ours) and is_list(theirs):
        return len(ours) == len(theirs) and all(same_value(a, b) for a, b in zip(ours, theirs, strict=True))
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs or (isinstance(ours, str) and ours.lower() in (_YES if theirs else _NO))
    if isinstance(ours, str) and isinstance(theirs, (int, float)):
        return _number(ours) == theirs
    if isinstance(ours, str) and isinstance(theirs, str):
        return ours == theirs or _date(ours) == _date(theirs) != ""
    return bool(ours == theirs)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _date(text: str) -> str:
    """The date in a text that is a date or its midnight; empty for any other text."""
    found = _MIDNIGHT.fullmatch(text)
    return found[1] if found else ""
