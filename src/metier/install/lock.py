"""The lock file: which skills were installed, from where, and the digest of each file.

It is next to the folder of skills (`skills.lock.json` next to `skills`). It is plain JSON without timestamps and can be
committed. The digest of a skill is the SHA-256 of a JSON list of `[path, digest, executable]`, sorted by path. JSON
quotes every part, so two different trees never have the same text.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from metier import limits
from metier.errors import ConfigError, InstallError
from metier.files.beneath import read_regular
from metier.files.digests import digest_of
from metier.files.json_text import parse_json
from metier.files.shapes import is_list, is_table
from metier.files.tree import Row, tree_digest
from metier.install.archive import ArchiveEntry, read_folder

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Locked:
    """A skill as it was installed. `artifact` is the digest of its archive, if it came in one."""

    source: str
    digest: str
    artifact: str
    files: tuple[Row, ...]

    def as_dict(self) -> dict[str, object]:
        return {
            "source": self.source,
            "digest": self.digest,
            "artifact": self.artifact,
            "files": [list(row) for row in self.files],
        }


@dataclass(frozen=True, slots=True)
class LockFinding:
    """A skill of the lock file, and how its files differ now. Without problems it is unchanged."""

    name: str
    problems: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        return {"name": self.name, "unchanged": not self.problems, "problems": list(self.problems)}


def rows(entries: Iterable[ArchiveEntry]) -> tuple[Row, ...]:
    return tuple(sorted((entry.path, digest_of(entry.data), entry.executable) for entry in entries))


def location(root: str) -> str:
    """The lock file of a folder of skills."""
    return f"{root.rstrip('/')}.lock.json"


def read(root: str) -> dict[str, Locked]:
    """Read the lock file. A missing file has no skills, an invalid one is an error."""
    file = location(root)
    try:
        content: object = parse_json(read_regular(file, limits.REGISTRY_BYTES))
        return _skills(content)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        hint = "repair or delete it"
        raise ConfigError(f"the lock file cannot be read: {error}", file=file, hint=hint) from error


def _skills(content: object) -> dict[str, Locked]:
    if not is_table(content) or content.get("version") != VERSION:
        found = content.get("version") if is_table(content) else None
        raise ValueError(f"its version is {found!r}, not {VERSION}")
    listed = content.get("skills")
    if not is_table(listed):
        raise ValueError("it has no table of skills")
    return {name: _locked(name, value) for name, value in listed.items()}


def _locked(name: str, value: object) -> Locked:
    if is_table(value):
        source, digest, artifact = value.get("source"), value.get("digest"), value.get("artifact", "")
        rows = _rows(value.get("files"))
        if isinstance(source, str) and isinstance(digest, str) and isinstance(artifact, str) and rows is not None:
            return Locked(source, digest, artifact, rows)
    raise ValueError(f"the entry {name!r} is not valid")


def _rows(value: object) -> tuple[Row, ...] | None:
    found: list[Row] = []
    for row in value if is_list(value) else [None]:
        if not is_list(row) or len(row) != 3 or not isinstance(row[0], str) or not isinstance(row[1], str):
            return None
        found.append((row[0], row[1], bool(row[2])))
    return tuple(found)


def write(root: str, skills: Mapping[str, Locked]) -> None:
    """Replace the lock file. Without skills, it is deleted."""
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
        raise ConfigError(f"the lock file cannot be written: {error.strerror}", file=file) from error


def verify(root: str) -> list[LockFinding]:
    """Compare each skill of the lock file with its files on disk."""
    return [LockFinding(name, tuple(_problems(root, name, locked))) for name, locked in sorted(read(root).items())]


def _problems(root: str, name: str, locked: Locked) -> Iterable[str]:
    if tree_digest(locked.files) != locked.digest:
        yield "the lock file is inconsistent: its digest does not match its list of files"
        return
    folder = os.path.join(root, name)
    if os.path.basename(folder) != name or os.path.islink(folder) or not os.path.isdir(folder):
        yield "its folder is missing or is a link"
        return
    try:
        now = {path: (digest, executable) for path, digest, executable in rows(read_folder(folder))}
    except InstallError as error:
        yield str(error)
        return
    then = {path: (digest, executable) for path, digest, executable in locked.files}
    for path in sorted(then.keys() | now.keys()):
        if path not in now:
            yield f"{path} is missing"
        elif path not in then:
            yield f"{path} was added"
        elif now[path][0] != then[path][0]:
            yield f"{path} was changed"
        elif now[path][1] != then[path][1]:
            yield f"{path} is {'now' if now[path][1] else 'no longer'} executable"
