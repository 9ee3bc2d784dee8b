"""`run`: a script of a skill, in the folder of the user, with the files that it needs and those that it made."""

import os

import click

from metier import limits
from metier.cli import output
from metier.cli.artifacts import report, write_out
from metier.cli.completion import complete_file, complete_skill
from metier.cli.context import complete_folder
from metier.cli.session_commands import by_option, standard_input
from metier.cli.session_options import Opening, opens_sessions
from metier.errors import ConfigError
from metier.files.beneath import read_regular
from metier.files.text import printable
from metier.results import RunResult
from metier.sandbox.hosts import HostPattern
from metier.session.rules import HOST_HINT, Rule
from metier.session.session import Session
from metier.session.visibility import By


@click.command(
    "run",
    epilog="Examples:\n\n\b\n  metier run csv-profile scripts/profile_csv.py data.csv\n"
    "  metier run csv-profile scripts/profile_csv.py --file ~/q3.csv q3.csv\n"
    "  metier run csv-profile scripts/profile_csv.py --out results data.csv\n"
    "  metier run csv-profile scripts/profile_csv.py -- --no-values data.csv\n"
    "  metier run csv-profile scripts/profile_csv.py --host example.org data.csv",
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
@opens_sessions
def run_command(
    opening: Opening,
    name: str,
    script: str,
    arguments: tuple[str, ...],
    yes: bool,
    stdin: bool,
    write: bool,
    files: tuple[str, ...],
    out: str | None,
    force: bool,
    folder: str | None,
    hosts: tuple[str, ...],
    by: By,
) -> None:
    """Run a script of a skill in the sandbox. Exits with the script's own code.

    It runs in the current folder, which it can read. What it changes there is dropped unless --write is given, and what
    it makes is kept: `metier artifacts` lists and fetches it. The home folder is shown only with --folder.

    A host is a name such as api.github.com or *.example.org, on the ports 80 and 443 unless a port follows it.
    """
    given = _read(files)
    rules = [Rule("run_network", host=_host(host)) for host in hosts]
    session = opening.session(yes=yes, acts=True)
    session.policy.allow = (*session.policy.allow, *rules)
    if folder is not None:
        session.run_in(_existing(folder))
    result = session.run(
        name,
        script,
        arguments,
        stdin=standard_input() if stdin else None,
        files=given or None,
        write=write,
        by=by,
    )
    shown = result.as_dict()
    placed = None
    if out is not None:
        placed = write_out({one.path: one.data for one in result.artifacts}, out, force=force)
        shown |= {"written": placed.written, "not_written": placed.refused}
    if opening.as_json:
        output.json_out(shown | {"session": session.id})
    else:
        _show(result, session, listed=placed is None)
        if placed is not None:
            report(placed)
    if result.exit_code or (placed is not None and placed.refused):
        raise click.exceptions.Exit(result.exit_code or 1)


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


COMMANDS = (run_command,)
