"""Reads an archive or a folder as a list of regular files, or refuses it as a whole.

Archives are untrusted. Every name, kind, size and mode is checked while the archive is read, in memory and within
limits, and nothing is written before all checks have passed. Only regular files are accepted, never links. Tar is
parsed here because the reader of the standard library accepts more forms than a skill needs.
"""

import io
import os
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NoReturn

from metier import limits
from metier.errors import InstallError, ResourceError
from metier.files import beneath
from metier.files.tree import TreeFile
from metier.values.skill import SKILL_FILE
from metier.values.value import replace

_VERSION_CONTROL: Final = frozenset((".git", ".hg", ".svn", ".jj", ".bzr", ".metier"))
"""Folders that configure other programs. A skill must not contain one."""
_LEFT_OUT: Final = beneath.SKIPPED_FOLDERS | _VERSION_CONTROL
"""What a developer's folder has and a skill does not need. It is left out of an install from a folder."""
_DESKTOP: Final = ("__MACOSX", ".DS_Store")
"""Files that macOS adds to archives. They are skipped."""
_BLOCK: Final = 512
_HEADERS: Final = limits.INSTALL_FILES * 4 * _BLOCK
"""How many bytes the headers of a tar may add to its files."""


def refuse(reason: str, message: str, hint: str = "") -> NoReturn:
    raise InstallError(message, reason=reason, hint=hint)


def unpack(data: bytes) -> list[TreeFile]:
    """Return the files of a zip or tar.gz, with SKILL.md at the top. The content decides the format."""
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return unwrap(_zip(data))
    if data.startswith(b"\x1f\x8b"):
        return unwrap(_tar(data))
    refuse("not-an-archive", "this is not a zip or tar.gz archive", "use a .zip, .skill or .tar.gz file")


def unwrap(entries: Sequence[TreeFile]) -> list[TreeFile]:
    """Return the files without the single folder that contains them all, if there is one."""
    if any(entry.path == SKILL_FILE for entry in entries):
        return list(entries)
    tops = {entry.path.partition("/")[0] for entry in entries}
    top = next(iter(tops), "")
    if len(tops) != 1 or not any(entry.path == f"{top}/{SKILL_FILE}" for entry in entries):
        refuse("no-skill", f"there is no {SKILL_FILE} at the top or in a single folder", "an archive has one skill")
    return [replace(entry, path=entry.path.removeprefix(f"{top}/")) for entry in entries]


def write(entries: Sequence[TreeFile], folder: str) -> None:
    """Write checked files to a new folder. Other users can write none of them, whatever the umask is."""
    inner = {entry.path[:cut] for entry in entries for cut, char in enumerate(entry.path) if char == "/"}
    for below in ("", *sorted(inner)):
        os.mkdir(os.path.join(folder, below), 0o755)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for entry in entries:
        mode = 0o755 if entry.executable else 0o644
        with os.fdopen(os.open(os.path.join(folder, entry.path), flags, mode), "wb") as stream:
            stream.write(entry.data)


# --- checks ---


