"""Keeps what the last scan of the same roots with the same rules read, so that the next scan only looks for changes.

A cache is never required and never trusted: one that is missing, truncated, altered, of another version, of another
owner or on a broken disk is ignored. Writers replace the whole file, so two of them cannot mix.
"""

import contextlib
import marshal
import os
import re
import struct
import sys
import time
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import BinaryIO, Final, TypeGuard, cast

from msgspec import Struct

from metier import limits
from metier.files.replace import beside
from metier.files.shapes import is_tuple
from metier.hosts.profiles import Profile
from metier.values.skill import STAMP, Fields, Root, Severity, Skill
from metier.values.value import field

_MAGIC: Final = b"MTR2"
_HEADER: Final = struct.Struct("<IQ")
"""Before each part: its checksum and its length."""
_PART: Final = 4096
"""How many files are in one part."""
_LARGEST: Final = 1 << 30
_OURS: Final = re.compile(r"(?:scan|index|\.metier)-")
_KEEP_SECONDS: Final = 30 * 24 * 3600
_FORMAT: Final = (5, sys.implementation.cache_tag, marshal.version)

NoteRow = tuple[str, Severity, str, int, int, str, str]
"""A diagnostic: code, severity, message, line, column, hint, reason."""
PlainRow = tuple[bytes, str, Fields]
"""A SKILL.md with the name of its folder and nothing to say about it: stamp, description and fields. See `stamp`."""
OtherRow = tuple[bytes, str, str, Mapping[str, object], str, str | None, int, tuple[NoteRow, ...]]
"""Any other SKILL.md. The further columns are its status, the target of a link, its flags, and notes.

The status is `skill`, `failed`, or the reason why it was skipped; then the description is the detail of that reason.
"""
FileRow = PlainRow | OtherRow
"""Rows are plain tuples: only those can be marshalled, and a scan of thousands of files makes one for each."""
FileRows = list[FileRow | None]
FolderRow = tuple[int, int, int, tuple[str, ...], tuple[str, ...], str]
"""A folder: mtime_ns, ctime_ns, inode, names of folders, names of links, a file named like SKILL.md in other case."""


_Part = tuple[dict[str, FileRows], dict[str, FolderRow], dict[str, FileRow], int]


class Memory(Struct):
    """The content of a cache: rows, and the time at which they were read."""

    files: dict[str, FileRows] = field(default_factory=dict[str, FileRows])
    """For each of `folders`, the rows of the SKILL.md in the folders that it lists, in their order."""
    folders: dict[str, FolderRow] = field(default_factory=dict[str, FolderRow])
    others: dict[str, FileRow] = field(default_factory=dict[str, FileRow])
    """The rows of files that were not found by a listing, by the paths of their folders."""
    read_ns: int = 0
    roots: tuple[Root, ...] = ()
    skills: Sequence[Skill] = ()
    """What the last scan of this process searched, and what it made of the rows. The disk does not have them."""
    current: bool = False
    """Whether the listings of folders are those of this moment, so that nobody asks the disk whether they changed."""

    @property
    def count(self) -> int:
        """How many files it has rows of."""
        return len(self.others) + sum(len(rows) - rows.count(None) for rows in self.files.values())

    def rows(self, folder: str, names: tuple[str, ...]) -> FileRows:
        """The rows of the files in these folders of a folder, in this order. `None` stands for those it has not."""
        rows = self.files.get(folder, [])
        if not rows or self.folders[folder][3] == names:
            return rows or [None] * len(names)
        known = dict(zip(self.folders[folder][3], rows, strict=True))
        return [known.get(name) for name in names]

    def row(self, folder: str) -> FileRow | None:
        """The row of the file in a folder."""
        parent, _, name = folder.rpartition("/")
        rows = self.files.get(parent or "/")
        if rows:
            names = self.folders[parent or "/"][3]
            at = bisect_left(names, name)
            if at < len(names) and names[at] == name and rows[at] is not None:
                return rows[at]
        return self.others.get(folder)


UNKNOWN: Final = b""
"""The stamp of a file that the next scan must read again."""


