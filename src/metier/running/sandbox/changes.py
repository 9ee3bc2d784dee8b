"""Brings the changes that a script made to a project back from its writable layer, in one checked step.

The layer is an overlay's upper folder in memory: files that were added or changed, a device with number 0 for each one
that was deleted, and folders that may be marked as replaced. All of it is untrusted. By itself, only a new file of a
data format comes back (see `DATA`). Everything else comes back only if it was named before the run. Links, devices and
special modes never do. A file that somebody else changed during the run is left alone. The invariant: every difference
in the layer is either applied or listed with the reason why not, and no path is followed through a link on the host.
"""

import os
import stat
import unicodedata
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import Struct

from metier.files.digests import digest_of
from metier.files.globs import covers
from metier.limits import MIB, WALK_DEPTH
from metier.running.sandbox import WrittenFile
from metier.values.results import ChangedFile
from metier.values.value import Value, field

DATA: Final = frozenset(
    (
        *(".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow"),
        *(".xlsx", ".ods", ".docx", ".odt", ".pptx", ".odp", ".pdf"),
        *(".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp"),
        *(".wav", ".mp3", ".flac", ".ogg", ".mp4", ".webm"),
    )
)
"""The suffixes of files that no program runs or obeys because of their names. Others hold results too, but also what
tools look for: `package.json`, `AGENTS.md`, `requirements.txt`, `docker-compose.yml`, an `.svg` or `.html` with code.
They have to be named."""

_NOT_NAMED: Final = "it was not named before the run"
_OPAQUE: Final = ("trusted.overlay.opaque", "user.overlay.opaque")
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
FOLDER: Final = READ | os.O_DIRECTORY
REASONS: Final = 50


class ProjectChanges(Struct):
    """What came back, and what did not, each with its reason."""

    applied: list[ChangedFile] = field(default_factory=list[ChangedFile])
    refused: list[str] = field(default_factory=list[str])
    made: list[WrittenFile] = field(default_factory=list[WrittenFile])
    """Files that are kept and not written to the project, at most `room`."""
    left_out: list[str] = field(default_factory=list[str])
    room: int = 1000

    def refuse(self, path: str, why: str) -> None:
        if len(self.refused) < REASONS:
            self.refused.append(f"{path}: {why}")
        elif len(self.refused) == REASONS:
            self.refused.append("and more")

    def keep(self, path: str, data: bytes) -> None:
        if len(self.made) < self.room:
            self.made.append(WrittenFile(path, len(data), digest_of(data), data))
        elif not self.left_out:
            self.left_out.append(f"{path} and more: more than {self.room:,} files")


class _Plan(Value):
    """One file to write, with its new bytes and mode, or to delete."""

    path: str
    data: bytes | None
    executable: bool = False
    folder: bool = False
    """Delete a folder, if it is empty by now."""
    new: bool = False
    """It comes back by itself, and replaces nothing."""


class _TooMany(Exception):
    """The layer has more differences than are applied."""


def bring_back(
    layer: int,
    project: int,
    *,
    named: Sequence[str] = (),
    since_ns: int = 0,
    most: int = 20_000,
    kept: int = 1000,
    given: Mapping[str, str] | None = None,
) -> ProjectChanges:
    """Apply the differences in an open layer to an open project, and return what was done.

    `named` has globs of what may come back besides new data. `since_ns` is when the run began: a file that changed on
    the host after that is not overwritten. With more than `most` differences, nothing is applied. At most `kept` of the
    files that do not come back are kept. `given` has the digests of files that were only put there for the run; what
    the script made of them is kept, but not applied.
    """
    found = ProjectChanges(room=kept)
    plans: list[_Plan] = []
    try:
        for plan in _Layer(named, _Spellings(project), found, given or {}).plans(layer, project):
            plans.append(plan)
            if len(plans) > most:
                raise _TooMany
    except _TooMany:
        found.refused.clear()
        found.refuse(".", f"more than {most:,} files changed, so none of the changes was applied")
        return found
    for plan in plans:
        _apply(project, plan, since_ns, found)
    return found


