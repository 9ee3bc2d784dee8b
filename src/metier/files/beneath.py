"""The one containment check: a file of a skill is opened beneath its folder, or not at all.

A path is judged by its text first, so that each mistake gets its own reason. Then the kernel opens it relative to a
descriptor of the skill's folder and refuses whatever would leave it, so that a link swapped between check and open
changes nothing: there is no moment between the two. Links inside the folder that stay inside it are followed.
"""

import contextlib
import errno
import functools
import os
import re
import stat
import struct
import sys
from collections.abc import Callable, Generator, Iterable
from typing import Final, Literal, NamedTuple

from metier import limits
from metier.errors import BinaryResource, PathEscape, ResourceError, ResourceNotFound
from metier.files.text import from_utf8
from metier.model import SKILL_FILE

Parents = Literal["refuse", "normalise"]

SKIPPED_FOLDERS: Final = frozenset((".git", "__pycache__", "node_modules"))
"""Folders in a skill that are no part of it."""
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_STEP: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_BYTES: Final = 4096
"""Linux takes no longer path in one call; the walk, which makes many, takes no longer one either."""
_DRIVE: Final = re.compile(r"[A-Za-z]:")


def check_relative(path: str, parents: Parents = "refuse") -> str:
    """The path with `/` between its parts and no `.` or `..`, or the reason why it cannot name a file of a skill."""
    if "\x00" in path:
        raise PathEscape(path, "nul", "the path contains a NUL byte")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise ResourceError(f"the path is not text: {path!r}", path=path, reason="encoding") from error
    slashed = path.replace("\\", "/")
    if slashed.startswith("/") or _DRIVE.match(slashed) or path.startswith("~"):
        raise PathEscape("", "absolute", "absolute paths are not allowed; name the file relative to the skill's folder")
    parts: list[str] = []
    for part in slashed.split("/"):
        if part == ".." and (parents == "refuse" or not parts):
            raise PathEscape(path, "traversal", "path traversal (`..`) is not allowed")
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if slashed != path:
        raise PathEscape(path, "backslash", "backslashes are not allowed; put / between folders")
    return "/".join(parts)


# --- opening ---


def open_beneath(folder: int, path: str, shown: str) -> int:
    """A descriptor of the regular file at a checked relative path beneath an open folder.

    Raises `PathEscape` where a link leads outside, `ResourceNotFound` where there is no file, `ResourceError` for what
    is no regular file. Nothing is opened that could block.
    """
    try:
        descriptor = _open(folder, path)
    except FileNotFoundError as error:
        raise ResourceNotFound(shown) from error
    except OSError as error:
        raise _translate(error, shown) from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise ResourceError(f"{shown} is a folder; name a file in it", path=shown, reason="folder")
    raise ResourceError(f"{shown} is not a regular file", path=shown, reason="not-a-file")


def _translate(error: OSError, shown: str) -> ResourceError:
    if error.errno == errno.EXDEV:
        return PathEscape(shown, "link", "a symbolic link leads outside of the skill's folder")
    if error.errno == errno.ELOOP:
        return PathEscape(shown, "loop", "its symbolic links lead in a circle")
    if error.errno == errno.ENOTDIR:
        return ResourceNotFound(shown)
    if error.errno == errno.ENAMETOOLONG:
        return ResourceError("the path is too long", path=shown, reason="too-long")
    if error.errno in (errno.EACCES, errno.EPERM):
        return ResourceError(f"{shown} may not be read: permission denied", path=shown, reason="permission")
    if error.errno in (errno.ENXIO, errno.ENODEV):
        return ResourceError(f"{shown} is not a regular file", path=shown, reason="not-a-file")
    return ResourceError(f"{shown} cannot be read: {error.strerror}", path=shown, reason="io")


def _open(folder: int, path: str) -> int:
    return _openat2(folder, path) if _has_openat2() else _walk(folder, path)


_NR_OPENAT2: Final = 437  # the same number on every architecture
_RESOLVE_BENEATH: Final = 0x08
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_HOW: Final = struct.pack("=QQQ", _FLAGS, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)


