"""The lock file: what was installed, from where, and the digest of each file as it was then.

It stands beside the folder of skills (`skills.lock.json` beside `skills`), is plain JSON with nothing of the moment in
it, and can be committed. The digest of a skill is the SHA-256 of a JSON list of `[path, digest, executable]`, sorted by
path: JSON quotes every part, so that no two different trees have one text.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from metier import limits
from metier.errors import ConfigError, InstallError
from metier.files.beneath import read_regular
from metier.files.digests import digest_of
from metier.install.archive import ArchiveEntry, read_folder

VERSION: Final = 1

Row = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class Locked:
    """One skill as it was installed. `artifact` is the digest of the archive it came in, if it came in one."""

    source: str
    digest: str
    artifact: str
    files: tuple[Row, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "digest": self.digest,
            "artifact": self.artifact,
            "files": [list(row) for row in self.files],
        }


@dataclass(frozen=True, slots=True)
class LockFinding:
    """One skill of the lock file, and what is different now; nothing where it is as it was."""

    name: str
    problems: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "unchanged": not self.problems, "problems": list(self.problems)}


def rows(entries: Iterable[ArchiveEntry]) -> tuple[Row, ...]:
    return tuple(sorted((entry.path, digest_of(entry.data), entry.executable) for entry in entries))


def tree_digest(files: Sequence[Row]) -> str:
    return digest_of(json.dumps([list(row) for row in sorted(files)], separators=(",", ":")).encode())


def location(root: str) -> str:
    """The lock file of a folder of skills."""
    return f"{root.rstrip('/')}.lock.json"


def read(root: str) -> dict[str, Locked]:
    """What the lock file says; a missing one says nothing, a broken one is an error."""
    file = location(root)
    try:
        content: Any = json.loads(read_regular(file, limits.REGISTRY_BYTES))
        if content["version"] != VERSION:
            raise ValueError(f"its version is {content['version']!r}, not {VERSION}")
        listed = cast("Mapping[str, Mapping[str, Any]]", content["skills"])
        return {str(name): _locked(value) for name, value in listed.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"the lock file cannot be read: {error}", file=file, hint="mend it, or delete it") from error


def _locked(value: Mapping[str, Any]) -> Locked:
    files = tuple((str(path), str(digest), bool(executable)) for path, digest, executable in value["files"])
    return Locked(str(value["source"]), str(value["digest"]), str(value.get("artifact", "")), files)


def write(root: str, skills: Mapping[str, Locked]) -> None:
    """Put the lock file in place of the one before; without skills there is none."""
    file = location(root)
    listed = {name: skills[name].as_dict() for name in sorted(skills)}
    text = json.dumps({"version": VERSION, "skills": listed}, indent=2) + "\n"
    temporary = ""
    try:
        if not skills:
            os.unlink(file)
            return
        descriptor, temporary = tempfile.mkstemp(prefix=".lock-", dir=os.path.dirname(file))
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except FileNotFoundError:
        return
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise ConfigError(f"cannot be written: {error.strerror}", file=file) from error


def verify(root: str) -> list[LockFinding]:
    """Each skill of the lock file against what lies in the folder now."""
    return [LockFinding(name, tuple(_problems(root, name, locked))) for name, locked in sorted(read(root).items())]


def _problems(root: str, name: str, locked: Locked) -> Iterable[str]:
    if tree_digest(locked.files) != locked.digest:
        yield "the lock file contradicts itself: its digest is not that of its files"
        return
    folder = os.path.join(root, name)
    if os.path.basename(folder) != name or os.path.islink(folder) or not os.path.isdir(folder):
        yield "its folder is not there, or is a link now"
        return
    try:
        now = {path: (digest, executable) for path, digest, executable in rows(read_folder(folder))}
    except InstallError as error:
        yield str(error)
        return
    then = {path: (digest, executable) for path, digest, executable in locked.files}
    for path in sorted(then.keys() | now.keys()):
        if path not in now:
            yield f"{path} is gone"
        elif path not in then:
            yield f"{path} was added"
        elif now[path][0] != then[path][0]:
            yield f"{path} was changed"
        elif now[path][1] != then[path][1]:
            yield f"{path} is {'now' if now[path][1] else 'no longer'} executable"
