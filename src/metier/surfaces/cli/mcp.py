"""`mcp`: the server for MCP clients, and its entry in their configuration."""

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import click

from metier.errors import ConfigError, MissingExtra
from metier.files.shapes import as_table, is_tuple
from metier.files.text import printable
from metier.hosts.roots import normalise, project_of
from metier.hosts.settings import Settings
from metier.surfaces.cli import asking, output
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import Function, command, group, option
from metier.surfaces.clients import changes, programs
from metier.values.value import Value, replace

_TRIES: Final = 20
"""How often a change that needs no answer is planned again because another process changed the file."""

_COMMANDS: Final = "\n".join(f"  {client.title:12} metier mcp add {name}" for name, client in programs.CLIENTS.items())

_HINTS: Final = f"""\
This is Metier's MCP server. It offers the skills that `metier list` shows to a client that starts it:

{_COMMANDS}

Each shows what it would write into the configuration of the client, and asks. `metier mcp remove` undoes it. In other
clients, set the command to `metier` and its argument to `mcp`.

It now reads messages from this terminal, one JSON object per line. Ctrl+D or Ctrl+C ends it.
"""
"""What is said on a terminal, where a person has started the server instead of a client."""


def _limited(function: Function) -> Function:
    """Give a command the options that limit what the server says about skills."""
    instructions = option(
        "--instructions-chars N",
        "How many characters the server's instructions may have, which say which skill is for what. 0 leaves the "
        "skills out. Default: 2000, because some clients cut the rest.",
        type=click.IntRange(min=0),
    )
    description = option(
        "--description-chars N",
        "The same for the description of the tool that loads skills.",
        type=click.IntRange(min=0),
    )
    return instructions(description(function))


