"""The edits of a skill, so that each can be compared with another and taken back.

Every skill has a folder of its own in the user's configuration folder, with one file for each content that was saved
or that an edit replaced. The name of a file has the time and the digest; nothing is ever changed in place, so two
servers can write at once. Old contents are deleted when there are too many.
"""

import contextlib
import difflib
import hashlib
import os
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, unquote

from metier.errors import MetierError, ResourceNotFound
from metier.files.beneath import read_regular
from metier.files.digests import digest_of
from metier.files.replace import replace_file
from metier.files.text import from_utf8
from metier.record.writer import system_clock
from metier.values.value import Value

KEPT: Final = 200
"""The contents that are kept of one skill."""
_BYTES: Final = 2 << 20


class Version(Value):
    """One content of one file, and when it was saved."""

    id: str
    path: str
    at_ms: int
    digest: str


class EditHistory:
    """The edits of the skill at a path. `folder` is the user's configuration folder."""

    def __init__(self, folder: str, file: str) -> None:
        key = hashlib.sha256(os.fsencode(os.path.realpath(file))).hexdigest()[:32]
        self._folder = os.path.join(folder, "edits", key)

    def keep(self, path: str, before: str | None, after: str) -> None:
        """Keep what an edit wrote, and what it replaced unless that is the latest content already."""
        latest = next((one for one in self.versions() if one.path == path), None)
        if before is not None and (latest is None or latest.digest != digest_of(before.encode())):
            self._write(path, before, system_clock() - 1)
        self._write(path, after, system_clock())
        for old in self.versions()[KEPT:]:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, old.id))

    def versions(self) -> list[Version]:
        """All contents, the latest first."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        return sorted((one for name in names if (one := _parse(name))), key=lambda one: (one.at_ms, one.id))[::-1]

    def text(self, version: str) -> tuple[Version, str]:
        """A content by its id. Raises `ResourceNotFound` if it is not kept any more."""
        found = next((one for one in self.versions() if one.id == version), None)
        if found is None:
            raise ResourceNotFound("this version")
        try:
            return found, from_utf8(read_regular(os.path.join(self._folder, version), _BYTES))
        except OSError as error:
            raise ResourceNotFound("this version") from error

    def _write(self, path: str, text: str, at_ms: int) -> None:
        data = text.encode()
        name = f"{at_ms:013d}-{digest_of(data).removeprefix('sha256:')}-{quote(path, safe='')}"[:250]
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            replace_file(os.path.join(self._folder, name), data, 0o600)
        except OSError as error:
            raise MetierError(f"the history of edits cannot be written: {error.strerror}") from error


def _parse(name: str) -> Version | None:
    at, _, rest = name.partition("-")
    digest, _, path = rest.partition("-")
    if not (at.isascii() and at.isdigit() and len(digest) == 64):
        return None
    return Version(name, unquote(path), int(at), f"sha256:{digest}")


def diff(before: str, after: str, path: str) -> Iterator[str]:
    """The lines of a unified diff, without the lines that name the files."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm="")
    for number, line in enumerate(lines):
        if number > 1:
            yield line
