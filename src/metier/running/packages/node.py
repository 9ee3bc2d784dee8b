"""Packages for Node, by npm, which gets the files of `npm_files` and the registry of the user, and nothing of a skill.

Scripts of packages are never run (`--ignore-scripts`), and no repository, address, file or folder is read. What npm
installed is compared with the lock: another package, version or place is an error.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from metier.files.beneath import read_regular
from metier.files.json_text import parse_json
from metier.files.shapes import as_table
from metier.running.packages import MANIFEST_BYTES, PackagesUnavailable, Wanted, npm_files, programs, user_settings
from metier.running.packages.lock import Lock, Package, here

SECONDS: Final = 180.0
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
            document = npm_files.written_lock(written, parse_json(wanted.manifest)["dependencies"], aliases=True)
        except npm_files.EntriesRefused as error:
            raise PackagesUnavailable(f"its packages need more than packages of a registry: {error.args[0]}") from None
    rows, dependencies = npm_files.rows_of(document)
    packages = (
        Package(npm_files.name_at(at, row), str(row["version"]), 0, (str(row["integrity"]),))
        for at, row in rows.items()
    )
    return Lock(
        kind="node",
        platform=here(),
        source=wanted.source,
        packages=tuple(sorted(packages, key=lambda package: (package.name, package.version))),
        document=document.decode(),
        manifest=npm_files.written_manifest(dependencies).decode(),
    )


def install(lock: Lock, workplace: programs.Workplace) -> None:
    """Install what a lock has into `node_modules` of a folder. Raises `PackagesUnavailable`."""
    _write(workplace.folder, "package.json", lock.manifest.encode())
    _write(workplace.folder, "package-lock.json", lock.document.encode())
    _npm(workplace, "ci")
    os.makedirs(os.path.join(workplace.folder, "node_modules"), exist_ok=True)
    rows, _ = npm_files.rows_of(lock.document)
    asked = {at: (npm_files.name_at(at, row), _plain(row["version"])) for at, row in rows.items()}
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
    said = programs.call(asked, workplace=workplace, seconds=SECONDS, variables={**os.environ, "NODE_OPTIONS": ""})
    files = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    with open(os.open(settings, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(user_settings.npmrc(files.get(key, "") for key in ("globalconfig", "userconfig")))
    own = {"userconfig": settings, "globalconfig": os.devnull, "prefix": workplace.folder, "git": os.devnull}
    variables = user_settings.environment("npm", workplace.home) | _SOURCES
    variables |= {f"npm_config_{key}": value for key, value in own.items()}
    programs.call([npm, *words, *_WORDS], workplace=workplace, seconds=SECONDS, variables=variables)


def _write(folder: str, name: str, data: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as stream:
        stream.write(data)