def put_files(folder: int, files: Mapping[str, bytes], *, replaces: bool, named: Sequence[str] = ()) -> dict[str, str]:
    """Write files that a script made below an open folder, by path. Returns those that were not, with the reason.

    As for a project, only data is written unless it is named.
    """
    spellings = _Spellings(folder)
    refused: dict[str, str] = {}
    for path, data in files.items():
        why = _flaw(path, named, spellings) or _put(folder, path, data, replaces=replaces)
        if why:
            refused[path] = why
    return refused


def is_data(path: str) -> bool:
    """Whether a new file may come back by its path alone: it is data, in sight, and its name hides nothing."""
    seen = path.isprintable() and not any(_plain(part).startswith(".") for part in path.split("/"))
    return seen and os.path.splitext(path)[1].casefold() in DATA


class _Spellings:
    """Knows the names in a folder and below as file systems compare them that ignore case and Unicode form."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._names: dict[str, dict[str, str]] = {}

    def fits(self, path: str) -> bool:
        """Whether no part of a path is another spelling of a name that is there, or that was asked about before."""
        above = ""
        for part in path.split("/"):
            if above not in self._names:
                self._names[above] = self._listed(above)
            if self._names[above].setdefault(_plain(part), part) != part:
                return False
            above = f"{above}/{part}" if above else part
        return True

    def _listed(self, folder: str) -> dict[str, str]:
        with suppress(OSError), _parent(self._folder, folder, create=False) as there:
            return {_plain(name): name for name in os.listdir(there)}
        return {}


def _flaw(path: str, named: Sequence[str], spellings: _Spellings) -> str:
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "it is not a plain path"
    if covers(named, path):
        return ""
    if not is_data(path):
        return "it is not data by its name; `metier session artifacts PATH --out DIR` writes it"
    return "" if spellings.fits(path) else "a file whose name differs only in case or form exists"


def _put(folder: int, path: str, data: bytes, *, replaces: bool) -> str:
    above, _, name = path.rpartition("/")
    try:
        with _parent(folder, above, create=True) as parent:
            before = lstat(name, parent)
            if before is not None and not (replaces and stat.S_ISREG(before.st_mode)):
                return "a file of this name exists; --force replaces it"
            _replace(parent, name, data, False, before)
    except OSError as error:
        return error.strerror or "it cannot be written"
    return ""


# --- reading the layer ---


class _Layer:
    """Walks a layer beside the project, and says what would change."""

    def __init__(
        self, named: Sequence[str], spellings: _Spellings, found: ProjectChanges, given: Mapping[str, str]
    ) -> None:
        self._named, self._spellings, self._found, self._given = named, spellings, found, given

    def plans(self, upper: int, lower: int | None, below: str = "", depth: int = 0) -> Iterator[_Plan]:
        """The changes in an open folder of the layer. `lower` is the same folder of the project, if it has one."""
        with suppress(PermissionError):
            os.fchmod(upper, 0o700)  # the script may have locked its own folder
        if depth > WALK_DEPTH:
            self._found.refuse(below, f"more than {WALK_DEPTH} folders deep")
            return
        here = set(os.listdir(upper))
        if lower is not None and _is_opaque(upper):
            for name in sorted(set(os.listdir(lower)) - here):
                yield from self._deleted(lower, name, below + name, depth)
        for name in sorted(here):
            yield from self._entry(upper, lower, name, below + name, depth)

    def _entry(self, upper: int, lower: int | None, name: str, path: str, depth: int) -> Iterator[_Plan]:
        try:
            if path in self._given:
                self._keep(upper, name, path)
            else:
                yield from self._difference(upper, lower, name, path, depth)
        except OSError as error:
            self._found.refuse(path, error.strerror or "it cannot be read")

    def _keep(self, upper: int, name: str, path: str) -> None:
        """What the script made of a file that it was given."""
        if stat.S_ISREG(os.lstat(name, dir_fd=upper).st_mode):
            data, _ = _content(name, upper, unlock=True)
            if digest_of(data) != self._given[path]:
                self._found.keep(path, data)

    def _difference(self, upper: int, lower: int | None, name: str, path: str, depth: int) -> Iterator[_Plan]:
        status = os.lstat(name, dir_fd=upper)
        before = lstat(name, lower)
        if stat.S_ISDIR(status.st_mode):
            if before is not None and not stat.S_ISDIR(before.st_mode):
                yield from self._removed(path)
            with opened(name, upper, unlock=True) as inner:
                if before is not None and stat.S_ISDIR(before.st_mode) and lower is not None:
                    with opened(name, lower) as beside:
                        yield from self.plans(inner, beside, f"{path}/", depth + 1)
                else:
                    yield from self.plans(inner, None, f"{path}/", depth + 1)
        elif stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            if lower is not None and before is not None:
                yield from self._deleted(lower, name, path, depth)
        elif stat.S_ISREG(status.st_mode):
            yield from self._written(upper, lower, name, path, before, depth)
        elif not stat.S_ISLNK(status.st_mode):
            self._found.refuse(path, "not a regular file")
        elif before is None or not stat.S_ISLNK(before.st_mode) or not _same_link(name, upper, lower):
            self._found.refuse(path, "a symbolic link")

    def _written(
        self, upper: int, lower: int | None, name: str, path: str, before: os.stat_result | None, depth: int
    ) -> Iterator[_Plan]:
        data, executable = _content(name, upper, unlock=True)
        if before is not None and lower is not None:
            if stat.S_ISREG(before.st_mode) and before.st_size == len(data):
                same = bool(before.st_mode & stat.S_IXUSR) == executable
                with suppress(OSError):
                    if same and _content(name, lower)[0] == data:
                        return  # only its times or its owner differ
            elif stat.S_ISDIR(before.st_mode):
                yield from self._deleted(lower, name, path, depth)
        if covers(self._named, path):
            yield _Plan(path, data, executable)
        elif before is None and is_data(path) and self._spellings.fits(path):
            yield _Plan(path, data, new=True)
        else:
            self._found.refuse(path, _NOT_NAMED)
            self._found.keep(path, data)

    def _removed(self, path: str, *, folder: bool = False) -> Iterator[_Plan]:
        if covers(self._named, path):
            yield _Plan(path, None, folder=folder)
        elif not folder:
            self._found.refuse(path, _NOT_NAMED)

    def _deleted(self, lower: int, name: str, path: str, depth: int) -> Iterator[_Plan]:
        """The deletion of a file, or of every file below a folder."""
        status = lstat(name, lower)
        if status is None:
            return
        if not stat.S_ISDIR(status.st_mode):
            yield from self._removed(path)
        elif depth > WALK_DEPTH:
            self._found.refuse(path, f"more than {WALK_DEPTH} folders deep")
        else:
            with opened(name, lower) as inner:
                for below in sorted(os.listdir(inner)):
                    yield from self._deleted(inner, below, f"{path}/{below}", depth + 1)
            yield from self._removed(path, folder=True)


def _plain(path: str) -> str:
    """A path as file systems compare it that ignore case, Unicode form, invisible characters or trailing dots."""
    text = unicodedata.normalize("NFKC", path).casefold()
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return "/".join(part.rstrip(". ") or part for part in text.split("/"))


def _is_opaque(folder: int) -> bool:
    """Whether the script replaced a folder, so that nothing of the old one is left."""
    for name in _OPAQUE:
        with suppress(OSError):
            if os.getxattr(folder, name) == b"y":
                return True
    return False


def lstat(name: str, folder: int | None) -> os.stat_result | None:
    """What is known about an entry of a folder, or `None` if there is none."""
    with suppress(FileNotFoundError):
        return os.lstat(name, dir_fd=folder) if folder is not None else None
    return None


def _same_link(name: str, upper: int, lower: int | None) -> bool:
    return lower is not None and os.readlink(name, dir_fd=upper) == os.readlink(name, dir_fd=lower)


def _content(name: str, folder: int, *, unlock: bool = False) -> tuple[bytes, bool]:
    """The bytes of a file, and whether it is executable."""
    descriptor = open_entry(name, READ, folder, unlock=unlock)
    try:
        executable = bool(os.fstat(descriptor).st_mode & stat.S_IXUSR)
        chunks: list[bytes] = []
        while chunk := os.read(descriptor, MIB):
            chunks.append(chunk)
        return b"".join(chunks), executable
    finally:
        os.close(descriptor)


@contextmanager
def opened(name: str, folder: int, *, unlock: bool = False) -> Generator[int]:
    descriptor = open_entry(name, FOLDER, folder, unlock=unlock)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_entry(name: str, flags: int, folder: int, *, unlock: bool) -> int:
    """Open an entry. With `unlock`, it is part of a layer: its script has ended, and may have locked it before."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        if not unlock:
            raise
        mode = os.lstat(name, dir_fd=folder).st_mode
        os.chmod(name, stat.S_IMODE(mode) | 0o600 | (0o100 if stat.S_ISDIR(mode) else 0), dir_fd=folder)
        return os.open(name, flags, dir_fd=folder)


