"""Packages for Node, by npm, which gets files that are written here and the registry of the user, nothing of a skill.

For npm, a dependency can also be a repository, an address, a file, a folder or another name for a package, and looking
some of these up runs their code. A skill names packages of a registry, with versions and hashes. Everything else that
it names is refused, in every row of its lock, also in those that would not be installed. The lock that is written has
no addresses: npm asks the registry of the user for each file and compares its hash. Scripts of packages are never run
(`--ignore-scripts`). What npm installed is compared with the lock: another package, version or place is an error.
"""

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

from metier.files.beneath import read_regular
from metier.files.json_text import parse_json
from metier.files.shapes import as_table, is_list, is_table
from metier.running.packages import MANIFEST_BYTES, PackagesUnavailable, Wanted, programs
from metier.running.packages.lock import Lock, Package, here

_SECONDS: Final = 180.0
_WORDS: Final = ("--ignore-scripts", "--no-workspaces", "--no-audit", "--no-fund", "--no-update-notifier")
_SOURCES: Final = {f"npm_config_allow_{kind}": "none" for kind in ("git", "remote", "file", "directory")}
"""Packages of a registry can ask for those, too. npm before version 11 does not know this, and has no git program."""


def resolve(wanted: Wanted, workplace: programs.Workplace) -> Lock:
    """The lock of a Node script. Raises `PackagesUnavailable`."""
    document = wanted.locked
    if not document:
        _write(workplace.folder, "package.json", wanted.manifest)
        _npm(workplace, "install", "--package-lock-only")
        written = read_regular(os.path.join(workplace.folder, "package-lock.json"), 16 * MANIFEST_BYTES)
        try:
            document = written_lock(written, parse_json(wanted.manifest)["dependencies"], aliases=True)
        except EntriesRefused as error:
            raise PackagesUnavailable(f"its packages need more than packages of a registry: {error.args[0]}") from None
    rows, dependencies = rows_of(document)
    packages = (Package(name_at(at, row), str(row["version"]), 0, (str(row["integrity"]),)) for at, row in rows.items())
    return Lock(
        kind="node",
        platform=here(),
        source=wanted.source,
        packages=tuple(sorted(packages, key=lambda package: (package.name, package.version))),
        document=document.decode(),
        manifest=written_manifest(dependencies).decode(),
    )


def install(lock: Lock, workplace: programs.Workplace) -> None:
    """Install what a lock has into `node_modules` of a folder. Raises `PackagesUnavailable`."""
    _write(workplace.folder, "package.json", lock.manifest.encode())
    _write(workplace.folder, "package-lock.json", lock.document.encode())
    _npm(workplace, "ci")
    os.makedirs(os.path.join(workplace.folder, "node_modules"), exist_ok=True)
    rows, _ = rows_of(lock.document)
    asked = {at: (name_at(at, row), _plain(row["version"])) for at, row in rows.items()}
    installed = dict(_installed(workplace.folder, "node_modules"))
    missing = [at for at, row in rows.items() if at not in installed and not row.get("optional")]
    if wrong := [at for at, found in installed.items() if asked.get(at) != found] + missing:
        raise PackagesUnavailable(f"npm installed something else than was asked for: {', '.join(wrong[:5])}")


def _installed(folder: str, modules: str) -> Iterator[tuple[str, tuple[object, str]]]:
    """Each package below a folder of modules: its place, and the name and version that it has itself."""
    for name in os.listdir(os.path.join(folder, modules)) if os.path.isdir(os.path.join(folder, modules)) else ():
        at = f"{modules}/{name}"
        if name.startswith("@") and "@" not in modules.rpartition("/")[2]:
            yield from _installed(folder, at)
        elif not name.startswith("."):
            table: dict[str, object] = {}
            with suppress(OSError, ValueError, RecursionError):
                if not os.path.islink(os.path.join(folder, at)):
                    table = as_table(parse_json(read_regular(os.path.join(folder, at, "package.json"), MANIFEST_BYTES)))
            yield at, (table.get("name"), _plain(table.get("version")))
            yield from _installed(folder, f"{at}/node_modules")


def _plain(version: object) -> str:
    """A version as registries compare it. The file of a package may have more."""
    return re.sub(r"^[v=\s]+|\+.*|\s+$", "", str(version))


