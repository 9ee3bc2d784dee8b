"""The lock file: which skills were installed, from where, and the digest of each file.

It is next to the folder of skills (`skills.lock.json` next to `skills`). It is plain JSON without timestamps and can be
committed. The digest of a skill is the SHA-256 of a JSON list of `[path, digest, executable]`, sorted by path. JSON
quotes every part, so two different trees never have the same text.
"""

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from metier import limits
from metier.errors import ConfigError
from metier.files.beneath import OPEN
from metier.files.digests import digest_of
from metier.files.json_text import read_json
from metier.files.shapes import as_table, is_table
from metier.files.tree import Row, tree_digest
from metier.sources.install.archive import ArchiveEntry
from metier.values.value import Value

VERSION: Final = 1

Scope = Literal["user", "project"]
"""Whose lock file it is."""


class Locked(Value, kw_only=True):
    """A skill as it was installed. `artifact` is the digest of its archive, if it came in one."""

    source: str
    digest: str
    artifact: str = ""
    files: tuple[Row, ...]


class LockFinding(Value):
    """A skill of a lock file, and how its files differ now. Without problems it is unchanged."""

    json_keys = ("scope", "name", "unchanged", "problems")

    scope: Scope
    name: str
    problems: tuple[str, ...] = ()

    @property
    def unchanged(self) -> bool:
        return not self.problems


def rows(entries: Iterable[ArchiveEntry]) -> tuple[Row, ...]:
    return tuple(sorted((entry.path, digest_of(entry.data), entry.executable) for entry in entries))


def location(root: str) -> str:
    """The lock file of a folder of skills."""
    return f"{root.rstrip('/')}.lock.json"


def read(root: str) -> dict[str, Locked]:
    """Read the lock file. A missing file has no skills, an invalid one is an error."""
    file = location(root)
    try:
        return _skills(read_json(file))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        hint = "repair or delete it"
        raise ConfigError(f"the lock file cannot be read: {error}", file=file, hint=hint) from error


def installed_from(folder: str) -> str:
    """The source of an installed skill; empty for one that was not installed, or whose lock file cannot be read."""
    try:
        entry = read(os.path.dirname(folder)).get(os.path.basename(folder))
    except ConfigError:
        return ""
    return entry.source if entry is not None else ""


def _skills(content: object) -> dict[str, Locked]:
    table = as_table(content)
    if table.get("version") != VERSION:
        raise ValueError(f"its version is {table.get('version')!r}, not {VERSION}")
    listed = table.get("skills")
    if not is_table(listed):
        raise ValueError("it has no table of skills")
    return {name: _parse(name, value) for name, value in listed.items()}


def _parse(name: str, value: object) -> Locked:
    """An entry of the lock file. Raises `ValueError` if it is not valid."""
    try:
        return msgspec.convert(value, Locked)
    except msgspec.ValidationError as error:
        raise ValueError(f"the entry {name!r} is not valid: {error}") from error


def write(root: str, skills: Mapping[str, Locked], temporary: str) -> None:
    """Replace the lock file in one step, through a temporary file on the same disk. Without skills, it is deleted."""
    file = location(root)
    listed = {name: skills[name].as_dict() for name in sorted(skills)}
    text = json.dumps({"version": VERSION, "skills": listed}, indent=2) + "\n"
    try:
        if not skills:
            os.unlink(file)
            return
        with open(temporary, "w", encoding="ascii") as stream:
            stream.write(text)
        os.replace(temporary, file)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"the lock file cannot be written: {error.strerror}", file=file) from error


# --- comparing ---


def verify(root: str, scope: Scope) -> list[LockFinding]:
    """Compare each skill of the lock file with everything in its folder."""
    listed = sorted(read(root).items())
    return [LockFinding(scope, name, tuple(_problems(root, name, locked))) for name, locked in listed]


def _problems(root: str, name: str, locked: Locked) -> Iterator[str]:
    if tree_digest(locked.files) != locked.digest:
        yield "the lock file is inconsistent: its digest does not match its list of files"
    elif os.path.basename(name) != name:
        yield "its folder is missing or is a link"
    else:
        yield from differences(os.path.join(root, name), locked.files)


_SPECIAL: Final = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX


