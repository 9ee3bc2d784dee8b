"""Publishes the skills of this server for others to fetch: an index, and one archive per skill.

The URL of an archive contains the digest of its bytes, and an archive that has changed since is not served under it.
The index lists only skills that a model may see, an archive contains only files beneath the skill's folder, and a skill
larger than a host accepts is left out. Files that are private by their name or content, such as hidden files and keys,
and compiled Python are never in an archive; the log says which ones a skill has.
"""

import gzip
import hashlib
import io
import logging
import os
import re
import stat
import tarfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, TypedDict

from metier.app import App
from metier.catalog.scan_cache import settled
from metier.errors import AmbiguousSkill, InvalidSkill, ResourceError, SkillNotFound
from metier.files.beneath import is_bytecode
from metier.files.source import DiskFiles
from metier.limits import WHOLE_FILE_BYTES
from metier.record.store.base import now_ms
from metier.session.session import Session
from metier.sources.install.fetch import INDEX, SCHEMA
from metier.values.skill import REMOTE, SKILL_FILE, Skill

FOLDER: Final = os.path.dirname(INDEX)

FILES: Final = 511
"""Files of one skill besides its SKILL.md. Together they may be as large as the largest file that a host reads."""

SKILLS: Final = 2_000
"""Skills in one index, in the order of the catalog."""

_PRIVATE: Final = (
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.gpg", "*.ovpn", "*.tfstate"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*_rsa", "*_ed25519"),
    *("env", "*.env", "env.local", "credentials", "credentials.*", "*credentials.json", "secret.*", "secrets.*"),
    *("*.secret", "*.secrets", "passwords.*", "passwd", "htpasswd", "_netrc", "netrc", "npmrc", "pypirc", "kubeconfig"),
    *("*.kubeconfig", "service-account*.json", "service_account*.json", "token", "token.*", "tokens.*", "*_token"),
)
"""Names of files that usually hold keys or passwords, in lower case. Hidden files and folders are private as well.
Markdown may have any of these names: it is about them."""
_KEY: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-")

_LOG: Final = logging.getLogger("metier")
_KNOWN: Final = 4 * SKILLS
_SHORT: Final = 16
"""Digits of the digest in the name of an archive. The index has the whole digest."""


class PublishedSkill(TypedDict):
    """One skill in the index."""

    name: str
    type: str
    description: str
    url: str
    digest: str


PublishedIndex = TypedDict("PublishedIndex", {"$schema": str, "skills": list[PublishedSkill]})


class _FileStamp(NamedTuple):
    path: str
    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int


_Signature = tuple[_FileStamp, ...]