def _npm(workplace: programs.Workplace, *words: str) -> None:
    npm, settings = programs.npm(), os.path.join(workplace.home, ".npmrc")
    asked = [npm, "config", "get", "globalconfig", "userconfig", "--no-workspaces"]
    said = programs.call(asked, workplace=workplace, seconds=_SECONDS, variables={**os.environ, "NODE_OPTIONS": ""})
    files = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    with open(os.open(settings, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(programs.npmrc(files.get(key, "") for key in ("globalconfig", "userconfig")))
    own = {"userconfig": settings, "globalconfig": os.devnull, "prefix": workplace.folder, "git": os.devnull}
    variables = programs.environment("npm", workplace.home) | _SOURCES
    variables |= {f"npm_config_{key}": value for key, value in own.items()}
    programs.call([npm, *words, *_WORDS], workplace=workplace, seconds=_SECONDS, variables=variables)


def _write(folder: str, name: str, data: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as stream:
        stream.write(data)


# --- the files of npm ---

Row = dict[str, object]
Rows = dict[str, Row]
"""The packages of a lock by their places, such as `node_modules/a/node_modules/b`."""

_ROWS: Final = 10_000
_SHOWN: Final = 120
_NAMED: Final = r"(?:@[A-Za-z0-9][\w.~-]*/)?[A-Za-z0-9][\w.~-]*"
_NAME: Final = re.compile(_NAMED, re.ASCII)
_PLACE: Final = re.compile(rf"node_modules/{_NAMED}(?:/node_modules/{_NAMED})*", re.ASCII)
_MORE: Final = r"(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"
_EXACT: Final = re.compile(rf"\d+\.\d+\.\d+{_MORE}", re.ASCII)
_PARTIAL: Final = rf"v?(?:\d+|[xX*])(?:\.(?:\d+|[xX*])){{0,2}}{_MORE}"
_BOUND: Final = rf"(?:(?:[<>]=?|=|\^|~>?) *)?{_PARTIAL}"
_BOUNDS: Final = re.compile(rf"(?:{_PARTIAL} +- +{_PARTIAL}|{_BOUND}(?:(?: +|(?=[<>=^~])){_BOUND})*)?", re.ASCII)
_TAG: Final = re.compile(r"[A-Za-z][\w-]*(?:\.[\w-]+)*", re.ASCII)
_FILE: Final = re.compile(r"\.(?:tgz|tar|tar\.gz)\s*\Z", re.IGNORECASE)
"""The end of what npm takes for a file, also where all of it is a version."""
_HASH: Final = "(?:sha512-{0}{{86}}==|sha384-{0}{{64}}|sha256-{0}{{43}}=|sha1-{0}{{27}}=)".format("[A-Za-z0-9+/]")
_HASHES: Final = re.compile(rf"{_HASH}(?: {_HASH})*")
_EDGES: Final = ("dependencies", "optionalDependencies", "peerDependencies")
_ELSEWHERE: Final = ("link", "inBundle", "bundled", "bundleDependencies", "bundledDependencies")
_CPUS: Final = {"x86_64": "x64", "aarch64": "arm64", "i686": "ia32", "armv7l": "arm", "ppc64le": "ppc64"}


class EntriesRefused(ValueError):
    """What is in a lock and is no package of a registry: each entry, with what is wrong with it."""


def is_registry_package(name: str, bound: object) -> bool:
    """Whether npm asks a registry for this name and these versions, and can take them for nothing else."""
    if not isinstance(bound, str) or len(bound) > 500 or len(name) > 214 or not _NAME.fullmatch(name):
        return False
    if _FILE.search(name) or _FILE.search(bound) or name.lower() == "node_modules":
        return False
    return bool(_TAG.fullmatch(bound)) or all(_BOUNDS.fullmatch(part.strip(" ")) for part in bound.split("||"))


def written_manifest(dependencies: Mapping[str, object]) -> bytes:
    """The package.json for dependencies that were checked."""
    return _as_json({"name": "skill", "version": "0.0.0", "private": True, "dependencies": dependencies})


def written_lock(data: bytes, dependencies: Row, *, aliases: bool = False) -> bytes:
    """The package-lock.json with what is installed here of another one, for `dependencies`. Raises `EntriesRefused`.

    `aliases`: packages of a registry may use another name for a package, because npm wrote the lock and not a skill.
    """
    try:
        table: object = parse_json(data)
    except (ValueError, RecursionError):
        raise EntriesRefused("it is not valid JSON") from None
    rows = as_table(as_table(table).get("packages"))
    if as_table(table).get("lockfileVersion") not in (2, 3) or not 0 < len(rows) <= _ROWS:
        raise EntriesRefused(f"it has no list of up to {_ROWS:,} packages; npm 7 or later writes one")
    if wrong := [f"{place or 'its root'} {why}" for place, row in rows.items() for why in _wrong(place, row, aliases)]:
        raise EntriesRefused(*wrong)
    packages = _for_here({place: as_table(row) for place, row in rows.items()}, dependencies)
    return _as_json({"lockfileVersion": 3, "requires": True, "packages": packages})


def rows_of(document: bytes | str) -> tuple[Rows, Row]:
    """The packages of a lock that was written here, and the dependencies that it is for."""
    rows: Rows = parse_json(document)["packages"]
    return rows, as_table(rows.pop("")["dependencies"])


def name_at(place: str, row: Row) -> str:
    """The name that a registry has for the package at a place."""
    return str(row.get("name") or place.rpartition("node_modules/")[2])


def _wrong(place: str, row: object, aliases: bool) -> Iterator[str]:
    """What keeps a row from being a package of a registry."""
    if not is_table(row):
        yield "is not a table"
        return
    for key in _ELSEWHERE if place else (*_ELSEWHERE, "workspaces"):
        if row.get(key):
            yield f"has {key}, which no package of a registry alone has"
    for key in _EDGES if place else (*_EDGES, "devDependencies"):
        for name, bound in as_table(row.get(key)).items():
            if not is_registry_package(name, bound) and not (aliases and _is_alias(name, bound)):
                yield f"asks for {f'{name}@{bound}'[:_SHOWN]!r}"
    if not place:
        return
    real, version, address = name_at(place, row), str(row.get("version")), str(row.get("resolved") or "")
    if not _PLACE.fullmatch(place) or not (aliases or place.endswith(f"node_modules/{real}")):
        yield f"is not the place of a package with its name, {real!r}"
    elif not _EXACT.fullmatch(version) or not is_registry_package(real, version):
        yield f"has no exact version: {version[:_SHOWN]!r}"
    elif not _HASHES.fullmatch(str(row.get("integrity"))):
        yield "has no hash"
    elif address and not (re.match("https?://", address) and f"/{real}/" in unquote(address)):
        yield f"is not from a registry: {address[:_SHOWN]!r}"


def _is_alias(name: str, bound: object) -> bool:
    alias = re.fullmatch(rf"npm:({_NAMED})@(.*)", str(bound), re.ASCII)
    return alias is not None and is_registry_package(name, "*") and is_registry_package(alias[1], alias[2])


def _for_here(rows: Rows, dependencies: Row) -> Rows:
    """What npm needs of the rows that dependencies lead to on this platform. Node finds each in the nearest folder."""
    kept: Rows = {"": {"dependencies": dependencies}}
    waiting = [""]
    while waiting:
        row = kept[folder := waiting.pop()]
        for key in _EDGES:
            edges: Row = {}
            for name, bound in as_table(row.get(key)).items():
                above = folder
                while (place := f"{above}/node_modules/{name}".lstrip("/")) not in rows and above:
                    above = above.rpartition("node_modules/")[0].rstrip("/")
                if place in rows and _fits(rows[place]):
                    start, at, end = str(bound).rpartition("@")
                    exact = f"{start}{at}{rows[place]['version']}"
                    edges[name] = exact if _TAG.fullmatch(end) else bound  # npm would look a tag up again
                    if place not in kept:
                        kept[place] = _carried(rows[place])
                        waiting.append(place)
                elif key != "optionalDependencies":
                    edges[name] = bound
            row[key] = edges
    return dict(sorted(kept.items()))


def _carried(row: Row) -> Row:
    kept: Row = {key: row[key] for key in ("name", "version", "integrity", *_EDGES) if row.get(key)}
    if row.get("optional") is True or row.get("devOptional") is True:
        kept["optional"] = True
    kept["bin"] = {name: path for name, path in as_table(row.get("bin")).items() if isinstance(path, str)}
    peers = as_table(row.get("peerDependenciesMeta"))
    kept["peerDependenciesMeta"] = {name: {"optional": True} for name in peers if as_table(peers[name]).get("optional")}
    return kept


def _fits(row: Row) -> bool:
    """Whether a package is for this platform. Its lists can also say what is not meant (`!win32`)."""
    libc = ("glibc" if platform.libc_ver()[0] == "glibc" else "musl") if sys.platform == "linux" else ""
    machine = platform.machine().lower()
    for key, value in {"os": sys.platform, "cpu": _CPUS.get(machine, machine), "libc": libc}.items():
        listed = row.get(key)
        words = [str(word) for word in listed] if is_list(listed) else []
        wanted = [word for word in words if not word.startswith("!")]
        if f"!{value}" in words or (wanted and value not in wanted and wanted != ["any"]):
            return False
    return True


def _as_json(table: Mapping[str, object]) -> bytes:
    return json.dumps(table, indent=1).encode()
