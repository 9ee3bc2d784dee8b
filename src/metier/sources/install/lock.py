"""The lock file: which skills were installed, from where, and the digest of each file.

It is next to the folder of skills (`skills.lock.json` next to `skills`). It is plain JSON without timestamps and can be
committed. The digest of a skill is the SHA-256 of a JSON list of `[path, digest, executable]`, sorted by path. JSON
quotes every part, so two different trees never have the same text. While a skill is put into place, its entry names
the files before and after: if the process is killed, both are accounted for.
"""

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from metier import limits
from metier.errors import ConfigError
from metier.files.beneath import OPEN
from metier.files.digests import digest_of
from metier.files.json_text import read_json
from metier.files.tree import Row, TreeFile, tree_digest
from metier.values.value import Value

Scope = Literal["user", "project"]
"""Whose lock file it is."""


class Before(Value):
    """The skill that an install replaces. It has no files if there was none, or none that was installed."""

    digest: str = ""
    files: tuple[Row, ...] = ()


class Locked(Value, kw_only=True):
    """A skill as it was installed. `artifact` is the digest of its archive, if it came in one.

    `before` is there until the install is complete.
    """

    json_keys = ("source", "digest", "artifact", "before?", "files")

    source: str
    digest: str
    artifact: str = ""
    before: Before | None = None
    files: tuple[Row, ...]


class _LockFile(Value):
    version: Literal[1]
    skills: dict[str, Locked]


class LockFinding(Value):
    """A skill of a lock file, and how its files differ now. Without problems it is unchanged."""

    json_keys = ("scope", "name", "unchanged", "problems")

    scope: Scope
    name: str
    problems: tuple[str, ...] = ()

    @property
    def unchanged(self) -> bool:
        return not self.problems


def rows(entries: Iterable[TreeFile]) -> tuple[Row, ...]:
    return tuple(sorted(entry.row for entry in entries))


def location(root: str) -> str:
    """The lock file of a folder of skills."""
    return f"{root.rstrip('/')}.lock.json"


def read(root: str) -> dict[str, Locked]:
    """Read the lock file. A missing file has no skills, an invalid one is an error."""
    file = location(root)
    try:
        return msgspec.convert(read_json(file), _LockFile).skills
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


def write(root: str, skills: Mapping[str, Locked], temporary: str) -> None:
    """Replace the lock file in one step, through a temporary file on the same disk. Without skills, it is deleted."""
    file = location(root)
    listed = {name: skills[name].as_dict() for name in sorted(skills)}
    text = json.dumps({"version": 1, "skills": listed}, indent=2) + "\n"
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


def present(root: str, name: str, locked: Locked | None) -> Before:
    """What an install that replaces this skill finds: after an interrupted one, the files before it or its own."""
    if locked is None:
        return Before()
    if locked.before is not None and any(differences(os.path.join(root, name), locked.files)):
        return locked.before
    return Before(locked.digest, locked.files)


def _problems(root: str, name: str, locked: Locked) -> Iterator[str]:
    before, folder = locked.before, os.path.join(root, name)
    versions = [locked, before] if before is not None and before.files else [locked]
    if any(tree_digest(version.files) != version.digest for version in versions):
        yield "the lock file is inconsistent: its digest does not match its list of files"
        return
    if os.path.basename(name) != name:
        yield "its folder is missing or is a link"
        return
    found = list(differences(folder, locked.files))
    if before is not None:
        yield "its install was interrupted; install it again"
        # Until it is complete, the files before it are as good as its own.
        if found and (not any(differences(folder, before.files)) if before.files else not os.path.lexists(folder)):
            return
    yield from found


def differences(folder: str, files: Sequence[Row]) -> Iterator[str]:
    """Say how a folder differs from the files that were installed. Nothing in it is left out, and no link is followed.

    A file that does not belong there is not read. Modes are compared as far as they do not depend on the umask of
    whoever installed the skill or checked it out: the executable bit, special bits, and what every user can write.
    """
    try:
        mode = os.lstat(folder).st_mode
    except OSError:
        mode = 0
    if not stat.S_ISDIR(mode):
        yield "its folder is missing or is a link"
        return
    expected = {path: (digest, executable) for path, digest, executable in files}
    parents = {path[:cut] for path in expected for cut, char in enumerate(path) if char == "/"}
    problems = [("", problem) for problem in _mode_problems("its folder", mode)]
    seen: set[str] = set()
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            for entry in sorted(os.scandir(os.path.join(folder, below)), key=lambda entry: entry.name):
                path, mode = below + entry.name, entry.stat(follow_symlinks=False).st_mode
                seen.add(path)
                problems += ((path, found) for found in _compare(entry.path, path, mode, expected.get(path), parents))
                # Of a folder that was added, the files directly in it are named, so that a planted module is.
                if stat.S_ISDIR(mode) and (path in parents or not below or below[:-1] in parents):
                    pending.append(f"{path}/")
                if len(seen) > len(expected) + len(parents) + limits.INSTALL_FILES:
                    yield f"its folder has more than {limits.INSTALL_FILES:,} files that were added"
                    return
        except OSError as error:
            problems.append((below, f"{below or 'its folder'} cannot be read: {error.strerror}"))
    missing = ((path, f"{path} is missing") for path in expected.keys() - seen)
    yield from (problem for _, problem in sorted((*problems, *missing)))


def _compare(file: str, path: str, mode: int, wanted: tuple[str, bool] | None, parents: set[str]) -> Iterator[str]:
    """Compare one thing in the folder with what was installed there, if anything was."""
    kind = " and is a link" if stat.S_ISLNK(mode) else " and is neither a file nor a folder"
    if stat.S_ISDIR(mode):
        yield from _mode_problems(path, mode) if path in parents else (f"{path}/ was added",)
    elif wanted is None:
        yield f"{path} was added{'' if stat.S_ISREG(mode) else kind}"
    elif not stat.S_ISREG(mode):
        yield f"{path} is no longer a file{kind}"
    else:
        with os.fdopen(os.open(file, OPEN), "rb") as stream:
            digest = digest_of(stream.read(limits.INSTALL_BYTES + 1))  # no file that was installed is so large
        if digest != wanted[0]:
            yield f"{path} was changed"
        yield from _mode_problems(path, mode, executable=wanted[1])


def _mode_problems(shown: str, mode: int, *, executable: bool | None = None) -> Iterator[str]:
    """What is wrong with the mode of a file, or of a folder, which has no `executable`."""
    if executable is not None and bool(mode & 0o111) != executable:
        yield f"{shown} is {'no longer' if executable else 'now'} executable"
    # A folder may have the set-group-id bit because the folder around it has it.
    if mode & (stat.S_ISUID | stat.S_ISVTX | (stat.S_ISGID if executable is not None else 0)):
        yield f"{shown} has a special mode: {stat.filemode(mode)}"
    if mode & stat.S_IWOTH:
        yield f"{shown} can be written by every user: {stat.filemode(mode)}"
