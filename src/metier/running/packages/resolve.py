"""From what is wanted to exact versions with hashes. Only the index is read, and only wheels count: what has none would
have to be built, and that runs its code before anybody was asked.

What was declared must be there as declared. A name that was only inferred from an import may be wrong: where it is on
no index, or has nothing for this interpreter, it is left out and the lock says so.
"""

import hashlib
import os
import re
import time
import tomllib
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, urlsplit

from metier.files.shapes import is_list, is_table
from metier.running.packages import PackagesUnavailable, Wanted, node, programs
from metier.running.packages.declared import name_of, requirement
from metier.running.packages.interpreters import Interpreter
from metier.running.packages.lock import Lock, Package, here

SECONDS: Final = 120.0
"""How long resolving may take. It usually takes a second."""
_SIZE_SECONDS: Final = 5.0
_AT_ONCE: Final = 16
_NO_WHEEL: Final = "it, or a package that it needs, has no wheel, and packages are not built"
_ADDRESS: Final = re.compile(r"for (?:package )?`([\w.-]+).* `([^`]+)` was included as a URL dependency")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


def resolve(wanted: Wanted, interpreter: Interpreter | None, workplace: programs.Workplace) -> Lock:
    """The lock for what is wanted. Raises `PackagesUnavailable` if that cannot be had."""
    if wanted.refused:
        raise PackagesUnavailable("; ".join(wanted.refused))
    if wanted.kind == "node":
        return node.resolve(wanted, workplace)
    if interpreter is None:
        raise PackagesUnavailable("no Python is installed here that scripts can run with")
    return _Resolution(wanted, interpreter, workplace).lock()


class _Resolution:
    """One look at the index, with what was left out of it."""

    def __init__(self, wanted: Wanted, interpreter: Interpreter, workplace: programs.Workplace) -> None:
        self._wanted, self._interpreter, self._workplace = wanted, interpreter, workplace
        self._variables = programs.environment("uv", workplace.home)
        self._uv = programs.uv_pip("compile", self._variables)
        self._until = time.monotonic() + SECONDS
        self._addresses: dict[str, str] = {}
        """Where the file of each package is."""

    def lock(self) -> Lock:
        names = list(self._wanted.requirements)
        left_out: dict[str, str] = {}
        try:
            packages = self._ask(names)
        except PackagesUnavailable as error:
            if not self._wanted.inferred:
                raise
            left_out = self._unknown(str(error))
            names = [one for one in names if one not in left_out]
            packages = self._ask(names) if names else ()
        inferred = {name_of(one) for one in self._wanted.inferred}
        sizes = lengths({one.name: self._addresses.get(one.name, "") for one in packages if not one.size})
        return Lock(
            kind="python",
            python=self._interpreter.short,
            platform=here(),
            source=self._wanted.source,
            packages=tuple(
                Package(one.name, one.version, one.size or sizes.get(one.name, 0), one.hashes, one.name in inferred)
                for one in packages
            ),
            left_out=tuple(f"{name}: {why}" for name, why in left_out.items()),
        )

    def _unknown(self, message: str) -> dict[str, str]:
        """The inferred names that cannot be had: those that the message names, and else each is tried alone."""
        found: dict[str, str] = {}
        rest = list(self._wanted.requirements)
        while rest:
            named = [one for one in self._wanted.inferred if one in rest and _is_missing(one, message)]
            if not named:
                break
            found |= dict.fromkeys(named, "it is on no index that is set up here")
            rest = [one for one in rest if one not in found]
            try:
                self._ask(rest)
            except PackagesUnavailable as error:
                message = str(error)
                continue
            return found
        declared = [one for one in self._wanted.requirements if one not in self._wanted.inferred]
        kept = declared
        for one in rest:
            if one in declared:
                continue
            try:
                self._ask([*kept, one])
            except PackagesUnavailable as error:
                if time.monotonic() > self._until:
                    raise
                found[one] = _NO_WHEEL if "no usable wheels" in str(error) else str(error)[:200]
            else:
                kept = [*kept, one]
        return found

    def _ask(self, names: Sequence[str]) -> Sequence[Package]:
        if not names:
            return ()
        file = os.path.join(self._workplace.folder, "wanted.txt")
        with open(file, "w", encoding="utf-8") as stream:
            stream.write("".join(f"{one}\n" for one in names))
        packages = self._compile(file)
        for package in packages:
            if not package.hashes:
                raise PackagesUnavailable("the index gives no hashes of its files")
            if not requirement(f"{package.name}=={package.version}"):
                raise PackagesUnavailable(f"{package} is not a name with a version")
        return sorted(packages, key=lambda one: one.name)

    def _compile(self, file: str) -> list[Package]:
        output = os.path.join(self._workplace.folder, "pylock.toml")
        command = (
            *(*self._uv, "--quiet", "--no-header", "--no-annotate", "--format", "pylock.toml"),
            *("--no-progress", "--python", self._interpreter.path, "--no-python-downloads", "--generate-hashes"),
            *("--no-build", "--output-file", output, file),
        )
        seconds = max(1.0, self._until - time.monotonic())
        try:
            programs.call(command, workplace=self._workplace, seconds=seconds, variables=self._variables)
        except PackagesUnavailable as error:
            if found := _ADDRESS.search(str(error)):  # uv would have the user add that address
                raise PackagesUnavailable(
                    f"{found[1]} asks for {found[2]} at an address, and not from an index"
                ) from None
            raise
        with open(output, "rb") as stream:
            table: Mapping[str, object] = tomllib.load(stream)
        os.unlink(output)  # uv takes the versions of a file that is there
        located = [_of_pylock(row) for row in _tables(table.get("packages"))]
        self._addresses |= {one.name: address for one, address in located}
        return [one for one, _ in located]


