"""Exact versions of what a script wants, with hashes, in a folder of Metier's own and never in that of the skill.

A lock is found by the digest of what is wanted, of the interpreter and of the platform. Its own digest names the
environment, is part of what a person approves, and is in the record.
"""

import json
import os
import platform
import sysconfig
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import msgspec

from metier.files.beneath import read_regular
from metier.files.digests import digest_of, digits
from metier.files.replace import replacing
from metier.limits import MIB
from metier.running.packages import MANIFEST_BYTES, Ecosystem, Wanted
from metier.values.value import Value, replace


class Package(Value):
    """One distribution in an exact version. `size` is that of its archive in bytes, or 0 if the index does not say."""

    name: str
    version: str
    size: int = 0
    hashes: tuple[str, ...] = ()
    inferred: bool = False
    """Whether nobody declared it, and it was taken from an import."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Lock(Value, kw_only=True, dict=True):
    """See the module. `document` is the package-lock.json of a Node script."""

    unshown = (
        "document",
        "manifest",
    )

    kind: Ecosystem
    python: str = ""
    platform: str = ""
    source: str = ""
    packages: tuple[Package, ...]
    left_out: tuple[str, ...] = ()
    """Names that were inferred and cannot be had, each with the reason."""
    document: str = ""
    manifest: str = ""

    @cached_property
    def data(self) -> bytes:
        """The lock as it is stored and recorded."""
        return json.dumps(self.as_dict(), indent=1, sort_keys=True, ensure_ascii=False).encode()

    @cached_property
    def digest(self) -> str:
        return digest_of(self.data)

    @cached_property
    def content(self) -> str:
        """The digest of what is installed, whatever it was wanted for. It names the environment."""
        return digest_of(replace(self, source="", left_out=()).data)

    @property
    def size(self) -> int:
        return sum(one.size for one in self.packages)

    def as_requirements(self) -> str:
        """The lock in the form that installers read."""
        return "".join(
            f"{one.name}=={one.version}{''.join(f' --hash={value}' for value in one.hashes)}\n" for one in self.packages
        )

    @classmethod
    def parse(cls, data: bytes) -> "Lock":
        """A stored lock. Raises `ValueError` if it is none."""
        return msgspec.json.decode(data, type=cls)


def here() -> str:
    """The platform that packages are chosen for: two libraries of C on one machine need different wheels."""
    return f"{sysconfig.get_platform()}-{'-'.join(platform.libc_ver())}".rstrip("-")


def key(wanted: Wanted, python: str) -> str:
    """What a lock is found by."""
    parts = (
        wanted.kind,
        wanted.requirements,
        wanted.source,
        wanted.inferred,
        python,
        here(),
        digest_of(wanted.manifest),
        digest_of(wanted.locked),
    )
    return digits(digest_of(json.dumps(parts).encode()))


class Locks:
    """The locks in a folder, one file each."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find(self, key: str) -> Lock | None:
        """The lock that was kept under a key. One that cannot be read is made anew."""
        with suppress(OSError, ValueError, RecursionError):
            return Lock.parse(read_regular(self._path(key), MANIFEST_BYTES + 16 * MIB))
        return None

    def keep(self, key: str, lock: Lock) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        with replacing(self._path(key)) as stream:
            stream.write(lock.data.decode())

    def all(self) -> list[Lock]:
        """Every lock, in a fixed order."""
        return [lock for key in self._keys() if (lock := self.find(key)) is not None]

    def clear(self) -> int:
        """Delete every lock; how many there were."""
        keys = self._keys()
        for key in keys:
            Path(self._path(key)).unlink(missing_ok=True)
        return len(keys)

    def _keys(self) -> list[str]:
        return sorted(path.stem for path in Path(self.folder).glob("*.json"))

    def _path(self, key: str) -> str:
        return os.path.join(self.folder, f"{key}.json")