def differences(folder: str, files: Sequence[Row]) -> Iterator[str]:
    """Say how a folder differs from the files that were installed. Nothing in it is left out, and no link is followed.

    A file that does not belong there is not read. Modes are compared as far as they do not depend on the umask of
    whoever installed the skill or checked it out: the executable bit, special bits, and what every user can write.
    """
    expected = {path: (digest, executable) for path, digest, executable in files}
    parents = {path[:cut] for path in expected for cut, char in enumerate(path) if char == "/"}
    try:
        opened = os.open(folder, OPEN | os.O_DIRECTORY)
    except OSError:
        yield "its folder is missing or is a link"
        return
    seen: set[str] = set()
    problems: list[tuple[str, str]] = []
    try:
        problems += _mode_problems("", os.fstat(opened).st_mode, executable=None)
        left = len(expected) + len(parents) + limits.INSTALL_FILES
        pending = [("", os.dup(opened))]
        while pending:
            below, descriptor = pending.pop()
            try:
                for name in sorted(os.listdir(descriptor)):
                    left -= 1
                    if left < 0:
                        break
                    path = below + name
                    mode = os.lstat(name, dir_fd=descriptor).st_mode
                    seen.add(path)
                    if stat.S_ISDIR(mode) and path in parents:
                        problems += _mode_problems(path, mode, executable=None)
                        pending.append((f"{path}/", os.open(name, OPEN | os.O_DIRECTORY, dir_fd=descriptor)))
                    elif stat.S_ISDIR(mode):
                        problems += _added_folder(path, name, descriptor)
                    elif path not in expected:
                        problems.append((path, f"{path} was added{_kind(mode)}"))
                    elif not stat.S_ISREG(mode):
                        problems.append((path, f"{path} is no longer a file{_kind(mode)}"))
                    else:
                        problems += _changed(path, name, descriptor, *expected[path])
            except OSError as error:
                problems.append((below, f"{below or 'its folder'} cannot be read: {error.strerror}"))
            finally:
                os.close(descriptor)
        if left < 0:
            problems.append(("", f"its folder has more than {limits.INSTALL_FILES:,} files that were added"))
    finally:
        os.close(opened)
    missing = ((path, f"{path} is missing") for path in expected.keys() - seen)
    for _, problem in sorted((*problems, *missing)):
        yield problem


def _added_folder(path: str, name: str, folder: int) -> Iterator[tuple[str, str]]:
    """A folder that was added, with the files directly in it, so that a planted module is named."""
    yield path, f"{path}/ was added"
    opened = os.open(name, OPEN | os.O_DIRECTORY, dir_fd=folder)
    try:
        listed = sorted(os.listdir(opened))
    finally:
        os.close(opened)
    for inside in listed[:_NAMED]:
        yield f"{path}/{inside}", f"{path}/{inside} was added"
    if len(listed) > _NAMED:
        yield f"{path}/{listed[_NAMED]}", f"{path}/ has {len(listed) - _NAMED:,} more that were added"


_NAMED: Final = 100
"""How many files of a folder that was added are named."""


def _changed(path: str, name: str, folder: int, digest: str, executable: bool) -> Iterator[tuple[str, str]]:
    with os.fdopen(os.open(name, OPEN, dir_fd=folder), "rb") as stream:
        status = os.fstat(stream.fileno())
        found = digest_of(stream.read(limits.INSTALL_BYTES + 1))  # no file that was installed is so large
    if found != digest:
        yield path, f"{path} was changed"
    yield from _mode_problems(path, status.st_mode, executable=executable)


def _mode_problems(path: str, mode: int, *, executable: bool | None) -> Iterator[tuple[str, str]]:
    shown = path or "its folder"
    if executable is not None and bool(mode & 0o111) != executable:
        yield path, f"{shown} is {'no longer' if executable else 'now'} executable"
    # A folder may have the set-group-id bit because the folder around it has it.
    if mode & (_SPECIAL if executable is not None else stat.S_ISUID | stat.S_ISVTX):
        yield path, f"{shown} has a special mode: {stat.filemode(mode)}"
    if mode & stat.S_IWOTH:
        yield path, f"{shown} can be written by every user: {stat.filemode(mode)}"


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return ""
    return " and is a link" if stat.S_ISLNK(mode) else " and is neither a file nor a folder"
