"""The `--fix` and `--diff` of `metier validate`: what is changed, what is not, and why."""

import os
from collections.abc import Iterable
from typing import NamedTuple

import click

from metier.catalog import fix
from metier.editing.skill_files import installed_from
from metier.files.text import printable
from metier.model import JsonObject


class Fixed(NamedTuple):
    """What was done with the fixes of all skills."""

    written: list[fix.Fix]
    refused: list[tuple[fix.Fix, str]]
    """Those that were not written, and why."""

    def as_dict(self) -> JsonObject:
        refused = [{"path": one.file, "reason": why} for one, why in self.refused]
        return {"fixed": [one.as_dict() for one in self.written], "refused": refused}


def write_fixes(folders: Iterable[tuple[str, str]]) -> Fixed:
    """Write the fixes of skills, given as their folders and the folder below which the user asked for it."""
    done = Fixed([], [])
    for one, why in planned(folders):
        if not why:
            try:
                fix.apply(one)
                done.written.append(one)
                continue
            except OSError as error:
                why = error.strerror or "it cannot be written"
        done.refused.append((one, why))
    return done


def planned(folders: Iterable[tuple[str, str]]) -> list[tuple[fix.Fix, str]]:
    """The fixes of skills, and for each the reason why it must not be written, if there is one."""
    return [
        (one, _installed(folder) or fix.obstacle(one, below)) for folder, below in folders for one in fix.plan(folder)
    ]


def _installed(folder: str) -> str:
    """Why an installed skill is not changed: it would differ from what its lock file says."""
    source = installed_from(folder)
    return f"it was installed from {source}, and has to be fixed there" if source else ""


def tell_refused(refused: Iterable[tuple[fix.Fix, str]]) -> None:
    for one, why in refused:
        click.echo(f"not fixed: {printable(one.file)}: {printable(why)}", err=True)


def tell_written(written: Iterable[fix.Fix], cwd: str) -> None:
    for one in written:
        shown = os.path.relpath(one.file, cwd) if one.file.startswith(f"{cwd.rstrip('/')}/") else one.file
        click.echo(f"fixed {printable(shown)}: {printable(', '.join(one.changes))}", err=True)
