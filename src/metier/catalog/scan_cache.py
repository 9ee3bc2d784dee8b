"""What the last scan of the same roots by the same rules saw, kept on disk so that the next one only looks for changes.

A cache is never needed and never trusted: one that is missing, cut short, altered, of another version, of another owner
or on a broken disk is the same as none. Writers replace the file whole, so two of them cannot mix.
"""

import marshal
import os
import re
import struct
import sys
import time
import zlib
from dataclasses import dataclass, field
from typing import Any, Final, cast

from metier import limits
from metier.hosts.profiles import Profile
from metier.model import Root

_MAGIC: Final = b"MTR1"
_HEADER: Final = struct.Struct("<4sIQ")
_LARGEST: Final = 1 << 30
_OURS: Final = re.compile(r"\.?(?:scan|index)-")
_KEEP_SECONDS: Final = 30 * 24 * 3600
_FORMAT: Final = (2, sys.implementation.cache_tag, marshal.version)

FileRow = tuple[Any, ...]
"""mtime_ns, ctime_ns, size, inode, then what the file said; see `discover`."""
FolderRow = tuple[Any, ...]
"""mtime_ns, ctime_ns, inode, then what lay in the folder; see `discover`."""


@dataclass(slots=True)
class Memory:
    """The content of a cache: rows by path, and when they were read."""

    files: dict[str, FileRow] = field(default_factory=dict[str, FileRow])
    folders: dict[str, FolderRow] = field(default_factory=dict[str, FolderRow])
    read_ns: int = 0


def settled(mtime_ns: int, ctime_ns: int, read_ns: int) -> bool:
    """Whether a file that was read then would show a later change in its times.

    A change within one tick of the clock leaves the times as they are; a whole second hints at a coarse file system.
    """
    latest = max(mtime_ns, ctime_ns)
    window = limits.RACY_WINDOW_NS if latest % 1_000_000_000 else limits.COARSE_WINDOW_NS
    return latest + window < read_ns


def location(folder: str, profile: Profile, roots: tuple[Root, ...], kind: str = "scan") -> str:
    """The place of a cache for a set of rules and roots."""
    import hashlib

    key = repr((_FORMAT, profile.fingerprint, roots)).encode("utf-8", "surrogatepass")
    return os.path.join(folder, f"{kind}-{hashlib.sha256(key).hexdigest()[:32]}")


def read(file: str) -> Memory:
    """The rows of the last scan, or none."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return Memory()
    try:
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(stream.fileno())
            # Marshalled data can crash a process, so only our own user's word is taken, and only if it is whole.
            if status.st_uid != os.geteuid() or status.st_size > _LARGEST:
                return Memory()
            data = stream.read()
        magic, checksum, length = _HEADER.unpack_from(data)
        body = memoryview(data)[_HEADER.size :]
        if magic != _MAGIC or length != len(body) or checksum != zlib.crc32(body):
            return Memory()
        files, folders, read_ns = marshal.loads(body)
        if not (isinstance(files, dict) and isinstance(folders, dict) and isinstance(read_ns, int)):
            return Memory()
    except (OSError, ValueError, EOFError, TypeError, struct.error):
        return Memory()
    return Memory(cast("dict[str, FileRow]", files), cast("dict[str, FolderRow]", folders), read_ns)


def write(file: str, memory: Memory) -> bool:
    """Replace the cache; `False` where the disk does not let us, which is no reason to fail."""
    body = marshal.dumps((memory.files, memory.folders, memory.read_ns))
    import tempfile  # costs more than a scan of a small catalog, and only a changed one needs it

    folder = os.path.dirname(file)
    temporary = ""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".scan-", dir=folder)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(_HEADER.pack(_MAGIC, zlib.crc32(body), len(body)))
            stream.write(body)
        os.replace(temporary, file)
    except OSError:
        if temporary:
            _remove(temporary)
        return False
    _forget_old(folder)
    return True


def _forget_old(folder: str) -> None:
    """Drop what no scan has written for a month, leftovers of killed writers included."""
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
            _remove(path)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
