"""Opens, reads and lists the files of a skill, always beneath the skill's folder.

This is the only containment check. `check_relative` first looks at the path as text, so that each mistake gets its own
reason. Then the kernel opens the path relative to a descriptor of the folder and refuses to leave it: check and open
are one step, so swapping a link between them has no effect. Links that stay inside the folder are followed.
"""

import contextlib
import errno
import functools
import os
import re
import stat
import struct
import sys
from collections.abc import Callable, Collection, Generator, Mapping
from typing import Final, Literal, NamedTuple

from metier import limits
from metier.errors import BinaryResource, PathEscape, ResourceError, ResourceNotFound
from metier.files.text import from_utf8
from metier.values.skill import SKILL_FILE

Parents = Literal["refuse", "normalise"]

SKIPPED_FOLDERS: Final = frozenset((".git", "__pycache__", "node_modules"))
"""Folders inside a skill that do not belong to the skill."""
_BYTECODE: Final = (".pyc", ".pyo")
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
OPEN: Final = _FLAGS | os.O_NOFOLLOW
"""How an untrusted file or folder is opened for reading: never through a link, and without waiting for a pipe."""
_STEP: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_BYTES: Final = 4096
"""The longest path that Linux accepts in one call. The walk makes many calls and keeps the same limit."""
_LINKS: Final = 40
"""The number of links that Linux follows in one path."""
_DRIVE: Final = r"[A-Za-z]:"


def is_bytecode(path: str) -> bool:
    """Whether a path names compiled Python. Nobody can read it, and Python prefers it to the source beside it."""
    folded = path.casefold()
    return folded.endswith(_BYTECODE) or "__pycache__" in folded.split("/")


def check_relative(path: str, parents: Parents = "refuse") -> str:
    """Return the path without `.`, `..` and doubled slashes.

    Raises `PathEscape` or `ResourceError` for a path that cannot name a file of a skill.
    """
    if "\x00" in path:
        raise PathEscape(path, "nul", "the path contains a NUL byte")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise ResourceError(f"the path is not valid text: {path!r}", path=path, reason="encoding") from error
    slashed = path.replace("\\", "/")
    if slashed.startswith("/") or re.match(_DRIVE, slashed) or path.startswith("~"):
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
    """Open the regular file at a checked relative path beneath an open folder, and return its descriptor.

    Raises `PathEscape` if a link leads outside, `ResourceNotFound` if there is no file, and `ResourceError` if it is
    not a regular file. Opening never blocks. `shown` is the path that errors name.
    """
    return _open_regular(folder, path, shown)[0]


def _open_regular(folder: int, path: str, shown: str) -> tuple[int, os.stat_result]:
    """What `open_beneath` does, with the status of the file."""
    try:
        descriptor = _open(folder, path)
    except FileNotFoundError as error:
        raise ResourceNotFound(shown) from error
    except OSError as error:
        raise _translate(error, shown) from error
    status = os.fstat(descriptor)
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return descriptor, status
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise ResourceError(f"{shown} is a folder; name a file in it", path=shown, reason="folder")
    raise ResourceError(f"{shown} is not a regular file", path=shown, reason="not-a-file")


def _translate(error: OSError, shown: str) -> ResourceError:
    if error.errno == errno.EXDEV:
        return PathEscape(shown, "link", "a symbolic link leads outside of the skill's folder")
    if error.errno == errno.ELOOP:
        return PathEscape(shown, "loop", "its symbolic links form a loop")
    if error.errno == errno.ENOTDIR:
        return ResourceNotFound(shown)
    if error.errno == errno.ENAMETOOLONG:
        return ResourceError("the path is too long", path=shown, reason="too-long")
    if error.errno in (errno.EACCES, errno.EPERM):
        return ResourceError(f"{shown} cannot be read: permission denied", path=shown, reason="permission")
    if error.errno in (errno.ENXIO, errno.ENODEV):
        return ResourceError(f"{shown} is not a regular file", path=shown, reason="not-a-file")
    return ResourceError(f"{shown} cannot be read: {error.strerror}", path=shown, reason="io")


