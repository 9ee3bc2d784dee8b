"""`artifacts`: the files that scripts made, listed and fetched from the record; and `--out` of `metier run`."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import click

from metier.cli import output
from metier.cli.context import Context, shared
from metier.errors import ConfigError, ResourceNotFound
from metier.files.text import printable
from metier.record.made_files import MadeFile, made_files


class Placed(NamedTuple):
    """The files that were written, and those that were not, each with the reason."""

    written: list[str]
    refused: list[str]


def write_out(files: Mapping[str, bytes], folder: str, *, force: bool) -> Placed:
    """Write files that a script made into a folder. Nothing is written outside of it."""
    from metier.sandbox.changes import put_files

    try:
        os.makedirs(folder, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used: {error.strerror}", key="--out") from error
    try:
        refused = put_files(opened, files, replaces=force)
    finally:
        os.close(opened)
    return Placed(
        [os.path.join(folder, path) for path in files if path not in refused],
        [f"{path}: {why}" for path, why in refused.items()],
    )


def report(placed: Placed) -> None:
    """Say what was written and what was not, on standard error."""
    for path in placed.written:
        click.echo(f"wrote {printable(path)}", err=True)
    for line in placed.refused:
        click.echo(f"not written: {printable(line)}", err=True)


@click.command(
    "artifacts",
    epilog="Examples:\n\n\b\n  metier artifacts\n  metier artifacts --session ID --out results",
)
@click.argument("name", required=False)
@click.option("--out", metavar="DIR", help="Write the files into this folder.")
@click.option("--force", is_flag=True, help="Let --out replace files.")
@shared
def artifacts_command(context: Context, name: str | None, out: str | None, force: bool) -> None:
    """List the files that scripts made, and fetch them.

    NAME is the path of a file, or the beginning of its digest. Without --out, the bytes of that file go to standard
    output; of several, those of the latest. Without NAME, --out takes all files of one --session.
    """
    with context.open_store() as store:
        found = made_files(store, context.session)
        if name is not None:
            found = [one for one in found if one.path == name or (len(name) > 9 and one.digest.startswith(name))]
            if not found:
                raise ResourceNotFound(name)
            found = found[:1]
        if out is not None:
            if name is None and context.session is None:
                raise ConfigError("name a file, or a --session whose files are meant", key="--out")
            latest = {one.path: store.get_artifact(one.digest) for one in reversed(found)}
            placed = write_out(latest, out, force=force)
            if context.as_json:
                output.json_out([one.as_dict() for one in found])
            report(placed)
            if not found and not context.quiet:
                context.note(_NONE)
            raise click.exceptions.Exit(1 if placed.refused else 0)
        if context.as_json:
            output.json_out([one.as_dict() for one in found])
        elif name is not None:
            click.echo(store.get_artifact(found[0].digest), nl=False)
        elif found:
            rows = [(_time(one), one.skill, one.path, f"{one.size:,}", one.session) for one in found]
            output.table(("made", "skill", "file", "bytes", "session"), rows)
        elif not context.quiet:
            context.note(_NONE)


_NONE: Final = "no script has made a file yet"


def _time(one: MadeFile) -> str:
    return datetime.fromtimestamp(one.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


COMMANDS = (artifacts_command,)