# --- writing to the project ---


def _apply(project: int, plan: _Plan, since_ns: int, found: ProjectChanges) -> None:
    folder, _, name = plan.path.rpartition("/")
    try:
        with _parent(project, folder, create=plan.data is not None) as parent:
            if plan.folder:
                with suppress(OSError):  # what was refused or is new may still be in it
                    os.rmdir(name, dir_fd=parent)
                return
            before = lstat(name, parent)
            if before is not None and (plan.new or before.st_ctime_ns > since_ns > 0):
                raise FileExistsError(0, "it was changed by somebody else during the run")
            if plan.data is not None:
                _replace(parent, name, plan.data, plan.executable, before)
                kind = "added" if before is None else "changed"
                found.applied.append(ChangedFile(plan.path, kind, len(plan.data), digest_of(plan.data)))
            elif before is not None:
                os.unlink(name, dir_fd=parent)
                found.applied.append(ChangedFile(plan.path, "deleted"))
    except OSError as error:
        found.refuse(plan.path, error.strerror or "it cannot be written")
        if plan.data is not None:
            found.keep(plan.path, plan.data)


@contextmanager
def _parent(project: int, folder: str, *, create: bool) -> Generator[int]:
    """Open a folder of the project, without following links. Missing folders belong to the owner of the one above."""
    descriptor = os.dup(project)
    try:
        for part in folder.split("/") if folder else ():
            try:
                inner = os.open(part, FOLDER, dir_fd=descriptor)
            except FileNotFoundError:
                if not create:
                    raise
                os.mkdir(part, 0o755, dir_fd=descriptor)
                inner = os.open(part, FOLDER, dir_fd=descriptor)
                _give(inner, os.fstat(descriptor))
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _replace(folder: int, name: str, data: bytes, executable: bool, before: os.stat_result | None) -> None:
    """Write a file without a name, and give it its name at once, so that nobody ever sees half of it."""
    like = before if before is not None and stat.S_ISREG(before.st_mode) else None
    mode = stat.S_IMODE(like.st_mode) & 0o777 if like is not None else 0o644
    mode = mode | (mode & 0o444) >> 2 if executable else mode & 0o666
    temporary = f".{os.urandom(8).hex()}.tmp"
    descriptor, nameless = _new_file(folder, temporary)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        _give(descriptor, like if like is not None else os.fstat(folder))
        os.fchmod(descriptor, mode)
        if nameless:
            place = name if before is None else temporary
            os.link(f"/proc/self/fd/{descriptor}", place, dst_dir_fd=folder, follow_symlinks=True)
        if before is not None or not nameless:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)


def _new_file(folder: int, name: str) -> tuple[int, bool]:
    """A new file without a name, or with a temporary one where the file system cannot do that."""
    try:
        return os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder), True
    except OSError:
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder), False


def _give(descriptor: int, like: os.stat_result) -> None:
    """Root writes for the owner of the project, so the owner keeps what is written."""
    if os.geteuid() == 0:
        os.fchown(descriptor, like.st_uid, like.st_gid)
