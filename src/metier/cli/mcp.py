"""`mcp`: the server for MCP clients, and its entry in their configuration."""

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import click

from metier.cli import asking, mcp_hints, output
from metier.cli.context import Command, Context, shared
from metier.cli.session_options import Opening, opens_sessions
from metier.cli.suggest import SuggestingGroup
from metier.clients import changes, programs
from metier.errors import ConfigError, MissingExtra
from metier.files.shapes import is_tuple
from metier.files.text import printable
from metier.hosts.roots import normalise
from metier.hosts.settings import Settings, project_of

_TRIES: Final = 20
"""How often a change that needs no answer is planned again because another process changed the file."""

_LIMITS: Final = (
    click.option(
        "--instructions-chars",
        type=click.IntRange(min=0),
        metavar="N",
        help="How many characters the server's instructions may have, which say which skill is for what. 0 leaves the "
        "skills out. Default: 2000, because some clients cut the rest.",
    ),
    click.option(
        "--description-chars",
        type=click.IntRange(min=0),
        metavar="N",
        help="The same for the description of the tool that loads skills.",
    ),
)


def _limited(command: Command) -> Command:
    for option in reversed(_LIMITS):
        command = option(command)
    return command


@click.group(
    "mcp",
    cls=SuggestingGroup,
    invoke_without_command=True,
    epilog="Examples:\n\n\b\n  metier mcp --cwd ~/project\n  metier mcp --instructions-chars 8000\n"
    "  metier mcp add claude-code",
)
@_limited
@opens_sessions
@click.pass_context
def mcp_group(
    click_context: click.Context, opening: Opening, instructions_chars: int | None, description_chars: int | None
) -> None:
    """Serve MCP on standard input and output, for a client that starts it.

    On a terminal, it says first how to add it to a client. `metier mcp add` does it.
    """
    if click_context.invoked_subcommand:
        return
    from metier.mcp import server

    given = {"instructions_chars": instructions_chars, "description_chars": description_chars}
    limits = {key: value for key, value in given.items() if value is not None}
    if limits:
        opening.context.overrides["mcp"] = limits
    app = opening.app("mcp")
    if sys.stdin.isatty():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread waits for the next line, and would delay Ctrl+C
        if not opening.quiet:
            click.echo(mcp_hints.HINTS, err=True)
    server.main(app, opening.context.session)


# --- the configuration of clients ---

_host = click.argument("host", type=click.Choice([*programs.CLIENTS]))
_name = click.option(
    "--name", default=programs.NAME, show_default=True, metavar="NAME", help="The name of the server in the client."
)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which entry a command is about."""

    context: Context
    host: str
    name: str
    place: programs.ClientFile
    config: Settings


@mcp_group.command(
    "add",
    epilog="Examples:\n\n\b\n  metier mcp add claude-code\n  metier mcp add codex --yes --profile codex\n"
    "  metier mcp add vscode --project",
)
@_host
@_name
@click.option("--project", is_flag=True, help="Write the file of this project instead of yours.")
@click.option("--force", is_flag=True, help="Replace a server of that name that is not Metier's.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@_limited
@opens_sessions
@click.pass_context
def mcp_add(
    click_context: click.Context,
    opening: Opening,
    host: str,
    name: str,
    project: bool,
    force: bool,
    yes: bool,
    **_: object,
) -> None:
    """Add the server to the configuration of a client. It shows what it writes, and asks.

    Only this entry is written; everything else in the file stays as it is. `metier mcp remove` undoes it. The options
    of `metier mcp` become options of the server: with --cwd it always works in that folder.
    """
    if importlib.util.find_spec("mcp") is None:
        raise MissingExtra("MCP", "mcp")  # the client could not start it, either
    options = _server_options(click_context)
    if is_variable(opening.context.cwd or ""):
        opening.context.cwd = None
    wanted = _wanted(opening.context, host, name, project)
    place = wanted.place
    extra = place.client.project_options if place.scope == "project" and "--cwd" not in options else ()
    command = [programs.own_command(sys.argv[0], os.environ), "mcp", *_arguments(options, wanted.config), *extra]
    entry = place.client.entry(command)
    try:
        change = _settle(wanted, lambda: changes.plan_add(place, wanted.name, entry, force=force), yes)
    except changes.NotEdited:
        if not opening.as_json:
            click.echo(f"Add this to {printable(place.file)} by hand:\n")
            click.echo(output.safe(changes.snippet(place, wanted.name, entry)))
        raise
    if opening.as_json or opening.quiet:
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
    if project and any(os.path.isabs(part) for part in command):
        click.echo("note: the entry has paths of this machine, which hold for you only", err=True)


@mcp_group.command(
    "remove", epilog="Examples:\n\n\b\n  metier mcp remove claude-code\n  metier mcp remove vscode --project --yes"
)
@_host
@_name
@click.option("--project", is_flag=True, help="Change the file of this project instead of yours.")
@click.option("--force", is_flag=True, help="Remove a server of that name that is not Metier's.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@shared
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
    config = context.settings()
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
    place = change.place
    about = "new file" if change.before is None else "the file is deleted" if change.after is None else ""
    linked = os.path.realpath(os.path.dirname(place.file)) != os.path.dirname(change.target)
    if linked or os.path.islink(place.file):
        about = f"a link to {change.target}{f', {about}' if about else ''}"
    click.echo(printable(f"{place.file}{f' ({about})' if about else ''}:"))
    for line in change.lines():
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
        output.json_out({"host": wanted.host, **change.as_dict(), "written": written})


_NOT_OF_THE_SERVER: Final = ("as_json", "quiet", "verbose", "home", "help")


def _server_options(click_context: click.Context) -> dict[str, list[str]]:
    """The options of `metier mcp` with their values, wherever they are in the command line. The later one wins."""
    chain = [click_context]
    while chain[0].parent is not None:
        chain.insert(0, chain[0].parent)
    found: dict[str, list[str]] = {}
    for option in mcp_group.params:
        if not isinstance(option, click.Option) or option.name in _NOT_OF_THE_SERVER:
            continue
        given: list[object] = [one.params[option.name] for one in chain if one.params.get(option.name) is not None]
        if option.multiple:
            listed = [str(value) for values in given if is_tuple(values) for value in values]
        elif option.is_flag:
            listed = [_FLAG] if any(given) else []
        else:
            listed = [str(given[-1])] if given else []
        if listed:
            found[option.opts[-1]] = listed
    return found


_FLAG: Final = ""
"""The value of an option that has none."""


def _arguments(options: Mapping[str, list[str]], config: Settings) -> Iterator[str]:
    """The options as arguments, with paths that hold wherever the client starts the server."""
    for option, values in options.items():
        for value in values:
            yield option
            if value != _FLAG:
                yield _lasting(option, value, config)


def _lasting(option: str, value: str, config: Settings) -> str:
    if option == "--cwd" and not is_variable(value):
        return config.place.cwd
    if option == "--skills":
        return normalise(value, config.place.cwd, config.place.home)
    if option == "--profile" and (value.endswith(".toml") or "/" in value):
        return os.path.abspath(os.path.expanduser(value))
    return value


def is_variable(folder: str) -> bool:
    """Whether the client replaces this folder, as VS Code does with `${workspaceFolder}`."""
    return folder.startswith("${")


COMMANDS = (mcp_group,)
