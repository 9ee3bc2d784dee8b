"""Brings the changes that a script made to a project back from its writable layer, in one checked step.

The layer is an overlay's upper folder in memory: files that were added or changed, a device with number 0 for each one
that was deleted, and folders that may be marked as replaced. All of it is untrusted. Only plain files come back: no
links, devices or special modes, nothing that a tool of the user executes or obeys by itself (see `PROTECTED`), and
nothing in the folder of a skill or a repository. A file that somebody else changed during the run is left alone. The
invariant: every difference in the layer is either applied or listed with the reason why not, and no path is followed
through a link on the host.
"""

import os
import stat
import unicodedata
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import Struct

from metier.files.digests import digest_of
from metier.limits import MIB, WALK_DEPTH
from metier.running.sandbox import WrittenFile
from metier.values.results import ChangedFile
from metier.values.skill import SKILL_FILE
from metier.values.value import Value, field

PROTECTED: Final = frozenset(
    (
        # version control
        *(".git", ".hg", ".svn", ".bzr", ".jj", ".gitmodules", ".gitattributes"),
        # hooks, shells and editors
        *(".husky", ".pre-commit-config.yaml", ".envrc", ".vscode", ".idea", ".devcontainer"),
        # build servers
        *(".github", ".gitlab-ci.yml", ".circleci"),
        # agents, their skills and settings
        *(".metier", ".agent", ".agents", ".skills", ".rip", ".copilot", ".claude", ".codex", ".gemini", ".opencode"),
        *(".omp", ".codelia", ".remcochat", ".mycodeagent", ".pi", ".cursor", ".continue", ".windsurf", ".codeium"),
        *(".roo", ".cline", ".goose", ".kiro", ".qwen", ".clinerules", ".cursorrules", ".windsurfrules", ".mcp.json"),
        # instructions of agents
        *("agents.md", "agents.override.md", "agent.md", "claude.md", "claude.local.md", "gemini.md", "qwen.md"),
    )
)
"""Names, in lower case, that are protected at any depth: what version control, editors, agents, shells and build
servers run or obey without being told to."""

_OPAQUE: Final = ("trusted.overlay.opaque", "user.overlay.opaque")
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
FOLDER: Final = READ | os.O_DIRECTORY
REASONS: Final = 50


class ProjectChanges(Struct):
    """What came back, and what did not, each with its reason."""

    applied: list[ChangedFile] = field(default_factory=list[ChangedFile])
    refused: list[str] = field(default_factory=list[str])
    made: list[WrittenFile] = field(default_factory=list[WrittenFile])
    """Files that are kept and not written to the project."""
    left_out: list[str] = field(default_factory=list[str])

    def refuse(self, path: str, why: str) -> None:
        if len(self.refused) < REASONS:
            self.refused.append(f"{path}: {why}")
        elif len(self.refused) == REASONS:
            self.refused.append("and more")


class _Plan(Value):
    """One file to write, with its new bytes and mode, or to delete."""

    path: str
    data: bytes | None
    executable: bool = False
    folder: bool = False
    """Delete a folder, if it is empty by now."""


class _TooMany(Exception):
    """The layer has more differences than are applied."""


def bring_back(
    layer: int,
    project: int,
    *,
    protected: Collection[str] = (),
    since_ns: int = 0,
    most: int = 20_000,
    given: Mapping[str, str] | None = None,
) -> ProjectChanges:
    """Apply the differences in an open layer to an open project, and return what was done.

    `protected` has further paths that stay as they are. `since_ns` is when the run began: a file that changed
    on the host after that is not overwritten. With more than `most` differences, nothing is applied. `given` has the
    digests of files that were only put there for the run; what the script made of them is kept, but not applied.
    """
    found = ProjectChanges()
    paths = tuple(_plain(path) for path in protected)
    plans: list[_Plan] = []
    try:
        for plan in _Layer(paths, found, given or {}).plans(layer, project):
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


def put_files(folder: int, files: Mapping[str, bytes], *, replaces: bool) -> dict[str, str]:
    """Write files that a script made below an open folder, by path. Returns those that were not, with the reason.

    What a tool of the user would execute or obey is left out here, too.
    """
    names: dict[str, set[str]] = {}
    for path in files:
        parts = path.split("/")
        for depth, part in enumerate(parts):
            names.setdefault("/".join(parts[:depth]), set()).add(part)
    refused: dict[str, str] = {}
    for path, data in files.items():
        why = _flaw(folder, path, names) or _put(folder, path, data, replaces=replaces)
        if why:
            refused[path] = why
    return refused