def location(folder: int, opened: int) -> str:
    """The path of an open file beneath an open folder, without links. Empty if the system does not say it."""
    above, path = _path_of(folder), _path_of(opened)
    inside = f"{above.rstrip('/')}/"
    return path.removeprefix(inside) if above and path.startswith(inside) else ""


def _path_of(descriptor: int) -> str:
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def check_owner(folder: int, opened: int, shown: str, inner: Collection[str]) -> None:
    """Raise `ResourceError` if an open file is the folder's SKILL.md by another name, or belongs to an inner skill.

    SKILL.md has rules of its own, which a link to it must not go around.
    """
    with contextlib.suppress(OSError):
        if shown != SKILL_FILE and os.path.samestat(os.fstat(opened), os.stat(SKILL_FILE, dir_fd=folder)):
            message = f"{shown} is {SKILL_FILE} by another name; read {SKILL_FILE} itself"
            raise ResourceError(message, path=shown, reason="other-name")
    if inner:
        where = f"{location(folder, opened) or shown}/"
        other = next((one for one in inner if where.startswith(f"{one}/")), None)
        if other is not None:
            raise ResourceError(f"{shown} belongs to another skill, {other}", path=shown, reason="other-skill")


def _open(folder: int, path: str) -> int:
    return _openat2(folder, path) if _has_openat2() else _walk(folder, path)


_NR_OPENAT2: Final = 437  # the same number on every architecture
_RESOLVE_BENEATH: Final = 0x08
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_HOW: Final = struct.pack("=QQQ", _FLAGS, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
_REAL: Final = struct.pack("=QQQ", _STEP, 0, _RESOLVE_NO_SYMLINKS)


@functools.cache
def _syscall() -> tuple[Callable[..., int], Callable[[], int]]:
    """The C library's `syscall` and a function that returns its `errno`; loaded when the first file is opened."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True).syscall, ctypes.get_errno


def _openat2(folder: int, path: str, how: bytes = _HOW) -> int:
    encoded = os.fsencode(path) or b"."
    syscall, last_errno = _syscall()
    for _ in range(128):
        result = syscall(_NR_OPENAT2, folder, encoded, how, len(how))
        if result >= 0:
            return result
        code = last_errno()
        # EAGAIN: something was renamed during the lookup, so the kernel cannot rule out an escape. It asks for a retry.
        if code not in (errno.EAGAIN, errno.EINTR):
            raise _os_error(code)
    raise OSError(errno.EXDEV, "the folder keeps changing")


def _os_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _walk(folder: int, path: str) -> int:
    """Do what `openat2` does where the kernel lacks it: open one component at a time and never leave the folder."""
    if len(os.fsencode(path)) >= _PATH_BYTES:
        raise _os_error(errno.ENAMETOOLONG)
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
                    raise _os_error(errno.EXDEV)
                os.close(stack.pop())
                continue
            try:
                opened = os.open(part, OPEN, dir_fd=stack[-1])
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.EMLINK):
                    raise
                links += 1
                if links > _LINKS:
                    raise _os_error(errno.ELOOP) from error
                pending += reversed(_link_parts(part, stack[-1]))
                continue
            stack.append(opened)
            if pending and not stat.S_ISDIR(os.fstat(opened).st_mode):
                raise _os_error(errno.ENOTDIR)
        return stack.pop()
    finally:
        for descriptor in stack:
            os.close(descriptor)


def _link_parts(name: str, folder: int) -> list[str]:
    """The components of the path that a link points to. Raises `OSError` for an absolute one."""
    try:
        target = os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return [name]  # it was replaced by something else since it was opened: open it again
    if target.startswith("/"):
        raise _os_error(errno.EXDEV)
    return [part for part in target.split("/") if part]


@functools.cache
def _has_openat2() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    probe = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(_openat2(probe, "."))
    except OSError:
        return False  # an old kernel, or a system call filter that does not know it
    finally:
        os.close(probe)
    return True


def _open_real(folder: str) -> int:
    """Open a folder by an absolute path without any link in it: in one step, or one component at a time."""
    if _has_openat2() and len(os.fsencode(folder)) < _PATH_BYTES:
        return _openat2(-1, folder, _REAL)
    descriptor = os.open("/", _STEP)
    try:
        for part in folder.split("/"):
            if part:
                above, descriptor = descriptor, os.open(part, _STEP, dir_fd=descriptor)
                os.close(above)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


# --- reading ---


class Content(NamedTuple):
    """What was read of a file. More than `limit` bytes are cut off, so `data` may be shorter than `size`."""

    data: bytes
    """The first bytes of the file."""
    size: int
    """The size of the whole file in bytes."""
    mtime_ns: int
    real: str = ""
    """Where a link led, as a path beneath the skill's folder. Empty where the path has no link."""


@contextlib.contextmanager
def open_folder(folder: str) -> Generator[int, None, None]:
    """Open a folder by its real path. Raises `PathEscape` if a component of that path has become a link since."""
    try:
        descriptor = open_real_folder(folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _folder_error(error) from error


def open_real_folder(folder: str, *, holds_link: bool = False) -> int:
    """What `open_folder` opens, for a caller that closes the descriptor itself.

    With `holds_link`, the SKILL.md in the folder must itself be a link.
    """
    try:
        descriptor = _open_real(folder)
        if not holds_link:
            return descriptor
        try:
            os.readlink(SKILL_FILE, dir_fd=descriptor)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, FileNotFoundError):
                raise ResourceNotFound(SKILL_FILE) from error
            raise
        return descriptor
    except OSError as error:
        raise _folder_error(error) from error


def _folder_error(error: OSError) -> ResourceError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EINVAL):
        return PathEscape("", "link", "the skill's folder has become a symbolic link")
    if error.errno != errno.ENOENT:
        return _translate(error, SKILL_FILE)
    return ResourceError("the skill was removed: its folder is gone", path=SKILL_FILE, reason="removed")


