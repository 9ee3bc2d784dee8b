"""Packages for Node, by npm: a package-lock.json of the skill is taken as it is, and else npm writes one.

Scripts of packages are never run (`--ignore-scripts`), and what comes from elsewhere than a registry is refused.
"""

import os
import tempfile
from collections.abc import Mapping
from typing import Final

from metier.files.json_text import parse_json
from metier.files.shapes import is_table
from metier.packages import PackagesUnavailable, Wanted, programs
from metier.packages.lock import Lock, Package, here

SECONDS: Final = 180.0
_QUIET: Final = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--omit=dev")


def resolve(wanted: Wanted) -> Lock:
    """The lock of a Node script. Raises `PackagesUnavailable`."""
    locked = wanted.locked
    if not locked:
        with tempfile.TemporaryDirectory(prefix="metier-resolve-") as folder:
            _write(folder, "package.json", wanted.manifest)
            _npm(folder, "install", "--package-lock-only")
            with open(os.path.join(folder, "package-lock.json"), "rb") as stream:
                locked = stream.read()
    return Lock(
        kind="node",
        platform=here(),
        source=wanted.source,
        packages=tuple(sorted(_packages(locked), key=lambda one: (one.name, one.version))),
        document=locked.decode("utf-8", "replace"),
        manifest=wanted.manifest.decode("utf-8", "replace"),
    )


def install(lock: Lock, folder: str) -> None:
    """Install what a lock has into `node_modules` of a folder. Raises `PackagesUnavailable`."""
    _write(folder, "package.json", lock.manifest.encode())
    _write(folder, "package-lock.json", lock.document.encode())
    _npm(folder, "ci")
    os.makedirs(os.path.join(folder, "node_modules"), exist_ok=True)


def _packages(locked: bytes) -> list[Package]:
    try:
        table: object = parse_json(locked)
    except (ValueError, RecursionError):
        raise PackagesUnavailable("its package-lock.json is not valid JSON") from None
    rows = table.get("packages") if is_table(table) else None
    if not is_table(rows):
        raise PackagesUnavailable("its package-lock.json has no list of packages; npm 7 or later writes one")
    found: list[Package] = []
    for place, row in rows.items():
        if not place or not is_table(row) or row.get("dev"):
            continue
        name = place.rpartition("node_modules/")[2]
        found.append(Package(name, str(row.get("version", "")), 0, (_checked(name, row),)))
    return found


def _checked(name: str, row: Mapping[str, object]) -> str:
    """The hash of a package, which must come from a registry."""
    integrity, address = row.get("integrity"), str(row.get("resolved", ""))
    if row.get("link") or not isinstance(integrity, str) or address.startswith(("git", "file:")):
        raise PackagesUnavailable(
            f"{name} in its package-lock.json has no hash, or comes from elsewhere than a registry"
        )
    return integrity


def _npm(folder: str, *words: str) -> None:
    variables = {**os.environ, "NODE_OPTIONS": "", "npm_config_prefix": folder}
    programs.call([programs.npm(), *words, *_QUIET], folder=folder, seconds=SECONDS, variables=variables)


def _write(folder: str, name: str, data: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as stream:
        stream.write(data)
