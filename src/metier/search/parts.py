"""Keeps an index as parts that never change: an update adds a part, and a key in a newer part hides the older ones.

Many skills are a large part, a folder of the engine's files. A few are a small part, one file that is read into memory,
so that an update of one skill never waits for the engine's merges or for its flushes to the disk. A manifest names the
parts in order, and replacing it is what makes an update visible: a process that is killed leaves the last manifest.
"""

import contextlib
import marshal
import os
import shutil
import struct
import time
import uuid
import zlib
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, Final

import tantivy

from metier.files.replace import beside
from metier.search.documents import SCHEMA, PreparedSkill

SMALL: Final = 32
"""The most skills of a small part."""

_TOGETHER: Final = 6
_MANIFEST: Final = "parts"
_LOCK: Final = "lock"
_KEYS: Final = "keys"
_HEADER: Final = struct.Struct("<4sIQ")
_MAGIC: Final = b"MTS1"
_LARGEST: Final = 1 << 30
_HEAP: Final = 96_000_000
_SMALL_HEAP: Final = 15_000_000
_ORPHANED: Final = 24 * 3600.0
"""Seconds after which a part that no manifest names was left by a process that was killed."""
LOCK_PATIENCE: Final = 5.0

_WHITESPACE: Final = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()


class IndexUnavailable(Exception):
    """The stored index cannot be used: the disk is read-only or full, or the index is damaged."""


class IndexBusy(IndexUnavailable):
    """Another process is writing to the index. It can still be searched, but is not up to date."""