def stamp(status: os.stat_result) -> bytes:
    """The stamp of a file. See `STAMP`."""
    return STAMP.pack(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def is_settled(stamped: bytes, read_ns: int) -> bool:
    """`settled` for the stamp of a file."""
    mtime_ns, ctime_ns, _, _ = STAMP.unpack(stamped)
    return settled(mtime_ns, ctime_ns, read_ns)


def unsettled(row: FileRow) -> FileRow:
    """The row with a stamp that no file has."""
    return cast("FileRow", (UNKNOWN, *row[1:]))


def settled(mtime_ns: int, ctime_ns: int, read_ns: int) -> bool:
    """Whether a change after `read_ns` would show in a file's times.

    Two changes within one tick of the clock have the same time. Times in whole seconds suggest a coarse file system.
    """
    latest = max(mtime_ns, ctime_ns)
    window = limits.RACY_WINDOW_NS if latest % 1_000_000_000 else limits.COARSE_WINDOW_NS
    return latest + window < read_ns


def location(folder: str, profile: Profile, roots: tuple[Root, ...], kind: str = "scan") -> str:
    """Return the path of the cache for a profile and its roots."""
    try:
        from _blake2 import blake2b  # `hashlib` loads OpenSSL, which takes longer than the scan of a small catalog
    except ImportError:
        from hashlib import blake2b

    key = repr((_FORMAT, profile.fingerprint, roots)).encode("utf-8", "surrogatepass")
    return os.path.join(folder, f"{kind}-{blake2b(key, digest_size=16).hexdigest()}")


def read(file: str) -> Memory:
    """Return the rows of the last scan, or no rows if the file cannot be used."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return Memory()
    try:
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(stream.fileno())
            # Marshalled data can crash a process, so the file must be our user's own and complete.
            if status.st_uid != os.geteuid() or status.st_size > _LARGEST or stream.read(len(_MAGIC)) != _MAGIC:
                return Memory()
            return _read_parts(stream)
    except (OSError, ValueError, EOFError, TypeError, struct.error):
        return Memory()


def _read_parts(stream: BinaryIO) -> Memory:
    """Read part after part, so that only one of them is in memory twice. Without the last one, there are no rows."""
    memory = Memory()
    while True:
        checksum, length = _HEADER.unpack(stream.read(_HEADER.size))
        part = stream.read(min(length, _LARGEST))
        if len(part) != length or checksum != zlib.crc32(part):
            return Memory()
        content: object = marshal.loads(part)
        if not _is_part(content):
            return Memory()
        files, folders, others, read_ns = content
        for folder, rows in files.items():
            if memory.files.setdefault(folder, rows) is not rows:
                memory.files[folder] += rows
        memory.folders.update(folders)
        memory.others.update(others)
        if read_ns:
            memory.read_ns = read_ns
            return memory if not stream.read(1) else Memory()


def _is_part(value: object) -> TypeGuard[_Part]:
    """Whether the value is what `write` wrote. The rows are not checked one by one: the checksum vouches for them."""
    return is_tuple(value) and [type(part) for part in value] == [dict, dict, dict, int]


def write(file: str, memory: Memory) -> bool:
    """Replace the cache. Returns `False` if the disk does not allow it, which never fails a scan."""
    folder = os.path.dirname(file)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with beside(file) as stream:
            stream.write(_MAGIC)
            for part in _parts(memory):
                body = marshal.dumps(part)
                stream.write(_HEADER.pack(zlib.crc32(body), len(body)))
                stream.write(body)
    except OSError:
        return False
    _forget_old(folder)
    return True


def _parts(memory: Memory) -> Iterator[_Part]:
    """The rows in parts. The last one has the time at which they were read."""
    part: dict[str, FileRows] = {}
    left = _PART
    for folder, rows in memory.files.items():
        unwritten = iter(rows)
        while some := list(islice(unwritten, left)):
            part[folder] = some
            left -= len(some)
            if not left:
                yield part, {}, {}, 0
                part, left = {}, _PART
    yield part, memory.folders, memory.others, memory.read_ns


def _forget_old(folder: str) -> None:
    """Delete caches that no scan has written for a month, and the leftovers of killed writers."""
    horizon = time.time() - _KEEP_SECONDS
    try:
        with os.scandir(folder) as entries:
            old = [e.path for e in entries if _OURS.match(e.name) and e.stat(follow_symlinks=False).st_mtime < horizon]
    except OSError:
        return
    for path in old:
        if os.path.isdir(path):
            import shutil

            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)
