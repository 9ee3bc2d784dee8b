"""An archive or a folder becomes a list of plain files, or is refused whole.

Archives are hostile: every name, kind, size and mode is judged while it is read, in memory and within bounds, and
nothing is written before all of it has passed. Only regular files come through; links of any kind do not, wherever they
lead. Tar is read here and not by the standard library, whose reader takes more forms than a skill needs.
"""

import io
import os
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from metier import limits
from metier.errors import InstallError, ResourceError
from metier.files import beneath
from metier.model import SKILL_FILE

_VERSION_CONTROL: Final = frozenset((".git", ".hg", ".svn", ".jj", ".bzr", ".metier"))
"""Folders that tell programs what to do: no skill brings its own."""
_LEFT_OUT: Final = beneath.SKIPPED_FOLDERS | _VERSION_CONTROL
_DESKTOP: Final = ("__MACOSX", ".DS_Store")
"""What macOS adds to archives; it is left out."""
_BLOCK: Final = 512
_HEADERS: Final = limits.INSTALL_FILES * 4 * _BLOCK
"""What the headers of a tar may add to its files."""


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One file of a skill."""

    path: str
    data: bytes
    executable: bool = False


def refuse(reason: str, message: str, hint: str = "") -> NoReturn:
    raise InstallError(message, reason=reason, hint=hint)


def unpack(data: bytes) -> list[ArchiveEntry]:
    """The files of a zip or a tar.gz, known by its content, with SKILL.md at the top."""
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return unwrap(_zip(data))
    if data.startswith(b"\x1f\x8b"):
        return unwrap(_tar(data))
    refuse("not-an-archive", "this is no zip and no tar.gz", "a skill comes as .zip, .skill or .tar.gz")


def unwrap(entries: Sequence[ArchiveEntry]) -> list[ArchiveEntry]:
    """The files without the one folder around them, if there is one."""
    if any(entry.path == SKILL_FILE for entry in entries):
        return list(entries)
    tops = {entry.path.partition("/")[0] for entry in entries}
    top = next(iter(tops), "")
    if len(tops) != 1 or not any(entry.path == f"{top}/{SKILL_FILE}" for entry in entries):
        refuse("no-skill", f"there is no {SKILL_FILE} at the top, or in the one folder there", "one archive, one skill")
    return [replace(entry, path=entry.path.removeprefix(f"{top}/")) for entry in entries]


def write(entries: Iterable[ArchiveEntry], folder: str) -> None:
    """Write checked files into a new folder."""
    os.mkdir(folder)
    for entry in entries:
        file = os.path.join(folder, entry.path)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(file, flags, 0o777 if entry.executable else 0o666), "wb") as stream:
            stream.write(entry.data)


# --- what may come in ---


class _Intake:
    """Judges one member after another and keeps the files. `packed` is the size of the archive they came in."""

    def __init__(self, packed: int | None = None) -> None:
        self.entries: list[ArchiveEntry] = []
        self._members = 0
        self._left = limits.INSTALL_BYTES
        self._ratio = _allowance(packed) if packed is not None else self._left
        self._spelled: dict[str, str] = {}
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def name(self, name: str, *, folder: bool) -> str:
        """The checked path of a member; empty for one that is left out."""
        self._members += 1
        if self._members > limits.INSTALL_FILES:
            refuse("too-many-files", f"it has more than {limits.INSTALL_FILES:,} files and folders")
        if any(unicodedata.category(char)[0] == "C" for char in name):
            refuse("unsafe-name", f"a name has characters that cannot be seen: {name!r}")
        try:
            path = beneath.check_relative(name)
        except ResourceError as error:
            refuse("unsafe-name", f"a name would leave the folder or is none: {name!r} ({error.reason})")
        parts = path.split("/") if path else []
        if len(path.encode()) > limits.INSTALL_NAME_BYTES or any(len(part.encode()) > 255 for part in parts):
            refuse("unsafe-name", f"a name is too long: {name[:60]!r}...")
        if len(parts) > limits.WALK_DEPTH:
            refuse("unsafe-name", f"folders are nested too deeply: {name[:60]!r}...")
        if parts and (parts[0] in _DESKTOP or parts[-1] in _DESKTOP):
            return ""
        for part in parts:
            if part.casefold().rstrip(". ") in _VERSION_CONTROL:
                refuse("unsafe-name", f"a skill must not bring a folder or file {part!r}: {name!r}")
        self._claim(parts, folder)
        return path

    def _claim(self, parts: Sequence[str], folder: bool) -> None:
        """No two members may meet on any disk: equal names, names equal but for case, a file where a folder is."""
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            folded = unicodedata.normalize("NFC", path).casefold()
            known = self._spelled.setdefault(folded, path)
            is_file = depth == len(parts) and not folder
            if known != path or path in self._files or (is_file and path in self._folders):
                refuse("collision", f"two names cannot stand side by side: {known!r} and {path!r}")
            (self._files if is_file else self._folders).add(path)

    def reserve(self, path: str, size: int) -> None:
        """Take a size into account before it is read."""
        self._left -= size
        self._ratio -= size
        if size < 0 or self._left < 0:
            refuse("too-large", f"unpacked it has more than {limits.INSTALL_BYTES:,} bytes (at {path!r})")
        if self._ratio < 0:
            refuse("too-large", f"it unpacks to more than {limits.INSTALL_RATIO} times its size (at {path!r})")

    def add(self, path: str, data: bytes, mode: int) -> None:
        if mode & (stat.S_ISUID | stat.S_ISGID):
            refuse("unsafe-mode", f"a file would run with another user's or group's rights: {path!r}")
        self.entries.append(ArchiveEntry(path, data, bool(mode & 0o111)))


def _allowance(packed: int) -> int:
    return max(packed * limits.INSTALL_RATIO, limits.MIB)


def _kind(mode: int) -> str:
    """What a mode says that is neither a file nor a folder."""
    kinds = {stat.S_IFLNK: "link", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "device")


# --- folders ---


def read_folder(folder: str) -> list[ArchiveEntry]:
    """The files of a folder on this disk, without those of version control and caches."""
    intake = _Intake()
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            found = sorted(os.scandir(os.path.join(folder, below)), key=lambda entry: entry.name)
        except OSError as error:
            refuse("unreadable", f"{os.path.join(folder, below)} cannot be read: {error.strerror}")
        for entry in found:
            name = f"{below}{entry.name}"
            if entry.name in _LEFT_OUT:
                continue
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if intake.name(name, folder=True):
                    pending.append(f"{name}/")
                continue
            if not stat.S_ISREG(status.st_mode):
                refuse("link" if entry.is_symlink() else "not-a-file", f"it has a {_kind(status.st_mode)}: {name!r}")
            path = intake.name(name, folder=False)
            if path:
                intake.reserve(path, status.st_size)
                intake.add(path, _content(folder, path, status.st_size), status.st_mode)
    return intake.entries


def _content(folder: str, path: str, size: int) -> bytes:
    try:
        content = beneath.read_file(folder, path, size)
    except ResourceError as error:
        refuse("unreadable", str(error))
    if content.size != size or len(content.data) != size:
        refuse("unreadable", f"{path} changed while it was read", "try again")
    return content.data


# --- zip ---


def _zip(data: bytes) -> list[ArchiveEntry]:
    if _directory_bytes(data) > limits.INSTALL_DIRECTORY_BYTES:
        refuse("too-many-files", "its table of contents is too large")
    intake = _Intake(len(data))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                _take_zipped(archive, info, intake)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, RuntimeError) as error:
        refuse("damaged", f"the archive cannot be read: {error}")
    return intake.entries


def _directory_bytes(data: bytes) -> int:
    """The size of the table of contents, which is parsed whole: looked up first, as the parser will."""
    end = data.rfind(b"PK\x05\x06", max(0, len(data) - (1 << 16) - 22))
    if end < 0 or end + 22 > len(data):
        refuse("damaged", "the archive cannot be read: it has no table of contents")
    if data[max(0, end - 20) : end].startswith(b"PK\x06\x07"):
        refuse("too-large", "the archive is of the kind for very large ones")
    return int.from_bytes(data[end + 12 : end + 16], "little")


def _take_zipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo, intake: _Intake) -> None:
    name = info.orig_filename
    if not info.flag_bits & 0x800 and not name.isascii():
        try:
            name = name.encode("cp437").decode()  # many writers mean UTF-8 and do not say so
        except UnicodeError:
            refuse("unsafe-name", f"a name is no UTF-8: {name!r}")
    mode = info.external_attr >> 16
    folder = name.endswith("/")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        refuse("link" if stat.S_ISLNK(mode) else "not-a-file", f"it has a {_kind(mode)}: {name!r}")
    if stat.S_IFMT(mode) and stat.S_ISDIR(mode) != folder:
        refuse("not-a-file", f"it is unclear whether this is a folder: {name!r}")
    if info.flag_bits & 0x1:
        refuse("encrypted", f"it is encrypted: {name!r}")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        refuse("damaged", f"it is compressed in a way that is not supported: {name!r}")
    path = intake.name(name, folder=folder)
    if folder or not path:
        return
    intake.reserve(path, info.file_size)
    with archive.open(info) as stream:
        data = stream.read(info.file_size + 1)
    if len(data) != info.file_size:
        refuse("damaged", f"its size is not the one that was announced: {name!r}")
    intake.add(path, data, mode)


# --- tar ---


def _tar(data: bytes) -> list[ArchiveEntry]:
    intake = _Intake(len(data))
    for name, mode, kind, content in _members(_gunzip(data)):
        if kind in b"12":
            refuse("link", f"it has a link: {name!r}")
        if kind not in b"057\x00":
            refuse("not-a-file", f"it has something that is neither file nor folder: {name!r}")
        folder = kind == b"5" or name.endswith("/")
        path = intake.name(name, folder=folder)
        if folder or not path:
            continue
        intake.reserve(path, len(content))
        intake.add(path, content, mode)
    return intake.entries


def _gunzip(data: bytes) -> bytes:
    bound = min(limits.INSTALL_BYTES, _allowance(len(data))) + _HEADERS
    unpacker = zlib.decompressobj(wbits=31)
    try:
        raw = unpacker.decompress(data, bound)
    except zlib.error as error:
        refuse("damaged", f"the archive cannot be read: {error}")
    if unpacker.unconsumed_tail:
        refuse("too-large", f"it unpacks to more than {bound:,} bytes")
    if not unpacker.eof or unpacker.unused_data.strip(b"\x00"):
        refuse("damaged", "the archive is cut off, or something follows it")
    return raw


def _members(raw: bytes) -> Iterator[tuple[str, int, bytes, bytes]]:
    """Name, mode, kind and content of each member. A long name stands in a member of its own before it."""
    position, long_name, headers = 0, b"", 0
    while position + _BLOCK <= len(raw):
        block = raw[position : position + _BLOCK]
        if not any(block):
            return
        headers += 1
        if headers > 3 * limits.INSTALL_FILES:
            refuse("too-many-files", f"it has more than {limits.INSTALL_FILES:,} files and folders")
        checked = sum(block) - sum(block[148:156]) + 8 * 32
        size, mode, kind = _octal(block[124:136]), _octal(block[100:108]), block[156:157]
        start = position + _BLOCK
        if checked != _octal(block[148:156]) or start + size > len(raw):
            refuse("damaged", "the archive cannot be read: a header is wrong, or its file is cut off")
        content = raw[start : start + size]
        position = start + -(-size // _BLOCK) * _BLOCK
        if kind == b"g":
            continue  # about the whole archive: a comment, a time
        if kind in b"xL":
            long_name = _extended(content) or long_name if kind == b"x" else content.rstrip(b"\x00")
            continue
        prefix = block[345:500].partition(b"\x00")[0] if block[257:263] == b"ustar\x00" else b""
        short = block[:100].partition(b"\x00")[0]
        yield _text(long_name or (prefix + b"/" + short if prefix else short)), mode, kind, content
        long_name = b""
    refuse("damaged", "the archive has no end")


def _octal(field: bytes) -> int:
    digits = field.strip(b" \x00")
    if not digits:
        return 0
    if len(digits) > 12 or any(digit not in b"01234567" for digit in digits):
        refuse("damaged", "the archive cannot be read: a number in a header is none, or far too large")
    return int(digits, 8)


def _extended(content: bytes) -> bytes:
    """The path in an extended header; what would change the meaning of a member's data is refused."""
    if len(content) > limits.FRONTMATTER_BYTES:
        refuse("damaged", "a header of the archive is too large")
    position, path = 0, b""
    while position < len(content):
        number = content[position : position + 8].partition(b" ")[0]
        length = int(number) if number.isdigit() else 0
        key, found, value = content[position + len(number) + 1 : position + length].partition(b"=")
        if length <= len(number) or not found or not value.endswith(b"\n"):
            refuse("damaged", "the archive cannot be read: an extended header is wrong")
        if key == b"size" or key.startswith(b"GNU.sparse"):
            refuse("not-a-file", "it has a file with holes, or a very large one")
        if key == b"path":
            path = value[:-1]
        position += length
    return path


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        refuse("unsafe-name", f"a name is no UTF-8: {name!r}")