def _flaw(folder: int, path: str, names: Mapping[str, set[str]]) -> str:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "it is not a plain path"
    if any(has_protected_name(part) for part in parts):
        return "it is protected"
    for depth in range(len(parts)):
        above = "/".join(parts[:depth])
        with suppress(OSError), _parent(folder, above, create=False) as there:
            if what := _reserved({*os.listdir(there), *names[above]}):
                return f"{above or '.'} is the folder of a {what}"
            continue
        if what := _reserved(names[above]):
            return f"{above or '.'} would be the folder of a {what}"
    return ""


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

    def __init__(self, paths: Sequence[str], found: ProjectChanges, given: Mapping[str, str]) -> None:
        self._paths, self._found, self._given = paths, found, given

    def plans(self, upper: int, lower: int | None, below: str = "", depth: int = 0) -> Iterator[_Plan]:
        """The changes in an open folder of the layer. `lower` is the same folder of the project, if it has one."""
        with suppress(PermissionError):
            os.fchmod(upper, 0o700)  # the script may have locked its own folder
        if depth > WALK_DEPTH:
            self._found.refuse(below, f"more than {WALK_DEPTH} folders deep")
            return
        here = set(os.listdir(upper))
        if what := _reserved(here | set(os.listdir(lower) if lower is not None else ())):
            self._found.refuse(below or ".", f"it is the folder of a {what}")
            return
        if lower is not None and _is_opaque(upper):
            for name in sorted(set(os.listdir(lower)) - here):
                yield from self._deleted(lower, name, below + name, depth)
        for name in sorted(here):
            yield from self._entry(upper, lower, name, below + name, depth)

    def _entry(self, upper: int, lower: int | None, name: str, path: str, depth: int) -> Iterator[_Plan]:
        if self._is_protected(path):
            self._found.refuse(path, "it is protected")
            return
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
            if (digest := digest_of(data)) != self._given[path]:
                self._found.made.append(WrittenFile(path, len(data), digest, data))

    def _difference(self, upper: int, lower: int | None, name: str, path: str, depth: int) -> Iterator[_Plan]:
        status = os.lstat(name, dir_fd=upper)
        before = lstat(name, lower)
        if stat.S_ISDIR(status.st_mode):
            if before is not None and not stat.S_ISDIR(before.st_mode):
                yield _Plan(path, None)
            with _opened(name, upper, unlock=True) as inner:
                if before is not None and stat.S_ISDIR(before.st_mode) and lower is not None:
                    with _opened(name, lower) as beside:
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
        yield _Plan(path, data, executable)

    def _deleted(self, lower: int, name: str, path: str, depth: int) -> Iterator[_Plan]:
        """The deletion of a file, or of every file below a folder."""
        status = lstat(name, lower)
        if status is None:
            return
        if self._is_protected(path):
            self._found.refuse(path, "it is protected")
        elif not stat.S_ISDIR(status.st_mode):
            yield _Plan(path, None)
        elif depth > WALK_DEPTH:
            self._found.refuse(path, f"more than {WALK_DEPTH} folders deep")
        else:
            with _opened(name, lower) as inner:
                if what := _reserved(os.listdir(inner)):
                    self._found.refuse(path, f"it is the folder of a {what}")
                    return
                for below in sorted(os.listdir(inner)):
                    yield from self._deleted(inner, below, f"{path}/{below}", depth + 1)
            yield _Plan(path, None, folder=True)

    def _is_protected(self, path: str) -> bool:
        plain = _plain(path)
        if has_protected_name(plain):
            return True
        return any(plain == one or plain.startswith(f"{one}/") for one in self._paths)


def has_protected_name(path: str) -> bool:
    """Whether the last part of a path is one of `PROTECTED`, or would be for a file system that compares loosely."""
    return _plain(path).rpartition("/")[2] in PROTECTED


def _reserved(names: Collection[str]) -> str:
    """What a folder with these names is, if nothing in it may change. Git takes any folder with its files for a
    repository, and runs the programs that are named there."""
    plain = {_plain(name) for name in names}
    if SKILL_FILE.lower() in plain:
        return "skill"
    return "repository" if {"head", "objects", "refs"} <= plain else ""


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
def _opened(name: str, folder: int, *, unlock: bool = False) -> Generator[int]:
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
            if before is not None and before.st_ctime_ns > since_ns > 0:
                found.refuse(plan.path, "it was changed by somebody else during the run")
            elif plan.data is not None:
                _replace(parent, name, plan.data, plan.executable, before)
                kind = "added" if before is None else "changed"
                found.applied.append(ChangedFile(plan.path, kind, len(plan.data), digest_of(plan.data)))
            elif before is not None:
                os.unlink(name, dir_fd=parent)
                found.applied.append(ChangedFile(plan.path, "deleted"))
    except OSError as error:
        found.refuse(plan.path, error.strerror or "it cannot be written")


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
