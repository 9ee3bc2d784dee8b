"""A skill that another server offers, as its entry describes it, and the checks that its bytes must pass.

An entry is a promise by a stranger. Nothing of it is believed that cannot be held against it: each file has one address
below the skill's own, a digest and a size; the frontmatter must be that of the file; and what somebody approves is the
digest of the whole set, so that any change asks again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import unquote_to_bytes

from metier.catalog import frontmatter
from metier.errors import MetierError, ResourceError
from metier.files.beneath import check_relative
from metier.files.digests import digest_of, is_digest
from metier.mcp import SKILL_BYTES, SKILL_FILES
from metier.model import SKILL_FILE

_YES: Final = frozenset(("true", "yes", "on", "y"))
_NO: Final = frozenset(("false", "no", "off", "n"))


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as the entry lists it."""

    uri: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Remote:
    """An entry that holds together: the server by our name for it, the skill's address, and its files by path."""

    server: str
    uri: str
    name: str
    frontmatter: Mapping[str, Any] = field(hash=False)
    files: Mapping[str, RemoteFile] = field(hash=False)

    @property
    def digest(self) -> str:
        """Of server, address and every address with its digest: what an approval is of."""
        pairs = sorted((file.uri, file.digest) for file in self.files.values())
        return digest_of(json.dumps([self.server, self.uri, pairs], ensure_ascii=True).encode())

    def file(self, path: str) -> RemoteFile:
        """The listed file at a path. A complete list leaves no room for others."""
        known = self.files.get(path)
        if known is None:
            message = f"{path} is not among the files that the server {self.server} lists for {self.name}"
            raise ResourceError(message, path=path, reason="unlisted")
        return known

    def check(self, path: str, data: bytes) -> None:
        """Raise unless these are the bytes that the entry promised; for SKILL.md, its frontmatter, too."""
        promised = self.file(path)
        if len(data) != promised.size:
            message = f"{path} of {self.name} has {len(data)} bytes, its server {self.server} listed {promised.size}"
            raise ResourceError(message, path=path, reason="size")
        if digest_of(data) != promised.digest:
            message = f"{path} of {self.name} is not the file that its server {self.server} listed: the digest differs"
            raise ResourceError(message, path=path, reason="digest")
        if path == SKILL_FILE:
            parsed = frontmatter.parse(data, self.uri)
            if parsed is None or parsed.fields is None or not same(parsed.fields, self.frontmatter):
                message = f"the frontmatter of {self.name} is not the one that its server {self.server} listed"
                raise ResourceError(message, path=path, reason="frontmatter")


class Refused(MetierError):
    """An entry that is not taken; the message says why."""


def parse(server: str, given: object) -> Remote:
    """An entry of `skills/list` or `skills/get`, or `Refused` with the first thing wrong with it."""
    entry = table(given)
    uri, fields, listed = entry.get("uri"), entry.get("frontmatter"), entry.get("resources")
    if not isinstance(uri, str) or not uri.endswith(f"/{SKILL_FILE}") or "://" not in uri:
        raise Refused("an entry has no uri of a SKILL.md")
    if not isinstance(fields, Mapping):
        raise Refused("it comes without its frontmatter")
    known = cast("Mapping[str, Any]", fields)
    name = known.get("name")
    base = uri.removesuffix(f"/{SKILL_FILE}")
    if not isinstance(name, str) or _decoded(base.rpartition("/")[2]) != name:
        raise Refused("its name is not the one in its uri")
    if listed == "dynamic":
        raise Refused("its content is dynamic: there are no digests to hold it against")
    if not isinstance(listed, list):
        raise Refused("it comes without the list of its files")
    files = _files(base, cast("Sequence[Any]", listed))
    if SKILL_FILE not in files:
        raise Refused("its list of files lacks its SKILL.md")
    return Remote(server, uri, name, dict(known), files)


def _files(base: str, listed: Sequence[Any]) -> dict[str, RemoteFile]:
    if len(listed) > SKILL_FILES:
        raise Refused(f"it has {len(listed)} files, more than {SKILL_FILES}")
    files: dict[str, RemoteFile] = {}
    for item in listed:
        one = table(item)
        uri, digest, size = one.get("uri"), one.get("digest"), one.get("size")
        if not isinstance(uri, str) or not uri.startswith(f"{base}/"):
            raise Refused(f"it lists {uri!r}, which is not one of its files")
        if not is_digest(digest):
            raise Refused(f"{uri} has no sha256 digest")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise Refused(f"{uri} has no size")
        path = _decoded(uri[len(base) + 1 :])
        try:
            checked = check_relative(path)
        except ResourceError as error:
            raise Refused(f"{uri}: {error}") from error
        if checked != path or not path:
            raise Refused(f"{uri} is not a plain path")
        if path in files:
            raise Refused(f"it lists {uri} twice")
        files[path] = RemoteFile(uri, digest, size)
    total = sum(file.size for file in files.values())
    if total > SKILL_BYTES:
        raise Refused(f"it has {total} bytes, more than {SKILL_BYTES}")
    return files


def table(given: object) -> Mapping[str, Any]:
    """What is no table has no keys."""
    return cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}


def _decoded(text: str) -> str:
    """Once, and never what is no text."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise Refused(f"{text!r} does not decode to UTF-8") from error


def same(ours: Any, theirs: Any) -> bool:
    """Whether two readings of one frontmatter agree. Parsers differ on numbers, flags and dates, where we keep text."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        one, other = cast("Mapping[str, Any]", ours), cast("Mapping[str, Any]", theirs)
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(ours, list) and isinstance(theirs, list):
        items, others = cast("list[Any]", ours), cast("list[Any]", theirs)
        return len(items) == len(others) and all(same(a, b) for a, b in zip(items, others, strict=True))
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs or (isinstance(ours, str) and ours.lower() in (_YES if theirs else _NO))
    if isinstance(ours, str) and isinstance(theirs, (int, float)):
        return _number(ours) == theirs
    if isinstance(ours, str) and isinstance(theirs, str):
        return ours == theirs or _moment(ours) == _moment(theirs) != ""
    return bool(ours == theirs)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _moment(text: str) -> str:
    """A date, however its midnight is written; empty for any other text."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:T00:00:00(?:\.0+)?(?:Z|\+00:00)?)?", text)
    return found[1] if found else ""
