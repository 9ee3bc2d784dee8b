"""Archives that attack an unpacker, each with the reason for its refusal."""

import gzip
import io
import random
import stat
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Mapping

SKILL = b"---\nname: probe\ndescription: A skill for a test.\n---\n# Probe\n"
ZipMember = tuple[str, bytes] | tuple[str, bytes, int]
TarMember = tuple[str, bytes] | tuple[str, bytes, Mapping[str, object]]


def zipped(*members: ZipMember, skill: bytes | None = SKILL, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip with a valid SKILL.md and these members: name, content, mode."""
    stream = io.BytesIO()
    good: list[ZipMember] = [("SKILL.md", skill)] if skill is not None else []
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as archive:
        warnings.simplefilter("ignore")  # duplicate names
        for name, data, *mode in (*good, *members):
            info = zipfile.ZipInfo("x")
            info.filename, info.create_system, info.compress_type = name, 3, method
            info.external_attr = (mode[0] if mode else stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    return stream.getvalue()


def tarred(*members: TarMember, skill: bytes | None = SKILL, form: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar.gz with a valid SKILL.md and these members: name, content and other fields of the header."""
    return gzip.compress(plain_tar(*members, skill=skill, form=form))


def plain_tar(*members: TarMember, skill: bytes | None = SKILL, form: int = tarfile.GNU_FORMAT) -> bytes:
    stream = io.BytesIO()
    good: list[TarMember] = [("SKILL.md", skill)] if skill is not None else []
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        for name, data, *more in (*good, *members):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            for key, value in (more[0] if more else {}).items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def patched(data: bytes, old: bytes, new: bytes) -> bytes:
    assert old in data
    return data.replace(old, new)


def header(name: bytes, size: bytes, kind: bytes = b"0", mode: bytes = b"0000644\x00") -> bytes:
    """A tar header with the given fields and a valid checksum."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = mode
    block[124:136] = size
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\x00 " % sum(block)
    return bytes(block)


def rightly_summed(data: bytearray) -> bytearray:
    """A tar whose headers have valid checksums, so that damage passes the first check."""
    for start in range(0, len(data) - 511, 512):
        if bytes(data[start + 257 : start + 262]) == b"ustar":
            data[start + 148 : start + 156] = b" " * 8
            data[start + 148 : start + 156] = b"%06o\x00 " % sum(data[start : start + 512])
    return data


def raw_tar(*blocks: bytes) -> bytes:
    good = header(b"SKILL.md", b"%011o\x00" % len(SKILL)) + SKILL.ljust(512, b"\x00")
    return gzip.compress(good + b"".join(blocks) + bytes(1024))


def extended(**fields: str) -> bytes:
    """A tar.gz with a member that has these keys in its extended header."""
    return tarred(("a", b"", {"pax_headers": fields}), form=tarfile.PAX_FORMAT)


def endless_header() -> bytes:
    """An extended header with a record of length zero, on which a careless reader loops forever."""
    return raw_tar(header(b"a", b"%011o\x00" % 512, b"x"), b"0 path=x\n".ljust(512, b"\x00"))


def lying_zip() -> bytes:
    """A file that is longer than its declared size of one byte."""
    data = bytearray(zipped(("big.txt", b"x" * 5000)))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.rfind(signature)
        data[at + offset : at + offset + 4] = struct.pack("<I", 1)
    return bytes(data)


def _end_of_directory(count: int, size: int, start: int) -> bytes:
    return b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, count, count, size, start, 0)


def overlapping_zip() -> bytes:
    """Many names for one piece of compressed data, as in a bomb without recursion."""
    first = zipped(("a.bin", b"\x00" * (1 << 20)))
    data = bytearray(first)
    at = data.rfind(b"PK\x01\x02")
    end = data.rfind(b"PK\x05\x06")
    entry = bytes(data[at:end])
    copies = b"".join(entry.replace(b"a.bin", b"%c.bin" % (98 + n)) for n in range(20))
    start, size = struct.unpack("<I", data[end + 16 : end + 20])[0], struct.unpack("<I", data[end + 12 : end + 16])[0]
    count = struct.unpack("<H", data[end + 10 : end + 12])[0] + 20
    return bytes(data[:end]) + copies + _end_of_directory(count, size + len(copies), start)


def crowded_directory() -> bytes:
    """A table of contents of several megabytes in an archive without files."""
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, *(0,) * 14)
    table = entry * 40_000
    return b"PK\x03\x04" + table + _end_of_directory(40_000, len(table), 4)


LINK, PIPE, DEVICE = stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o644, stat.S_IFCHR | 0o644
HALF_EMPTY = random.Random(1).randbytes(20_000) + bytes((1 << 20) - 20_000)
"""Its compression ratio of 50 is below the limit."""
ENTRY = b"PK\x01\x02\x14\x03\x14\x00"
TO_TMP = {"type": tarfile.SYMTYPE, "linkname": "/tmp"}


def streamed(*members: tuple[str, bytes]) -> bytes:
    """A zip as a program writes it to a pipe: the size and checksum of each member follow it."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    stream = Pipe()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (("SKILL.md", SKILL), *members):
            archive.writestr(name, data)
    return stream.getvalue()


def _moved(data: bytes, by: int, *, after: int = 0) -> bytes:
    """A zip whose offsets are those of members that lie so many bytes further on, from an offset on."""
    moved = bytearray(data)
    at = moved.find(b"PK\x01\x02")
    end = moved.rfind(b"PK\x05\x06")
    while at != -1:
        offset = struct.unpack_from("<I", moved, at + 42)[0]
        struct.pack_into("<I", moved, at + 42, offset + (by if offset >= after else 0))
        at = moved.find(b"PK\x01\x02", at + 1, end)
    struct.pack_into("<I", moved, end + 16, struct.unpack_from("<I", moved, end + 16)[0] + by)
    return bytes(moved)


def hidden_first() -> bytes:
    """A whole zip before the one that counts, with offsets that are right."""
    first = zipped(("evil", b"x"))
    return first + _moved(zipped(), len(first))


def hidden_between(*, before_directory: bool) -> bytes:
    """Bytes between two members, or between the last one and the table of contents, with offsets that are right."""
    data = zipped(("a", b"x"))
    second = data.find(b"PK\x03\x04", 1)
    at = data.find(b"PK\x01\x02") if before_directory else second
    moved = _moved(data, 4, after=at)
    return moved[:at] + b"evil" + moved[at:]


ZIPS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "bytes-behind": ("damaged", lambda: zipped() + b"x"),
    "second-zip-behind": ("damaged", lambda: zipped() + zipped(("evil", b"x"))),
    "comment-too-short": ("damaged", lambda: zipped()[:-2] + b"\x05\x00evil"),
    "comment-too-long": ("damaged", lambda: zipped()[:-2] + b"\x01\x00evil"),
    "bytes-in-front": ("damaged", lambda: b"PK\x03\x04evil" + zipped()),
    "second-zip-in-front": ("damaged", hidden_first),
    "bytes-between-members": ("damaged", lambda: hidden_between(before_directory=False)),
    "bytes-before-the-directory": ("damaged", lambda: hidden_between(before_directory=True)),
    "bytecode": ("bytecode", lambda: zipped(("lib/a.pyc", b"x"))),
    "bytecode-optimised": ("bytecode", lambda: zipped(("a.PYO", b"x"))),
    "bytecode-cached": ("bytecode", lambda: zipped(("lib/__pycache__/a.cpython-311.pyc", b"x"))),
    "bytecode-folder": ("bytecode", lambda: zipped(("lib/__PyCache__/", b"", stat.S_IFDIR | 0o755))),
    "bytecode-folder-of-text": ("bytecode", lambda: zipped(("__pycache__/a.txt", b"x"))),
    "parent": ("unsafe-name", lambda: zipped(("../evil", b"x"))),
    "parent-below": ("unsafe-name", lambda: zipped(("a/../../evil", b"x"))),
    "absolute": ("unsafe-name", lambda: zipped(("/tmp/evil", b"x"))),
    "home": ("unsafe-name", lambda: zipped(("~/evil", b"x"))),
    "drive": ("unsafe-name", lambda: zipped(("C:/evil", b"x"))),
    "drive-relative": ("unsafe-name", lambda: zipped(("C:evil", b"x"))),
    "backslash": ("unsafe-name", lambda: zipped(("..\\evil", b"x"))),
    "share": ("unsafe-name", lambda: zipped(("\\\\host\\evil", b"x"))),
    "nul": ("unsafe-name", lambda: zipped(("evil\x00.md", b"x"))),
    "newline": ("unsafe-name", lambda: zipped(("a\nb", b"x"))),
    "escape-sequence": ("unsafe-name", lambda: zipped(("a\x1b[2Jb", b"x"))),
    "reordered-text": ("unsafe-name", lambda: zipped(("a\u202egnp.exe", b"x"))),
    "long-name": ("unsafe-name", lambda: zipped(("x" * 300, b"x"))),
    "long-path": ("unsafe-name", lambda: zipped(("/".join(["x" * 100] * 11), b"x"))),
    "deep": ("unsafe-name", lambda: zipped(("/".join("x" * 30), b"x"))),
    "repository": ("unsafe-name", lambda: zipped((".git/hooks/post-checkout", b"x", stat.S_IFREG | 0o755))),
    "repository-below": ("unsafe-name", lambda: zipped(("a/.GIT/config", b"x"))),
    "repository-dot": ("unsafe-name", lambda: zipped((".git./config", b"x"))),
    "submodule": ("unsafe-name", lambda: zipped(("a/.git", b"gitdir: /tmp/x"))),
    "settings": ("unsafe-name", lambda: zipped((".metier/config.toml", b"x"))),
    "link": ("link", lambda: zipped(("a", b"/etc/passwd", LINK))),
    "link-inside": ("link", lambda: zipped(("a", b"SKILL.md", LINK))),
    "link-then-through": ("link", lambda: zipped(("a", b"/tmp", LINK), ("a/evil", b"x"))),
    "skill-is-a-link": ("link", lambda: zipped(("SKILL.md", b"/etc/passwd", LINK), skill=None)),
    "pipe": ("not-a-file", lambda: zipped(("a", b"", PIPE))),
    "device": ("not-a-file", lambda: zipped(("a", b"", DEVICE))),
    "folder-that-is-a-file": ("not-a-file", lambda: zipped(("a/", b"x", stat.S_IFREG | 0o644))),
    "setuid": ("unsafe-mode", lambda: zipped(("a", b"x", stat.S_IFREG | 0o4755))),
    "setgid": ("unsafe-mode", lambda: zipped(("a", b"x", stat.S_IFREG | 0o2755))),
    "twice": ("collision", lambda: zipped(("a", b"1"), ("a", b"2"))),
    "twice-spelled": ("collision", lambda: zipped(("a/b", b"1"), ("a//b", b"2"))),
    "skill-twice": ("collision", lambda: zipped(("./SKILL.md", SKILL))),
    "case": ("collision", lambda: zipped(("readme", b"1"), ("README", b"2"))),
    "case-of-a-folder": ("collision", lambda: zipped(("a/x", b"1"), ("A/y", b"2"))),
    "accents": ("collision", lambda: zipped(("caf\u00e9", b"1"), ("cafe\u0301", b"2"))),
    "file-and-folder": ("collision", lambda: zipped(("a", b"1"), ("a/b", b"2"))),
    "folder-and-file": ("collision", lambda: zipped(("a/b", b"1"), ("a", b"2"))),
    "many": ("too-many-files", lambda: zipped(*((f"f{n}", b"") for n in range(2_100)), method=zipfile.ZIP_STORED)),
    "crowded": ("too-many-files", crowded_directory),
    "large": ("too-large", lambda: zipped(*((f"f{n}", HALF_EMPTY) for n in range(66)))),
    "dense": ("too-large", lambda: zipped(("a", bytes(20 << 20)))),
    "overlapping": ("damaged", overlapping_zip),
    "lying": ("damaged", lying_zip),
    "encrypted": ("encrypted", lambda: patched(zipped(("a", b"x")), ENTRY + b"\x00", ENTRY + b"\x01")),
    "odd-compression": ("damaged", lambda: zipped(("a", b"x"), method=zipfile.ZIP_BZIP2)),
    "cut-off": ("damaged", lambda: zipped(("a", b"x" * 500))[:-30]),
    "wrong-checksum": ("damaged", lambda: patched(zipped(("a", b"good"), method=zipfile.ZIP_STORED), b"good", b"evil")),
    "empty": ("no-skill", lambda: zipped(skill=None)),
    "no-skill": ("no-skill", lambda: zipped(("a.md", SKILL), skill=None)),
    "two-folders": ("no-skill", lambda: zipped(("a/SKILL.md", SKILL), ("b/x", b""), skill=None)),
}