class _Intake:
    """Checks the members of an archive one by one and collects the files. `packed` is the size of the archive."""

    def __init__(self, packed: int | None = None) -> None:
        self.entries: list[TreeFile] = []
        self._members = 0
        self._left = limits.INSTALL_BYTES
        self._ratio = _allowance(packed) if packed is not None else self._left  # a folder is not packed
        self._spelled: dict[str, str] = {}
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def name(self, name: str, *, folder: bool) -> str:
        """Return the checked path of a member, or an empty string for one to skip."""
        self._members += 1
        if self._members > limits.INSTALL_FILES:
            refuse("too-many-files", f"it has more than {limits.INSTALL_FILES:,} files and folders")
        if any(unicodedata.category(char)[0] == "C" for char in name):
            refuse("unsafe-name", f"a name has invisible characters: {name!r}")
        try:
            path = beneath.check_relative(name)
        except ResourceError as error:
            refuse("unsafe-name", f"a name is invalid or leaves the folder: {name!r} ({error.reason})")
        parts = path.split("/") if path else []
        if len(path.encode()) > limits.INSTALL_NAME_BYTES or any(len(part.encode()) > 255 for part in parts):
            refuse("unsafe-name", f"a name is too long: {name[:60]!r}...")
        if len(parts) > limits.WALK_DEPTH:
            refuse("unsafe-name", f"folders are nested too deeply: {name[:60]!r}...")
        if parts and (parts[0] in _DESKTOP or parts[-1] in _DESKTOP):
            return ""
        for part in parts:
            if part.casefold().rstrip(". ") in _VERSION_CONTROL:
                refuse("unsafe-name", f"a skill must not contain {part!r}: {name!r}")
        if beneath.is_bytecode(path):
            refuse("bytecode", f"it has compiled Python, which nobody can read: {name!r}", "remove it from the archive")
        self._claim(parts, folder)
        return path

    def _claim(self, parts: Sequence[str], folder: bool) -> None:
        """Refuse members that collide on some disk: equal names, names that differ in case, a file and a folder."""
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            folded = unicodedata.normalize("NFC", path).casefold()
            known = self._spelled.setdefault(folded, path)
            is_file = depth == len(parts) and not folder
            if known != path or path in self._files or (is_file and path in self._folders):
                refuse("collision", f"two names collide: {known!r} and {path!r}")
            (self._files if is_file else self._folders).add(path)

    def file(self, name: str, mode: int, size: int, read: Callable[[], bytes]) -> None:
        """Check a file, and read it once its size is within the limits."""
        path = self.name(name, folder=False)
        if not path:
            return
        self._left -= size
        self._ratio -= size
        if size < 0 or self._left < 0:
            refuse("too-large", f"unpacked it has more than {limits.INSTALL_BYTES:,} bytes (at {path!r})")
        if self._ratio < 0:
            refuse("too-large", f"it unpacks to more than {limits.INSTALL_RATIO} times its size (at {path!r})")
        if mode & (stat.S_ISUID | stat.S_ISGID):
            refuse("unsafe-mode", f"a file has the setuid or setgid bit: {path!r}")
        data = read()
        if len(data) != size:
            refuse("damaged", f"its size is not the announced one: {name!r}")
        self.entries.append(TreeFile(path, data, bool(mode & 0o111)))


def _allowance(packed: int) -> int:
    return max(packed * limits.INSTALL_RATIO, limits.MIB)


def _kind(mode: int) -> str:
    """The kind of an entry that is neither a file nor a folder."""
    kinds = {stat.S_IFLNK: "link", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "device")


# --- folders ---


def read_folder(folder: str) -> tuple[list[TreeFile], tuple[str, ...]]:
    """Read a local folder without its version control, caches and compiled Python, and return their paths, too."""
    intake = _Intake()
    left_out: list[str] = []
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            found = sorted(os.scandir(os.path.join(folder, below)), key=lambda entry: entry.name)
        except OSError as error:
            refuse("unreadable", f"{os.path.join(folder, below)} cannot be read: {error.strerror}")
        for entry in found:
            name = f"{below}{entry.name}"
            if entry.name in _LEFT_OUT or beneath.is_bytecode(entry.name):
                left_out.append(name)
                continue
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if intake.name(name, folder=True):
                    pending.append(f"{name}/")
                continue
            if not stat.S_ISREG(status.st_mode):
                refuse("link" if entry.is_symlink() else "not-a-file", f"it has a {_kind(status.st_mode)}: {name!r}")
            try:
                size = status.st_size
                intake.file(name, status.st_mode, size, lambda: beneath.read_file(folder, name, size + 1).data)  # noqa: B023
            except ResourceError as error:
                refuse("unreadable", str(error))
    return intake.entries, tuple(left_out)


# --- zip ---


def _zip(data: bytes) -> list[TreeFile]:
    _check_end(data)
    intake = _Intake(len(data))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_gaps(data, archive.infolist(), archive.start_dir)
            for info in archive.infolist():
                _take_zipped(archive, info, intake)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, RuntimeError) as error:
        refuse("damaged", f"the archive cannot be read: {error}")
    return intake.entries


def _check_end(data: bytes) -> None:
    """Check the end record before the parser reads the table of contents: its size, and that nothing surrounds the zip.

    A file with more bytes before or after may be something else as well, such as a second archive, and another program
    would unpack other files from it than the ones that were shown here.
    """
    end = data.rfind(b"PK\x05\x06", max(0, len(data) - (1 << 16) - 22))
    if end < 0 or end + 22 > len(data):
        refuse("damaged", "the archive cannot be read: it has no table of contents")
    if data[max(0, end - 20) : end].startswith(b"PK\x06\x07"):
        refuse("too-large", "the archive is in the zip64 format for very large files")
    size, start, comment = struct.unpack("<IIH", data[end + 12 : end + 22])
    if size > limits.INSTALL_DIRECTORY_BYTES:
        refuse("too-many-files", "its table of contents is too large")
    if end + 22 + comment != len(data):
        refuse("damaged", "the archive has data after its end")
    if start + size != end:
        refuse("damaged", "the archive has data before its beginning or around its table of contents")