class PublishedSkills:
    """The archives of one server. A digest is remembered as long as the files of its skill cannot have changed."""

    def __init__(self, app: App) -> None:
        self._app, self._disk = app, DiskFiles()
        self._lock = threading.Lock()
        self._viewer: Session | None = None
        self._known: OrderedDict[str, tuple[_Signature, str]] = OrderedDict()
        self._told: set[tuple[str, str]] = set()

    def index(self) -> PublishedIndex:
        listed: list[PublishedSkill] = []
        for skill in self._served():
            digest = self._digest(skill)
            if digest is not None:
                listed.append(
                    {
                        "name": skill.name,
                        "type": "archive",
                        "description": skill.description,
                        "url": f"{skill.name}-{digest[:_SHORT]}.tar.gz",
                        "digest": f"sha256:{digest}",
                    }
                )
        return {"$schema": SCHEMA, "skills": listed}

    def archive(self, name: str) -> bytes | None:
        """The archive of that name, or `None` if there is none or it has changed since."""
        stem = name.removesuffix(".tar.gz")
        wanted, _, short = stem.rpartition("-")
        if stem == name or len(short) != _SHORT:
            return None
        skill = next((skill for skill in self._served() if skill.name == wanted), None)
        packed = self._pack(skill) if skill is not None else None
        return packed if packed is not None and _sha256(packed).startswith(short) else None

    def _served(self) -> Iterator[Skill]:
        """The skills that a model may see and that their name identifies. Skills of other servers are not published."""
        with self._lock:
            if self._viewer is None:
                self._viewer = self._app.skills().session(surface="http")
        catalog = self._viewer.skills.catalog
        count = 0
        for skill in self._viewer.visible():
            try:
                if count < SKILLS and skill.scope != REMOTE and catalog.find(skill.name) is skill:
                    skill.name.encode()
                    count += 1
                    yield skill
            except (AmbiguousSkill, SkillNotFound, InvalidSkill, UnicodeEncodeError):
                continue

    def _digest(self, skill: Skill) -> str | None:
        before = self._signature(skill)
        with self._lock:
            known = self._known.get(skill.path)
        if known is not None and known[0] == before:
            return known[1]
        packed = self._pack(skill)
        if packed is None:
            return None
        digest = _sha256(packed)
        if before is not None and before == self._signature(skill) and _is_settled(before):
            with self._lock:
                self._known[skill.path] = (before, digest)
                while len(self._known) > _KNOWN:
                    self._known.popitem(last=False)
        return digest

    def _files(self, skill: Skill) -> tuple[str, ...] | None:
        try:
            listing = self._disk.listing(skill, FILES, WHOLE_FILE_BYTES)
        except ResourceError:
            return None
        if listing.truncated:
            return None
        public = [path for path in listing.files if not is_private(path)]
        for path in set(listing.files).difference(public):
            self._tell(skill, path)
        return (SKILL_FILE, *public)

    def _tell(self, skill: Skill, path: str) -> None:
        """Log a file that is not published, once."""
        if (skill.path, path) not in self._told:
            self._told.add((skill.path, path))
            _LOG.warning("%s: %s is private and is not published", skill.name, path)

    def _signature(self, skill: Skill) -> _Signature | None:
        found: list[_FileStamp] = []
        for path in self._files(skill) or ():
            try:
                status = os.stat(os.path.join(skill.dir, path))
            except (OSError, ValueError):
                return None
            found.append(
                _FileStamp(path, status.st_mtime_ns, status.st_ctime_ns, size=status.st_size, inode=status.st_ino)
            )
        return tuple(found) or None

    def _pack(self, skill: Skill) -> bytes | None:
        """An archive that depends on the files only: sorted, without times and owners, and with one of two modes."""
        files = self._files(skill)
        if files is None:
            return None
        left = WHOLE_FILE_BYTES
        inside = io.BytesIO()
        with tarfile.open(fileobj=inside, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in files:
                try:
                    content = (
                        self._disk.skill_file(skill, left + 1)
                        if path == SKILL_FILE
                        else self._disk.resource(skill, path, left + 1)
                    )
                except ResourceError:
                    if path == SKILL_FILE:
                        return None
                    continue  # an unreadable file is not published
                left -= len(content.data)
                if left < 0:
                    return None
                if _KEY.search(content.data):
                    self._tell(skill, path)
                    if path == SKILL_FILE:
                        return None
                    continue
                member = tarfile.TarInfo(path)
                member.size, member.mode = len(content.data), 0o755 if _runs(skill, path) else 0o644
                archive.addfile(member, io.BytesIO(content.data))
        return gzip.compress(inside.getvalue(), compresslevel=6, mtime=0)


def is_private(path: str) -> bool:
    """Whether a file of a skill is not published: a hidden one, one that is named like a key, or compiled Python."""
    *folders, name = path.casefold().split("/")
    if is_bytecode(path) or any(part.startswith(".") for part in (*folders, name)):
        return True
    return not name.endswith(".md") and any(fnmatchcase(name, shape) for shape in _PRIVATE)


def _runs(skill: Skill, path: str) -> bool:
    try:
        return bool(os.stat(os.path.join(skill.dir, path)).st_mode & stat.S_IXUSR)
    except OSError:
        return False


def _is_settled(signature: _Signature) -> bool:
    now = now_ms() * 1_000_000
    return all(settled(file.mtime_ns, file.ctime_ns, now) for file in signature)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