TARS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "parent": ("unsafe-name", lambda: tarred(("../evil", b"x"))),
    "absolute": ("unsafe-name", lambda: tarred(("/tmp/evil", b"x"))),
    "long-name-parent": ("unsafe-name", lambda: tarred((f"{'x' * 120}/../../../evil", b"x"))),
    "extended-name-parent": ("unsafe-name", lambda: extended(path="../evil")),
    "no-utf8": ("unsafe-name", lambda: raw_tar(header(b"\xff", b"%011o\x00" % 0))),
    "link": ("link", lambda: tarred(("a", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc"}))),
    "link-then-through": ("link", lambda: tarred(("a", b"", TO_TMP), ("a/evil", b"x"))),
    "hard-link": ("link", lambda: tarred(("a", b"", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}))),
    "device": ("not-a-file", lambda: tarred(("a", b"", {"type": tarfile.CHRTYPE}))),
    "disk": ("not-a-file", lambda: tarred(("a", b"", {"type": tarfile.BLKTYPE}))),
    "pipe": ("not-a-file", lambda: tarred(("a", b"", {"type": tarfile.FIFOTYPE}))),
    "holes": ("not-a-file", lambda: raw_tar(header(b"a", b"%011o\x00" % 0, b"S"))),
    "extended-holes": ("not-a-file", lambda: extended(**{"GNU.sparse.major": "1"})),
    "extended-size": ("not-a-file", lambda: extended(size="9")),
    "setuid": ("unsafe-mode", lambda: tarred(("a", b"x", {"mode": 0o4755}))),
    "twice": ("collision", lambda: tarred(("a", b"1"), ("a", b"2"))),
    "negative-size": ("damaged", lambda: raw_tar(header(b"a", b"\xff" * 12))),
    "huge-size": ("damaged", lambda: raw_tar(header(b"a", b"\x80" + b"\xff" * 11))),
    "announced-size": ("damaged", lambda: raw_tar(header(b"a", b"77777777777\x00"))),
    "size-is-no-number": ("damaged", lambda: raw_tar(header(b"a", b"-0000000001\x00"))),
    "wrong-checksum": ("damaged", lambda: raw_tar(header(b"a", b"%011o\x00" % 0).replace(b"a", b"b", 1))),
    "endless-extended-header": ("damaged", endless_header),
    "no-end": ("damaged", lambda: gzip.compress(plain_tar()[:1024])),
    "cut-off": ("damaged", lambda: tarred(("a", b"x" * 500))[:-20]),
    "bytecode": ("bytecode", lambda: tarred(("lib/a.pyc", b"x"))),
    "bytecode-cached": ("bytecode", lambda: tarred(("__pycache__/a.cpython-311.pyc", b"x"))),
    "second-archive-behind": ("damaged", lambda: tarred() + tarred(("evil", b"x"))),
    "many": ("too-many-files", lambda: tarred(*((f"f{n}", b"") for n in range(2_100)))),
    "many-headers": ("too-many-files", lambda: raw_tar(header(b"a", b"%011o\x00" % 0, b"L") * 6_100)),
    "large": ("too-large", lambda: tarred(*((f"f{n}", HALF_EMPTY) for n in range(66)))),
    "only-zeros": ("too-large", lambda: gzip.compress(bytes(80 << 20), 1)),
    "dense": ("too-large", lambda: tarred(("a", bytes(20 << 20)))),
    "no-skill": ("no-skill", lambda: tarred(("a", b"x"), skill=None)),
}

SKILLS: dict[str, tuple[str, bytes]] = {
    "no-frontmatter": ("invalid", b"# Probe\n"),
    "no-name": ("invalid", b"---\ndescription: x\n---\n"),
    "name-is-a-path": ("invalid", b"---\nname: ../evil\ndescription: x\n---\n"),
    "name-is-absolute": ("invalid", b"---\nname: /tmp/evil\ndescription: x\n---\n"),
    "name-is-a-dot": ("invalid", b"---\nname: '..'\ndescription: x\n---\n"),
    "name-is-hidden": ("invalid", b"---\nname: .ssh\ndescription: x\n---\n"),
    "name-is-long": ("invalid", b"---\nname: " + b"x" * 300 + b"\ndescription: x\n---\n"),
    "name-is-a-list": ("invalid", b"---\nname: [a]\ndescription: x\n---\n"),
    "no-description": ("InvalidSkill", b"---\nname: probe\n---\n"),
    "hidden-text": ("InvalidSkill", '---\nname: probe\ndescription: "x\u202ey"\n---\n'.encode()),
    "anchors": ("invalid", b"---\na: &a [x]\nb: [*a, *a]\nname: probe\ndescription: x\n---\n"),
    "unknown-key": ("InvalidSkill", SKILL.replace(b"---\n# ", b"evil: yes\n---\n# ")),
    "binary": ("invalid", b"\x00\x01\x02"),
}