def _given(limits: Mapping[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in limits.items() if value is not None}


@group(
    "mcp",
    "metier mcp --cwd ~/project",
    "metier mcp --instructions-chars 8000",
    "metier mcp add claude-code",
    sessions=True,
    invoke_without_command=True,
)
@_limited
def mcp_group(context: Context, **limits: int | None) -> None:
    """Serve MCP on standard input and output, for a client that starts it.

    On a terminal, it says first how to add it to a client. `metier mcp add` does it.
    """
    if given := _given(limits):
        context.overrides["mcp"] = given
    if click.get_current_context().invoked_subcommand:
        return
    from metier.surfaces.mcp import server

    app = context.open_app("mcp")
    if sys.stdin.isatty():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread waits for the next line, and would delay Ctrl+C
        context.hint(_HINTS)
    server.main(app, context.session)


# --- the configuration of clients ---

_host = click.argument("host", type=click.Choice([*programs.CLIENTS]))
_name = option("--name NAME", "The name of the server in the client.", default=programs.NAME, show_default=True)


class ClientChange(Value):
    json_keys = ("host", "*change", "written")

    host: str
    change: changes.Change
    written: bool


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which entry a command is about."""

    context: Context
    host: str
    name: str
    place: programs.ClientFile
    config: Settings


@command(
    "add",
    "metier mcp add claude-code",
    "metier mcp add codex --yes --profile codex",
    "metier mcp add vscode --project",
    prints=ClientChange,
    of=mcp_group,
    sessions=True,
)
@_host
@_name
@option("--project", "Write the file of this project instead of yours.")
@option("--force", "Replace a server of that name that is not Metier's.")
@option("--yes", "Write without asking.")
@_limited
def mcp_add(
    context: Context, host: str, name: str, project: bool, force: bool, yes: bool, **limits: int | None
) -> None:
    """Add the server to the configuration of a client. It shows what it writes, and asks.

    Only this entry is written; everything else in the file stays as it is. `metier mcp remove` undoes it. The options
    of `metier mcp` become options of the server: with --cwd it always works in that folder.
    """
    if importlib.util.find_spec("mcp") is None:
        raise MissingExtra("MCP", "mcp")  # the client could not start it, either
    wanted = _wanted(context, host, name, project)
    place = wanted.place
    given = {**as_table(context.overrides.get("mcp")), **_given(limits)}
    extra = place.client.project_options if place.scope == "project" and context.cwd is None else ()
    program = programs.own_command(sys.argv[0], os.environ)
    started = [program, "mcp", *_arguments(context, given, wanted.config), *extra]
    entry = place.client.entry(started)
    try:
        change = _settle(wanted, lambda: changes.plan_add(place, wanted.name, entry, force=force), yes)
    except changes.NotEdited:
        if not context.as_json:
            click.echo(f"Add this to {printable(place.file)} by hand:\n")
            click.echo(output.safe(changes.snippet(place, wanted.name, entry)))
        raise
    if context.as_json or context.quiet:
        return
    if change.action == "none":
        click.echo(f"{place.client.title} has it already: {printable(place.file)}")
        return
    undo = f"metier mcp remove {host}{' --project' if project else ''}"
    undo += f" --name {name}" if name != programs.NAME else ""
    click.echo(f"added; `{undo}` undoes it. {place.client.title} starts it in its next session.")
    note = place.client.project_note if place.scope == "project" else place.client.user_note
    if note:
        click.echo(note)
    if project and any(os.path.isabs(part) for part in started):
        click.echo("note: the entry has paths of this machine, which hold for you only", err=True)


@command(
    "remove",
    "metier mcp remove claude-code",
    "metier mcp remove vscode --project --yes",
    prints=ClientChange,
    of=mcp_group,
)
@_host
@_name
@option("--project", "Change the file of this project instead of yours.")
@option("--force", "Remove a server of that name that is not Metier's.")
@option("--yes", "Write without asking.")
def mcp_remove(context: Context, host: str, name: str, project: bool, force: bool, yes: bool) -> None:
    """Remove the server from the configuration of a client. It shows what goes, and asks.

    What `metier mcp add` made and nothing else uses goes, too: an empty table, file or folder.
    """
    wanted = _wanted(context, host, name, project)
    place = wanted.place
    folder = wanted.config.config_folder
    change = _settle(wanted, lambda: changes.plan_remove(place, wanted.name, folder, force=force), yes)
    if context.as_json or context.quiet:
        return
    if change.action == "none":
        click.echo(f"nothing to remove: {printable(place.file)} has no server {name}")
    else:
        click.echo("removed; the file was deleted" if change.after is None else "removed")


def _wanted(context: Context, host: str, name: str, project: bool) -> _Wanted:
    config = replace(context, cwd=None if is_variable(context.cwd or "") else context.cwd).settings()
    folder = project_of(config.place.cwd) if project else None
    # With --home, the variables of this shell are about another home.
    env: Mapping[str, str] = os.environ if context.home is None else {}
    place = programs.place_of(programs.CLIENTS[host], home=config.place.home, project=folder, env=env)
    return _Wanted(context, host, programs.check_name(name), place, config)


def _settle(wanted: _Wanted, plan: Callable[[], changes.Change], yes: bool) -> changes.Change:
    """Plan, show, ask and write."""
    context = wanted.context
    for attempt in range(_TRIES):
        change = plan()
        if change.action == "none":
            _as_json(wanted, change, written=False)
            return change
        if not (context.as_json or (context.quiet and yes)):
            _show(change)
        if not yes:
            _confirm(wanted, change)
        try:
            changes.write(change, wanted.config.config_folder)
        except changes.FileChanged:
            if not yes or attempt + 1 == _TRIES:
                raise
            continue
        _as_json(wanted, change, written=True)
        return change
    raise AssertionError("the last attempt returns or raises")


def _show(change: changes.Change) -> None:
    place, target = change.found.place, change.found.target
    about = "new file" if change.found.before is None else "the file is deleted" if change.after is None else ""
    linked = os.path.realpath(os.path.dirname(place.file)) != os.path.dirname(target)
    if linked or os.path.islink(place.file):
        about = f"a link to {target}{f', {about}' if about else ''}"
    click.echo(printable(f"{place.file}{f' ({about})' if about else ''}:"))
    for line in change.lines:
        click.secho(f"  {output.safe(line)}", fg="red" if line.startswith("-") else "green")


def _confirm(wanted: _Wanted, change: changes.Change) -> None:
    if not sys.stdin.isatty() or wanted.context.as_json:
        _as_json(wanted, change, written=False)
        message = "nothing was written: there is no terminal to ask for confirmation"
        raise ConfigError(message, key="--yes", hint="pass --yes")
    asking.forget_typed()
    if not click.confirm("Write it?", err=True):
        click.echo("nothing was written")
        raise click.exceptions.Exit(1)


def _as_json(wanted: _Wanted, change: changes.Change, *, written: bool) -> None:
    if wanted.context.as_json:
        output.json_out(ClientChange(wanted.host, change, written))


_NOT_OF_THE_SERVER: Final = ("as_json", "quiet", "verbose", "home")


def _arguments(context: Context, limits: Mapping[str, object], config: Settings) -> Iterator[str]:
    """The options of `metier mcp` as arguments, with paths that hold wherever the client starts the server."""
    for each in mcp_group.params:
        name = each.name or ""
        given = getattr(context, name, limits.get(name)) if name not in _NOT_OF_THE_SERVER else None
        for value in given if is_tuple(given) else (given,):
            if value is True:
                yield each.opts[-1]
            elif value is not None and value is not False:
                yield from (each.opts[-1], _lasting(name, str(value), config))


def _lasting(option: str, value: str, config: Settings) -> str:
    if option == "cwd" and not is_variable(value):
        return config.place.cwd
    if option == "skills":
        return normalise(value, config.place.cwd, config.place.home)
    if option == "profile" and (value.endswith(".toml") or "/" in value):
        return os.path.abspath(os.path.expanduser(value))
    return value


def is_variable(folder: str) -> bool:
    """Whether the client replaces this folder, as VS Code does with `${workspaceFolder}`."""
    return folder.startswith("${")