def _is_missing(requirement: str, message: str) -> bool:
    """Whether uv says that a name is not there at all."""
    name = re.escape(name_of(requirement)).replace("\\-", "[-_.]+")
    words = rf"(?<![\w.-]){name}(?:\[[^\]]*\])? was not found in the (?:package registry|provided package locations)"
    return bool(re.search(words, message, re.IGNORECASE))


def _of_pylock(row: Mapping[str, object]) -> tuple[Package, str]:
    """A package, and where its file is."""
    if any(key in row for key in ("vcs", "directory", "archive")):
        raise PackagesUnavailable(f"{row.get('name')} comes from an address of a package, and not from an index")
    files = [one for key in ("wheels", "sdist") for one in _tables(row.get(key))]
    hashes = tuple(dict.fromkeys(f"sha256:{value}" for one in files for value in _sha256(one.get("hashes"))))
    sizes = (size for one in files if isinstance(size := one.get("size"), int))
    size, hashes = next(sizes, 0) or _on_disk(files)[0], hashes or _on_disk(files)[1]
    address = next((str(one["url"]) for one in files if one.get("url")), "")
    return Package(name_of(str(row.get("name"))), str(row.get("version")), size, hashes), address


def _tables(value: object) -> list[Mapping[str, object]]:
    if is_table(value):
        return [value]
    return [one for one in value if is_table(one)] if is_list(value) else []


def _sha256(hashes: object) -> list[str]:
    value = hashes.get("sha256") if is_table(hashes) else None
    return [value] if isinstance(value, str) and _HASH.fullmatch(value) else []


def _on_disk(files: Sequence[Mapping[str, object]]) -> tuple[int, tuple[str, ...]]:
    """The size and the hash of the first file, where it is on this machine. An index may be a folder without hashes."""
    for one in files:
        address = urlsplit(str(one.get("url") or one.get("path") or ""))
        if address.scheme in ("file", "") and os.path.isfile(path := unquote(address.path)):
            with open(path, "rb") as stream:
                return os.path.getsize(path), (f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}",)
    return 0, ()


def lengths(addresses: Mapping[str, str]) -> dict[str, int]:
    """The lengths of files whose index does not tell them, by the names that the addresses were given under.

    The server of each file is asked, all at once, and only for headers. What does not come in time stays unknown.
    """
    https = {name: address for name, address in addresses.items() if address.startswith("https://")}
    if not https:
        return {}
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sizes")
    asked = {name: pool.submit(_length, address) for name, address in https.items()}
    wait(asked.values(), timeout=_SIZE_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    return {name: one.result() for name, one in asked.items() if one.done() and not one.cancelled() and one.result()}


def _length(address: str) -> int:
    with suppress(OSError, ValueError):
        request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - only https comes here
        with urllib.request.urlopen(request, timeout=_SIZE_SECONDS) as answer:  # noqa: S310
            return int(answer.headers.get("Content-Length") or 0)
    return 0