def _check_gaps(data: bytes, members: Iterable[zipfile.ZipInfo], end: int) -> None:
    """Refuse bytes that no member accounts for: before the first one, between two, or after the last one."""
    position, gaps = 0, (0,)
    for info in sorted(members, key=lambda info: info.header_offset):
        if info.header_offset - position not in gaps:
            refuse("damaged", f"the archive has data that belongs to no file, before {info.filename!r}")
        header = data[info.header_offset : info.header_offset + 30]
        if len(header) != 30:
            refuse("damaged", f"the archive cannot be read: {info.filename!r} has no header")
        name, extra = struct.unpack("<HH", header[26:30])
        position = info.header_offset + 30 + name + extra + info.compress_size
        gaps = (12, 16) if info.flag_bits & 0x8 else (0,)  # sizes and checksum that follow a streamed member
    if end - position not in gaps:
        refuse("damaged", "the archive has data that belongs to no file, before its table of contents")


def _take_zipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo, intake: _Intake) -> None:
    name = info.orig_filename
    if not info.flag_bits & 0x800 and not name.isascii():
        try:
            name = name.encode("cp437").decode()  # many programs write UTF-8 without setting the flag
        except UnicodeError:
            refuse("unsafe-name", f"a name is not UTF-8: {name!r}")
    mode = info.external_attr >> 16
    folder = name.endswith("/")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        refuse("link" if stat.S_ISLNK(mode) else "not-a-file", f"it has a {_kind(mode)}: {name!r}")
    if stat.S_IFMT(mode) and stat.S_ISDIR(mode) != folder:
        refuse("not-a-file", f"its mode and its name disagree about being a folder: {name!r}")
    if info.flag_bits & 0x1:
        refuse("encrypted", f"it is encrypted: {name!r}")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        refuse("damaged", f"its compression is not supported: {name!r}")
    if folder:
        intake.name(name, folder=True)
        return
    with archive.open(info) as stream:
        intake.file(name, mode, info.file_size, lambda: stream.read(info.file_size + 1))


# --- tar ---


def _tar(data: bytes) -> list[TreeFile]:
    intake = _Intake(len(data))
    for name, mode, kind, content in _members(_gunzip(data)):
        if kind in b"12":
            refuse("link", f"it has a link: {name!r}")
        if kind not in b"057\x00":
            refuse("not-a-file", f"it has an entry that is neither a file nor a folder: {name!r}")
        if kind == b"5" or name.endswith("/"):
            intake.name(name, folder=True)
        else:
            intake.file(name, mode, len(content), lambda: content)  # noqa: B023
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
        refuse("damaged", "the archive is truncated, or has data after its end")
    return raw


def _members(raw: bytes) -> Iterator[tuple[str, int, bytes, bytes]]:
    """Yield the name, mode, kind and content of each member. A long name is in a separate member before it."""
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
            refuse("damaged", "the archive cannot be read: a header is invalid, or its file is truncated")
        content = raw[start : start + size]
        position = start + -(-size // _BLOCK) * _BLOCK
        if kind == b"g":
            continue  # metadata of the whole archive
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
        refuse("damaged", "the archive cannot be read: a number in a header is invalid or too large")
    return int(digits, 8)


def _extended(content: bytes) -> bytes:
    """Return the path in an extended header. Keys that change the meaning of a member's data are refused."""
    if len(content) > limits.FRONTMATTER_BYTES:
        refuse("damaged", "a header of the archive is too large")
    position, path = 0, b""
    while position < len(content):
        number = content[position : position + 8].partition(b" ")[0]
        length = int(number) if number.isdigit() else 0
        key, found, value = content[position + len(number) + 1 : position + length].partition(b"=")
        if length <= len(number) or not found or not value.endswith(b"\n"):
            refuse("damaged", "the archive cannot be read: an extended header is invalid")
        if key == b"size" or key.startswith(b"GNU.sparse"):
            refuse("not-a-file", "it has a sparse or very large file")
        if key == b"path":
            path = value[:-1]
        position += length
    return path


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        refuse("unsafe-name", f"a name is not UTF-8: {name!r}")