def read_file(folder: str, path: str, limit: int) -> Content:
    """Read at most `limit` bytes of a file beneath a folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _translate(error, path) if error.errno != errno.ENOENT else ResourceNotFound(path) from error
    try:
        return read_beneath(descriptor, path, limit)
    finally:
        os.close(descriptor)


def read_beneath(folder: int, path: str, limit: int) -> Content:
    """Read at most `limit` bytes of a file beneath an open folder."""
    opened, status = _open_regular(folder, path, path)
    try:
        return read_opened(opened, path, limit, status)
    finally:
        os.close(opened)


def read_opened(opened: int, path: str, limit: int, status: os.stat_result | None = None) -> Content:
    """Read at most `limit` bytes of an open file. `path` is the path that errors name, `status` that of the file."""
    try:
        status = status or os.fstat(opened)
        # Room for one byte more shows whether the file grows. Room for much more would cost more than the read.
        data = os.read(opened, min(limit, limits.MIB, status.st_size + 1)) if limit > 0 else b""
        if 0 < len(data) < limit and len(data) != status.st_size:  # it is large, or grows
            chunks, left = [data], limit - len(data)
            while left > 0 and (chunk := os.read(opened, min(left, limits.MIB))):
                chunks.append(chunk)
                left -= len(chunk)
            data = b"".join(chunks)
    except OSError as error:
        raise _translate(error, path) from error
    return Content(data, max(status.st_size, len(data)), status.st_mtime_ns)


def read_regular(file: str, limit: int, *, start: bool = False) -> bytes:
    """Read a small file, such as settings or a registry, of at most `limit` bytes, or the `start` of a larger one.

    Raises `OSError` if it is larger or not a regular file: a project is as untrusted as a skill. Opening never blocks.
    """
    with os.fdopen(os.open(file, _FLAGS), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", file)
        if status.st_size > limit and not start:
            raise OSError(errno.EFBIG, f"it is larger than {limit:,} bytes", file)
        return stream.read(limit)


def decode(data: bytes, path: str, *, partial: bool) -> str:
    """Decode the bytes of a file as UTF-8. Raises `BinaryResource` if they are not text.

    With `partial`, a character that a limit cut in two at the end is dropped.
    """
    if b"\x00" in data:
        raise BinaryResource(path, len(data))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if partial and error.reason == "unexpected end of data" and error.end == len(data):
            return data[: error.start].decode()
        raise BinaryResource(path, len(data)) from error


def mime_type(path: str) -> str:
    """`text/markdown` for `.md`, `text/plain` for everything else, such as `.MD`."""
    return "text/markdown" if path.endswith(".md") else "text/plain"


# --- listing ---


class Listing(NamedTuple):
    """Paths of files relative to the skill's folder, sorted. `truncated` says that a limit left some out."""

    files: tuple[str, ...]
    truncated: bool
    left_out: int = 0
    """How many files a limit left out. 0 in a truncated list means that they were not counted."""


