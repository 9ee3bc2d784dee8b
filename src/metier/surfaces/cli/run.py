"""`run` and `env`: a script of a skill, and the packages that scripts import."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click

from metier import limits
from metier.errors import ConfigError
from metier.files.beneath import read_regular
from metier.files.source import take_folder
from metier.files.text import from_utf8, printable
from metier.policy.decide import Unconfirmed
from metier.policy.rules import HOST_HINT, Rule
from metier.running.grants.packages import PackagesGrant, look_up, package_state
from metier.running.packages import Wanted
from metier.running.packages.environment import PackageState, size_of, wanted_by
from metier.running.packages.lock import Lock
from metier.session.operations import Run
from metier.session.session import Session
from metier.skills import Skills
from metier.surfaces.cli import asking, output
from metier.surfaces.cli.completion import complete_file, complete_folder, complete_skill
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import command, group, option, standard_input
from metier.surfaces.cli.session_commands import by_option
from metier.values.network import HostPattern
from metier.values.results import Artifact, RunResult
from metier.values.skill import Skill
from metier.values.value import JsonObject


@command(
    "run",
    "metier run csv-profile scripts/profile_csv.py data.csv",
    "metier run csv-profile scripts/profile_csv.py --file ~/q3.csv q3.csv",
    "metier run csv-profile scripts/profile_csv.py --out results data.csv",
    "metier run csv-profile scripts/profile_csv.py -- --no-values data.csv",
    "metier run csv-profile scripts/profile_csv.py --yes --write '*.md' data.csv",
    "metier run csv-profile scripts/profile_csv.py --host example.org data.csv",
    sessions=True,
)
@click.argument("name", shell_complete=complete_skill)
@click.argument("script", shell_complete=complete_file)
@click.argument("arguments", nargs=-1, metavar="[--] [ARG]...")
@option("--yes", "Allow this run without being asked.")
@option("--stdin", "Pass standard input on to the script.")
@option(
    "--write [GLOB]",
    "Bring new data files back, and every change to what the glob names.",
    many=True,
    is_flag=False,
    flag_value="",
)
@option("--file PATH", "Put a copy of this file there.", "files", many=True)
@option("--out DIR", "Write the files that the script made into this folder.")
@option("--force", "Let --out replace files.")
@option("--folder DIR", "Run it in this folder, which it can read.", complete=complete_folder)
@option("--host NAME", "Let this run connect to a host.", "hosts", many=True)
@by_option
def run_command(
    context: Context,
    yes: bool,
    stdin: bool,
    write: tuple[str, ...],
    files: tuple[str, ...],
    out: str | None,
    force: bool,
    folder: str | None,
    hosts: tuple[str, ...],
    **fields: Any,
) -> int:
    """Run a script of a skill in the sandbox. Exits with the script's own code.

    You are asked before it runs, unless a rule in [permissions] allows it. Without a terminal, pass --yes.

    It runs in the current folder, which it can read. What it changes there is dropped unless --write names it, and what
    it makes is kept: `metier session artifacts` lists and fetches it. The home folder is never shown.

    With --write alone, new data files such as tables and pictures come back. Put it after the script.

    A host is a name such as api.github.com or *.example.org, on the ports 80 and 443 unless a port follows it.
    """
    given = _read(files)
    rules = [Rule("run_network", host=_host(host)) for host in hosts]
    session = context.open_session((lambda _: True) if yes else None)
    session.policy.allow = (*session.policy.allow, *rules)
    if folder is not None:
        session.run_in(_existing(folder))
    named = tuple(filter(None, write))
    given_in = standard_input() if stdin else None
    operation = Run(stdin=given_in, files=given or None, write=bool(write), write_paths=named or None, **fields)
    try:
        result = session.perform(operation, unasked=yes or operation.by == "model" or asking.at_terminal() is not None)
    except Unconfirmed as error:
        raise asking.no_terminal(f"pass --yes, or {error.way_out}") from error
    placed = None
    if out is not None:
        placed = write_out({one.path: one.data for one in result.artifacts}, out, named, force=force)
    if context.as_json:
        written = {} if placed is None else {"written": placed.written, "not_written": placed.refused}
        output.json_out({**result.as_dict(), "session": session.id, **written})
    else:
        _show(result, session, listed=placed is None)
        if placed is not None:
            report(placed)
            rest = [one for one in result.artifacts if os.path.join(out or "", one.path) not in placed.written]
            _tell_how_to_fetch(rest, session, "the rest")
    return result.exit_code or (placed is not None and bool(placed.refused))


def _show(result: RunResult, session: Session, *, listed: bool) -> None:
    click.echo(output.safe(result.stdout), nl=False)
    click.echo(output.safe(result.stderr), nl=False, err=True)
    for change in result.changes:
        click.echo(f"{change.kind} {printable(change.path)}", err=True)
    if listed:
        for artifact in result.artifacts:
            click.echo(f"made {printable(artifact.path)} ({artifact.size:,} bytes, {artifact.digest})", err=True)
        _tell_how_to_fetch(result.artifacts, session, "what it made")
    for note in (*result.notes, *([f"ended by its {result.ended}"] if result.ended != "exit" else [])):
        click.echo(f"note: {printable(note)}", err=True)


def _tell_how_to_fetch(files: Sequence[Artifact], session: Session, what: str) -> None:
    """Print the command that fetches files that were kept. What is not data is named, so that it is written."""
    from metier.running.sandbox.changes import is_data

    if files:
        names = [one.path if one.path.isprintable() else one.digest for one in files]
        words = [] if all(map(is_data, names)) else ["--", *names]
        line = shlex.join(["metier", "session", "artifacts", "--session", session.id, "--out", "DIR", *words])
        click.echo(f"`{line}` fetches {what}", err=True)


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


# --- the files that a script made ---


class Placed(NamedTuple):
    """The files that were written, and those that were not, each with the reason."""

    written: list[str]
    refused: list[str]


def write_out(files: Mapping[str, bytes], folder: str, named: Sequence[str], *, force: bool) -> Placed:
    """Write files that a script made into a folder: data, and what is named. Nothing is written outside of it."""
    from metier.running.sandbox.changes import put_files

    try:
        os.makedirs(folder, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used: {error.strerror}", key="--out") from error
    try:
        refused = put_files(opened, files, replaces=force, named=named)
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


# --- env: the packages that scripts import ---


@group("env", "metier env show")
def env_group(context: Context) -> None:
    """Show, fix and delete the packages that scripts import."""


@command(
    "show",
    "metier env show",
    "metier env show csv-profile",
    of=env_group,
)
@click.argument("skill", required=False, shell_complete=complete_skill)
def env_show(context: Context, skill: str | None) -> None:
    """Show every environment and its size, or what the scripts of one skill import.

    Nothing is looked up on an index. A script without a lock gets one when it first runs, or with `metier env lock`.
    """
    if skill is None:
        _show_all(context)
        return
    skills = context.discover()
    rows = [_row(skills, path, wanted) for path, wanted in _scripts(skills, _named(skills, skill))]
    if context.as_json:
        output.json_out({"skill": skill, "scripts": rows})
        return
    if not rows:
        output.note("no script of this skill imports a package")
    for row in rows:
        facts = [
            ("script", row["script"]),
            ("wants", ", ".join(row["wants"])),
            ("source", f"{row['source']}, {'inferred' if row['inferred'] else 'declared'}"),
            ("locked", _packages(row) or "not yet; `metier env lock` looks it up"),
            ("installed", f"{row['folder']} ({_size(size_of(row['folder']))})" if row["folder"] else "no"),
            *(("note", note) for note in row["notes"]),
        ]
        output.facts((key, printable(value)) for key, value in facts)
        click.echo()


def _show_all(context: Context) -> None:
    state = _state(context)
    rows: list[JsonObject] = []
    for lock in state.locks.all():
        folder = state.environments.path(lock)
        rows.append({**_of_lock(lock), "folder": folder, "bytes": size_of(folder) if folder else 0})
    places = {str(row["folder"]): row["bytes"] for row in rows if row["folder"]}
    total = size_of(state.environments.folder)
    if context.as_json:
        output.json_out({"folder": state.environments.folder, "bytes": total, "locks": rows})
        return
    sizes = [_size(row["bytes"]) if row["folder"] else "not installed" for row in rows]
    table = [(row["source"], str(len(row["packages"])), size) for row, size in zip(rows, sizes, strict=True)]
    if table:
        output.table(("wanted by", "packages", "size"), table, 0)
    click.echo(f"{len(places):,} environments, {_size(total)}, in {printable(state.environments.folder)}")


@command("lock", "metier env lock csv-profile", of=env_group)
@click.argument("skill", shell_complete=complete_skill)
def env_lock(context: Context, skill: str) -> None:
    """Look up the newest packages for the scripts of a skill, and keep their exact versions.

    Only the index is read, and nothing is installed. Answers that were remembered for other versions do not cover them.
    """
    skills = context.discover()
    found: list[JsonObject] = []
    for path, wanted in _scripts(skills, _named(skills, skill)):
        plan = look_up(skills.settings, wanted, anew=True)
        found.append({"script": path, **_of_lock(plan.lock), "notes": _notes(plan)})
    if context.as_json:
        output.json_out({"skill": skill, "scripts": found})
        return
    for row in found:
        click.echo(printable(f"{row['script']}: {_packages(row) or 'nothing'}"))
        for note in row["notes"]:
            output.note(printable(str(note)))
    if not found:
        output.note("no script of this skill imports a package")


@command("clear", "metier env clear", of=env_group)
def env_clear(context: Context) -> None:
    """Delete every environment and every lock. Scripts get new ones when they next run."""
    state = _state(context)
    locks = state.locks.clear()
    count, size = state.environments.clear()
    told = f"{count:,} environments ({_size(size)}) and {locks:,} locks were deleted"
    context.answer({"environments": count, "bytes": size, "locks": locks}, told)


# --- what a skill has ---


def _state(context: Context) -> PackageState:
    state = package_state(context.settings())
    if state is None:
        raise ConfigError("there is no folder for packages")
    return state


def _named(skills: Skills, name: str) -> Skill:
    return skills.at(name) if os.sep in name else skills[name]


def _scripts(skills: Skills, skill: Skill) -> Iterator[tuple[str, Wanted]]:
    """The scripts of a skill that want packages."""
    tree = take_folder(skill.folder, skill.inner)
    for file in tree.within(skills.profile.run.folders):
        wanted = wanted_by(tree, file.path, from_utf8(file.data[:200]))
        if wanted is not None:
            yield file.path, wanted


def _row(skills: Skills, path: str, wanted: Wanted) -> JsonObject:
    plan = look_up(skills.settings, wanted, offline=True)
    state = package_state(skills.settings)
    folder = state.environments.path(plan.lock) if state is not None and plan.lock is not None else ""
    return {
        "script": path,
        "wants": list(wanted.requirements),
        **_of_lock(plan.lock),
        "source": wanted.source,
        "inferred": bool(wanted.inferred),
        "folder": folder,
        "notes": _notes(plan),
    }


def _notes(plan: PackagesGrant) -> list[str]:
    return [plan.refusal] if plan.refusal else list(plan.remarks)


def _packages(row: JsonObject) -> str:
    return ", ".join(f"{one['name']} {one['version']}" for one in row["packages"])


def _of_lock(lock: Lock | None) -> JsonObject:
    if lock is None:
        return {"digest": "", "source": "", "packages": []}
    return {
        "digest": lock.digest,
        "source": lock.source,
        "packages": [{"name": one.name, "version": one.version, "size": one.size} for one in lock.packages],
    }


def _size(count: int) -> str:
    return f"{count / 1_000_000:,.1f} MB"