class DamagedPart(Exception):
    """A part is incomplete or not ours."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexPart:
    """Some skills, ready to be searched."""

    name: str
    stamps: Mapping[str, str]
    """Keys with their stamps. An empty stamp says that the skill was removed."""
    searcher: tantivy.Searcher
    skills: tuple[PreparedSkill, ...] = ()
    """What it was made of, if it is small."""


def in_memory(skills: Iterable[PreparedSkill], name: str = "") -> IndexPart:
    """Make a part in memory."""
    few, rest = _split(skills)
    index = tantivy.Index(SCHEMA)
    stamps = _fill(index, chain(few, rest or ()), _SMALL_HEAP)
    return IndexPart(name or _new("memory"), stamps, _searcher(index), tuple(few) if rest is None else ())


def joined_parts(parts: Sequence[IndexPart], known: Mapping[str, IndexPart]) -> list[IndexPart]:
    """The same parts, of which every few small ones that follow each other are one: each costs every search a little.

    `known` are parts that were joined before, by their names.
    """
    joined: list[IndexPart] = []
    for small, group in groupby(parts, lambda part: bool(part.skills) and len(part.skills) <= SMALL):
        run = list(group)
        for start in range(0, len(run), _TOGETHER):
            some = run[start : start + _TOGETHER]
            name = "+".join(part.name for part in some)
            if not small or len(some) < _TOGETHER:
                joined += some
            elif name in known:
                joined.append(known[name])
            else:
                newest = {one.key: one for part in some for one in part.skills}
                joined.append(in_memory(newest.values(), name))
    return joined


class PartFolder:
    """The parts in a folder. Several processes may share it."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.makedirs(path, exist_ok=True)

    # --- reading ---

    def signature(self) -> tuple[int, ...]:
        """What changes when the manifest is replaced."""
        try:
            status = os.stat(os.path.join(self.path, _MANIFEST))
        except FileNotFoundError:
            os.stat(self.path)  # the folder itself must be there
            return ()
        return status.st_mtime_ns, status.st_ino, status.st_size

    def names(self) -> list[str]:
        """The names of the parts, the oldest first."""
        try:
            with open(os.path.join(self.path, _MANIFEST), encoding="utf-8") as file:
                names = file.read().split("\n")[:-1]
        except (FileNotFoundError, UnicodeDecodeError):
            return []
        return [name for name in names if name.startswith(("small-", "large-")) and os.sep not in name]

    def read(self, name: str) -> IndexPart:
        """Open a part. Raises `FileNotFoundError` if it was replaced meanwhile, and `DamagedPart`."""
        place = os.path.join(self.path, name)
        if name.startswith("small-"):
            rows = load(place)
            try:
                return in_memory([PreparedSkill(*row) for row in rows], name)
            except TypeError as error:
                raise DamagedPart(name) from error
        stamps = load(os.path.join(place, _KEYS))
        try:
            searcher = _searcher(tantivy.Index.open(place))
        except ValueError as error:  # the engine's errors have a text and no code
            raise DamagedPart(f"{name}: {error}") from error
        return IndexPart(name, stamps, searcher)

    # --- writing ---

    def write(self, skills: Iterable[PreparedSkill]) -> IndexPart | None:
        """Write a part that no manifest names yet. `None` if there is nothing to write."""
        few, rest = _split(skills)
        if not few:
            return None
        if rest is None:
            name = _new("small")
            store(os.path.join(self.path, name), [tuple(one) for one in few])
            return in_memory(few, name)
        name = _new("large")
        place = os.path.join(self.path, name)
        os.mkdir(place)
        try:
            index = tantivy.Index(SCHEMA, place)
            stamps = _fill(index, chain(few, rest), _HEAP)
            store(os.path.join(place, _KEYS), stamps)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return IndexPart(name, stamps, _searcher(index))

    def publish(self, added: str | None, dropped: Collection[str] = ()) -> bool:
        """Name a part in the manifest, in the place of the newest of those that it replaces.

        Returns false, and removes the part, if one of those is no longer there: somebody else has replaced it.
        """
        with self.locked():
            names = self.names()
            if not set(dropped) <= set(names):
                if added is not None:
                    self._remove([added])
                return False
            at = max((names.index(name) for name in dropped), default=len(names) - 1) + 1
            following = [*names[:at], *([added] if added is not None else []), *names[at:]]
            following = [name for name in following if name not in dropped]
            # Without waiting for the disk: after a crash of the machine the index is made again.
            with beside(os.path.join(self.path, _MANIFEST)) as manifest:
                manifest.write("".join(f"{name}\n" for name in following).encode())
            self._remove(dropped)
            self._remove_orphans(set(following))
        return True

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Hold the lock of the manifest, which is held only for a moment."""
        import fcntl

        give_up = time.monotonic() + LOCK_PATIENCE
        descriptor = os.open(os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > give_up:
                        raise IndexBusy("another process is updating the search index") from error
                    time.sleep(0.002)
            yield
        finally:
            os.close(descriptor)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            place = os.path.join(self.path, name)
            if name.startswith("large-"):
                shutil.rmtree(place, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(place)

    def _remove_orphans(self, named: set[str]) -> None:
        now = time.time()
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.startswith(("small-", "large-")) and entry.name not in named:
                    with contextlib.suppress(OSError):
                        if now - entry.stat(follow_symlinks=False).st_mtime > _ORPHANED:
                            self._remove([entry.name])


def _split(skills: Iterable[PreparedSkill]) -> tuple[list[PreparedSkill], Iterable[PreparedSkill] | None]:
    """The skills as a list if they are few. Otherwise the first of them, and an iterator of the rest."""
    iterator = iter(skills)
    few: list[PreparedSkill] = []
    for one in iterator:
        few.append(one)
        if len(few) > SMALL:
            return few, iterator
    return few, None


def _fill(index: tantivy.Index, skills: Iterable[PreparedSkill], heap: int) -> dict[str, str]:
    """Write all documents. Of several versions of a key, the last counts."""
    index.register_tokenizer("terms", _WHITESPACE)
    stamps: dict[str, str] = {}
    writer = index.writer(heap, 1)
    try:
        for one in skills:
            if one.key in stamps:
                writer.delete_documents_by_term("key", one.key)
                writer.delete_documents_by_term("parent", one.key)
            stamps[one.key] = one.stamp
            for document in one.documents():
                writer.add_document(document)
        writer.commit()
    finally:
        writer.wait_merging_threads()
    return stamps


def _searcher(index: tantivy.Index) -> tantivy.Searcher:
    index.register_tokenizer("terms", _WHITESPACE)
    index.config_reader("manual")
    index.reload()
    return index.searcher()


def _new(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex}"


def store(place: str, value: Any) -> None:
    """Write plain data to a new file that only the user can read."""
    data = marshal.dumps(value)
    with open(place, "xb", opener=lambda path, flags: os.open(path, flags | os.O_CLOEXEC, 0o600)) as file:
        file.write(_HEADER.pack(_MAGIC, zlib.crc32(data), len(data)) + data)


def load(place: str) -> Any:
    """Read what `store` wrote, or raise `DamagedPart`.

    Marshalled data can crash a process, so it must be our user's own and complete.
    """
    with open(place, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_size > _LARGEST:
            raise DamagedPart(place)
        data = file.read()
    if len(data) < _HEADER.size:
        raise DamagedPart(place)
    magic, checksum, length = _HEADER.unpack_from(data)
    content = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or length != len(content) or checksum != zlib.crc32(content):
        raise DamagedPart(place)
    return marshal.loads(content)