def list_files(folder: str, max_files: int, max_bytes: int, inner: Collection[str] = ()) -> Listing:
    """List the regular files of a skill except its SKILL.md, up to a number of files and a total size."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return Listing((), False)
    try:
        return list_beneath(descriptor, max_files, max_bytes, inner)
    finally:
        os.close(descriptor)


def list_beneath(folder: int, max_files: int, max_bytes: int, inner: Collection[str] = ()) -> Listing:
    """List the files of a skill beneath its open folder, without the folders of `inner` skills.

    See `within_limits` for which ones.
    """
    sizes: dict[str, int] = {}
    bound = max_files * 50  # how many entries are looked at; a folder with more is truncated
    pending = [""]
    overflow = False
    while pending and not overflow:
        below = pending.pop()
        # Each folder is opened as files are, so a swapped link lists nothing.
        with contextlib.suppress(OSError):
            opened = _open(folder, below)
            try:
                overflow = _scan(opened, below, inner, sizes, pending, bound)
            finally:
                os.close(opened)
    listed = within_limits(sizes, max_files, max_bytes)
    files = listed.files
    if not "".join(files).isascii():
        # A name that is not UTF-8 is listed so that people see it, but it cannot be requested.
        files = tuple(path if path.isascii() else from_utf8(os.fsencode(path)) for path in files)
        listed = listed._replace(files=files)
    return Listing(files, True) if overflow else listed


def within_limits(sizes: Mapping[str, int], max_files: int, max_bytes: int) -> Listing:
    """List files, given their sizes by path, up to a number of files and a total size.

    Files are taken in the order of their paths. One that does not fit into what is left of the total size is left out,
    and those after it are not: a large asset hides no other file.
    """
    if len(sizes) <= max_files and sum(sizes.values()) <= max_bytes:
        return Listing(tuple(sorted(sizes)), False)
    chosen: list[str] = []
    total = 0
    for path in sorted(sizes):
        if len(chosen) == max_files:
            break
        if total + sizes[path] <= max_bytes:
            total += sizes[path]
            chosen.append(path)
    left_out = len(sizes) - len(chosen)
    return Listing(tuple(chosen), left_out > 0, left_out)


def _scan(
    opened: int, below: str, inner: Collection[str], sizes: dict[str, int], pending: list[str], bound: int
) -> bool:
    """Add the files of one open folder to `sizes` and its folders to `pending`, until there are more than `bound`.

    Return whether there are more.
    """
    left = bound - len(sizes) - len(pending)
    with os.scandir(opened) as entries:
        for entry in entries:
            path = below + entry.name
            if entry.is_file(follow_symlinks=False):
                if path == SKILL_FILE:
                    continue
                sizes[path] = entry.stat(follow_symlinks=False).st_size
            elif entry.name not in SKIPPED_FOLDERS and path not in inner and entry.is_dir(follow_symlinks=False):
                pending.append(path + "/")
            else:
                continue
            left -= 1
            if left < 0:
                return True
    return False