@functools.cache
def _syscall() -> tuple[Callable[..., int], Callable[[], int]]:
    """The C library's way to the kernel, and to the reason of a refusal; loaded when a first file is opened."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True).syscall, ctypes.get_errno


def _openat2(folder: int, path: str) -> int:
    encoded = os.fsencode(path) or b"."
    syscall, reason = _syscall()
    for _ in range(128):
        result = syscall(_NR_OPENAT2, folder, encoded, _HOW, len(_HOW))
        if result >= 0:
            return result
        code = reason()
        # EAGAIN: something was renamed while the kernel looked, and it could not be sure; it asks us to try again.
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code))
    raise OSError(errno.EXDEV, "the folder changes too fast to be sure of it")


def _walk(folder: int, path: str) -> int:
    """The same promise without the system call: one component at a time, links resolved by hand, never upwards."""
    if len(os.fsencode(path)) >= _PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "too long")
    if not path:
        return os.open(".", _FLAGS, dir_fd=folder)
    stack = [os.dup(folder)]
    pending = [part for part in reversed(path.split("/")) if part]
    links = 0
    try:
        while pending:
            part = pending.pop()
            if part == ".":
                continue
            if part == "..":
                if len(stack) == 1:
                    raise OSError(errno.EXDEV, "outside")
                os.close(stack.pop())
                continue
            try:
                opened = os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=stack[-1])
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.EMLINK):
                    raise
                links += 1
                if links > 40:
                    raise OSError(errno.ELOOP, "a circle") from error
                try:
                    target = os.readlink(part, dir_fd=stack[-1])
                except OSError as changed:
                    if changed.errno != errno.EINVAL:
                        raise
                    target = part  # it was a link a moment ago; look again
                if target.startswith("/"):
                    raise OSError(errno.EXDEV, "outside") from error
                pending += [piece for piece in reversed(target.split("/")) if piece]
                continue
            stack.append(opened)
            if pending and not stat.S_ISDIR(os.fstat(opened).st_mode):
                raise OSError(errno.ENOTDIR, "not a folder")
        return stack.pop()
    finally:
        for descriptor in stack:
            os.close(descriptor)


@functools.cache
def _has_openat2() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    probe = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(_openat2(probe, "."))
    except OSError:
        return False  # an old kernel, or a filter that does not know the call
    finally:
        os.close(probe)
    return True


# --- reading ---


class Content(NamedTuple):
    """What was read of a file: its first bytes, the size of the whole, and the digest of all of it where asked for."""

    data: bytes
    size: int
    mtime_ns: int


@contextlib.contextmanager
def open_folder(folder: str, *, holds_link: bool = False) -> Generator[int, None, None]:
    """A descriptor of a folder by its real path; where a folder on the way has become a link since, it is refused.

    `holds_link` asks that the SKILL.md in it is a link.
    """
    try:
        descriptor = os.open("/", _STEP)
        try:
            for part in folder.split("/"):
                if part:
                    above, descriptor = descriptor, os.open(part, _STEP, dir_fd=descriptor)
                    os.close(above)
            if holds_link:
                os.readlink(SKILL_FILE, dir_fd=descriptor)
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EINVAL):
            raise PathEscape("", "link", "the skill's folder has become a symbolic link") from error
        raise ResourceNotFound(SKILL_FILE) if error.errno == errno.ENOENT else _translate(error, SKILL_FILE) from error


def read_file(folder: str, path: str, limit: int) -> Content:
    """At most `limit` bytes of a file beneath a folder. The folder itself is opened once, by its real path."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _translate(error, path) if error.errno != errno.ENOENT else ResourceNotFound(path) from error
    try:
        return read_beneath(descriptor, path, limit)
    finally:
        os.close(descriptor)


def read_beneath(folder: int, path: str, limit: int) -> Content:
    """The same beneath a folder that is open already."""
    opened = open_beneath(folder, path, path)
    try:
        status = os.fstat(opened)
        chunks: list[bytes] = []
        left = limit
        while left > 0:
            chunk = os.read(opened, min(left, limits.MIB))
            if not chunk:
                break
            chunks.append(chunk)
            left -= len(chunk)
    except OSError as error:
        raise _translate(error, path) from error
    finally:
        os.close(opened)
    data = b"".join(chunks)
    return Content(data, max(status.st_size, len(data)), status.st_mtime_ns)


def read_regular(file: str, limit: int) -> bytes:
    """A small file of settings, ours or another tool's: regular, within a size, never one that would block.

    Raises `OSError` with the reason; what lies in a project is as hostile as a skill.
    """
    with os.fdopen(os.open(file, _FLAGS), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", file)
        if status.st_size > limit:
            raise OSError(errno.EFBIG, f"it is larger than {limit:,} bytes", file)
        return stream.read(limit)


def decode(data: bytes, path: str, *, partial: bool) -> str:
    """The text, cut before a character that a limit split; what is not text is refused as binary."""
    if b"\x00" in data:
        raise BinaryResource(path, len(data))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if partial and error.reason == "unexpected end of data" and error.end == len(data):
            return data[: error.start].decode()
        raise BinaryResource(path, len(data)) from error


def mime_type(path: str) -> str:
    """`text/markdown` for Markdown; everything else that is served is plain text."""
    return "text/markdown" if path.lower().endswith(".md") else "text/plain"


# --- listing ---


class Listing(NamedTuple):
    """Paths relative to the skill's folder, sorted; cut at a limit when `truncated`."""

    files: tuple[str, ...]
    truncated: bool


def list_files(folder: str, max_files: int, max_bytes: int) -> Listing:
    """The regular files of a skill but its SKILL.md, sorted before any cut, within a number and a total size."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return Listing((), False)
    try:
        return list_beneath(descriptor, max_files, max_bytes)
    finally:
        os.close(descriptor)


def list_beneath(folder: int, max_files: int, max_bytes: int) -> Listing:
    """The same beneath a folder that is open already."""
    sizes: dict[str, int] = {}
    bound = max_files * 50  # what one skill may cost; a folder with more is cut, and says so
    pending = [""]
    overflow = False
    while pending and not overflow:
        below = pending.pop()
        with contextlib.suppress(OSError), _scan(folder, below) as entries:
            for entry in entries:
                path = f"{below}{entry.name}"
                if entry.is_symlink():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED_FOLDERS:
                        pending.append(path + "/")
                elif entry.is_file(follow_symlinks=False) and path != SKILL_FILE:
                    sizes[path] = entry.stat(follow_symlinks=False).st_size
                if len(sizes) + len(pending) > bound:
                    overflow = True
                    break
    chosen: list[str] = []
    total = 0
    for path in sorted(sizes):
        total += sizes[path]
        if len(chosen) == max_files or total > max_bytes:
            return Listing(tuple(chosen), True)
        # A name that is no UTF-8 is listed so that one sees it; it cannot be asked for.
        chosen.append(from_utf8(os.fsencode(path)))
    return Listing(tuple(chosen), overflow)


@contextlib.contextmanager
def _scan(folder: int, below: str) -> Generator[Iterable[os.DirEntry[str]], None, None]:
    """The entries of a folder beneath another, opened as files are: a folder swapped for a link shows nothing."""
    opened = _open(folder, below)
    try:
        with os.scandir(opened) as entries:
            yield entries
    finally:
        os.close(opened)
