"""`run` and `artifacts`: a script of a skill in the folder of the user, and the files that scripts made."""

import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import click

from metier import limits
from metier.errors import ConfigError, ResourceNotFound
from metier.files.beneath import read_regular
from metier.files.text import printable
from metier.policy.decide import Unconfirmed
from metier.policy.rules import HOST_HINT, Rule
from metier.record.made_files import MadeFile, made_files
from metier.session.operations import Run
from metier.session.session import Session
from metier.surfaces.cli import asking, output
from metier.surfaces.cli.completion import complete_file, complete_folder, complete_skill
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command
from metier.surfaces.cli.session_commands import by_option, standard_input
from metier.values.network import HostPattern
from metier.values.results import RunResult
from metier.values.value import Value


class RanScript(Value):
    json_keys = ("*result", "session")

    result: RunResult
    session: str


class PlacedFiles(Value):
    """The same with --out: the files that were written, and those that were not, each with the reason."""

    json_keys = ("*ran", "written", "not_written")

    ran: RanScript
    written: list[str]
    not_written: list[str]


@command(
    "run",
    "metier run csv-profile scripts/profile_csv.py data.csv",
    "metier run csv-profile scripts/profile_csv.py --file ~/q3.csv q3.csv",
    "metier run csv-profile scripts/profile_csv.py --out results data.csv",
    "metier run csv-profile scripts/profile_csv.py -- --no-values data.csv",
    "metier run csv-profile scripts/profile_csv.py --host example.org data.csv",
    prints=RanScript | PlacedFiles,
    sessions=True,
)
@click.argument("name", shell_complete=complete_skill)
@click.argument("script", shell_complete=complete_file)
@click.argument("arguments", nargs=-1, metavar="[--] [ARG]...")
@click.option("--yes", is_flag=True, help="Allow this run without being asked.")
@click.option("--stdin", is_flag=True, help="Pass standard input on to the script.")
@click.option("--write", is_flag=True, help="Bring the script's changes to the folder back.")
@click.option("--file", "files", multiple=True, metavar="PATH", help="Put a copy of this file there. Can be repeated.")
@click.option("--out", metavar="DIR", help="Write the files that the script made into this folder.")
@click.option("--force", is_flag=True, help="Let --out replace files.")
@click.option(
    "--folder", metavar="DIR", help="Run it in this folder, which it can read.", shell_complete=complete_folder
)
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Let this run connect to a host. Can be repeated.")
@by_option
def run_command(
    context: Context,
    yes: bool,
    stdin: bool,
    files: tuple[str, ...],
    out: str | None,
    force: bool,
    folder: str | None,
    hosts: tuple[str, ...],
    **fields: Any,
) -> int:
    """Run a script of a skill in the sandbox. Exits with the script's own code.

    You are asked before it runs, unless a rule in [permissions] allows it. Without a terminal, pass --yes.

    It runs in the current folder, which it can read. What it changes there is dropped unless --write is given, and what
    it makes is kept: `metier artifacts` lists and fetches it. The home folder is shown only with --folder.

    A host is a name such as api.github.com or *.example.org, on the ports 80 and 443 unless a port follows it.
    """
    given = _read(files)
    rules = [Rule("run_network", host=_host(host)) for host in hosts]
    session = context.open_session((lambda _: True) if yes else None)
    session.policy.allow = (*session.policy.allow, *rules)
    if folder is not None:
        session.run_in(_existing(folder))
    operation = Run(stdin=standard_input() if stdin else None, files=given or None, **fields)
    try:
        result = session.perform(operation, unasked=yes or operation.by == "model" or asking.at_terminal() is not None)
    except Unconfirmed as error:
        raise asking.no_terminal(f"pass --yes, or {error.way_out}") from error
    ran = RanScript(result, session.id)
    placed = None
    if out is not None:
        placed = write_out({one.path: one.data for one in result.artifacts}, out, force=force)
    if context.as_json:
        output.json_out(ran if placed is None else PlacedFiles(ran, placed.written, placed.refused))
    else:
        _show(result, session, listed=placed is None)
        if placed is not None:
            report(placed)
    return result.exit_code or (placed is not None and bool(placed.refused))


def _show(result: RunResult, session: Session, *, listed: bool) -> None:
    click.echo(output.safe(result.stdout), nl=False)
    click.echo(output.safe(result.stderr), nl=False, err=True)
    for change in result.changes:
        click.echo(f"{change.kind} {printable(change.path)}", err=True)
    if listed:
        for artifact in result.artifacts:
            click.echo(f"made {printable(artifact.path)} ({artifact.size:,} bytes, {artifact.digest})", err=True)
        if result.artifacts:
            click.echo(f"`metier artifacts --session {printable(session.id)} --out DIR` fetches what it made", err=True)
    for note in (*result.notes, *([f"ended by its {result.ended}"] if result.ended != "exit" else [])):
        click.echo(f"note: {printable(note)}", err=True)


def _existing(folder: str) -> str:
    path = os.path.abspath(os.path.expanduser(folder))
    if not os.path.isdir(path):
        raise ConfigError(f"{folder} is not a folder", key="--folder")
    return path


def _host(text: str) -> str:
    try:
        return str(HostPattern.parse(text))
    except ValueError as error:
        raise ConfigError(f"{text!r} {error}", key="--host", hint=HOST_HINT) from error


def _read(paths: tuple[str, ...]) -> dict[str, bytes]:
    """The files to put into the current folder, by name."""
    found: dict[str, bytes] = {}
    for path in paths:
        name = os.path.basename(os.path.abspath(path))
        if name in found:
            raise ConfigError(f"two files have the name {name}", key="--file")
        try:
            found[name] = read_regular(path, limits.GIVEN_BYTES)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror or error}", key="--file") from error
    return found


# --- the files that scripts made ---

_NONE: Final = "no script has made a file yet"


class Placed(NamedTuple):
    """The files that were written, and those that were not, each with the reason."""

    written: list[str]
    refused: list[str]


def write_out(files: Mapping[str, bytes], folder: str, *, force: bool) -> Placed:
    """Write files that a script made into a folder. Nothing is written outside of it."""
    from metier.running.sandbox.changes import put_files

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


@command("artifacts", "metier artifacts", "metier artifacts --session ID --out results", prints=list[MadeFile])
@click.argument("name", required=False)
@click.option("--out", metavar="DIR", help="Write the files into this folder.")
@click.option("--force", is_flag=True, help="Let --out replace files.")
def artifacts_command(context: Context, name: str | None, out: str | None, force: bool) -> int | None:
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
                output.json_out(found)
            report(placed)
            if not found and not context.quiet:
                context.note(_NONE)
            return bool(placed.refused)
        if context.as_json:
            output.json_out(found)
        elif name is not None:
            click.echo(store.get_artifact(found[0].digest), nl=False)
        elif found:
            rows = [(output.moment(one.at_ms), one.skill, one.path, f"{one.size:,}", one.session) for one in found]
            output.table(("made", "skill", "file", "bytes", "session"), rows)
        elif not context.quiet:
            context.note(_NONE)
    return None
