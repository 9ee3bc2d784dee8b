"""`mcp`: the server for MCP clients, and how they are told of it.

A client has its own command for its own file, and that is used. Where it has none, or is not installed, a person gets
the text of the entry and the name of the file.
"""

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click
import msgspec

from metier.errors import ConfigError, MissingExtra
from metier.files.shapes import as_table, is_tuple
from metier.files.text import printable
from metier.hosts.roots import normalise, project_of
from metier.hosts.settings import Settings
from metier.surfaces.cli import asking, output
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import Function, command, group, option
from metier.values.value import Value, field, replace

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


class Scope(Value, kw_only=True):
    """How the server is added for the user, or for a project."""

    file: str
    """Where the entry is in the end: in the home folder, or in the project."""
    add: tuple[str, ...] = ()
    """The client's own command. `{name}`, `{program}`, `{args}`, `{line}` and `{json}` stand for the server."""
    remove: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Options of the server in this scope, unless a folder is given."""
    note: str = ""


class ClientProgram(Value, kw_only=True):
    """A program that can start the server, as `clients.toml` declares it."""

    title: str
    program: str
    section: str
    """The key of the table of servers in its files."""
    user: Scope
    project: Scope
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    """What an entry has besides its command."""
    one_command: bool = False
    """Whether `command` is the whole command line."""

    def snippet(self, name: str, line: Sequence[str], file: str) -> str:
        """The entry as it stands in a file that has nothing else."""
        first, *rest = line
        started: dict[str, object] = {"command": [*line]} if self.one_command else {"command": first, "args": rest}
        entry = {**self.extra, **started}
        if not file.endswith(".toml"):
            return json.dumps({self.section: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
        values = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in entry.items())
        return f"[{self.section}.{name}]\n{''.join(values)}".replace("\x7f", "\\u007f")  # a JSON text is one of TOML


with open(os.path.join(os.path.dirname(__file__), "clients.toml"), "rb") as _file:
    CLIENTS: Final[Mapping[str, ClientProgram]] = msgspec.convert(tomllib.load(_file), dict[str, ClientProgram])

_COMMANDS: Final = "\n".join(f"  {client.title:12} metier mcp add {name}" for name, client in CLIENTS.items())

_HINTS: Final = f"""\
This is Metier's MCP server. It offers the skills that `metier list` shows to a client that starts it:

{_COMMANDS}

Each shows the client's own command for it, and asks. `metier mcp remove` undoes it. In other clients, set the command
to `metier` and its argument to `mcp`.

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

_host = click.argument("host", type=click.Choice([*CLIENTS]))
_name = option("--name NAME", "The name of the server in the client.", default="skills", show_default=True)


class ClientChange(Value):
    """What was run, or what a person has to do in which file."""

    host: str
    name: str
    scope: str
    file: str
    command: tuple[str, ...]
    ran: bool
    snippet: str = ""


@command(
    "add",
    "metier mcp add claude-code",
    "metier mcp add codex --yes --profile codex",
    "metier mcp add vscode --project",
    of=mcp_group,
    sessions=True,
)
@_host
@_name
@option("--project", "For this project instead of for you.")
@option("--yes", "Run the client's command without asking.")
@_limited
def mcp_add(context: Context, host: str, name: str, project: bool, yes: bool, **limits: int | None) -> int:
    """Add the server to a client, with the client's own command. It shows the command, and asks.

    Where the client is not installed or has no such command, it prints the entry and the file that it belongs into. The
    options of `metier mcp` become options of the server: with --cwd it always works in that folder.
    """
    if importlib.util.find_spec("mcp") is None:
        raise MissingExtra("MCP", "mcp")  # the client could not start it, either
    client, config = CLIENTS[host], _settings(context)
    scope = client.project if project else client.user
    given = {**as_table(context.overrides.get("mcp")), **_given(limits)}
    extra = scope.options if context.cwd is None else ()
    started = [own_command(sys.argv[0], os.environ), "mcp", *_arguments(context, given, config), *extra]
    change = _change(context, host, name, project, scope.add, started)
    if not change.command:
        change = replace(change, snippet=client.snippet(name, started, change.file))
    code = _carry_out(context, client, change, yes, f"Put this into {printable(change.file)}:")
    if not code and not context.as_json and not context.quiet:
        if scope.note:
            click.echo(scope.note)
        if project and any(os.path.isabs(part) for part in started):
            click.echo("note: the entry has paths of this machine, which hold for you only", err=True)
    return code


@command(
    "remove",
    "metier mcp remove claude-code",
    "metier mcp remove codex --yes",
    of=mcp_group,
)
@_host
@_name
@option("--project", "From this project instead of from your own files.")
@option("--yes", "Run the client's command without asking.")
def mcp_remove(context: Context, host: str, name: str, project: bool, yes: bool) -> int:
    """Remove the server from a client, with the client's own command. It shows the command, and asks.

    Where the client is not installed or has no such command, it names the file and the entry.
    """
    client = CLIENTS[host]
    scope = client.project if project else client.user
    change = _change(context, host, name, project, scope.remove, ())
    return _carry_out(context, client, change, yes, f"Delete {client.section}.{name} from {printable(change.file)}.")


def _settings(context: Context) -> Settings:
    return replace(context, cwd=None if is_variable(context.cwd or "") else context.cwd).settings()


def _change(
    context: Context, host: str, name: str, project: bool, words: Sequence[str], line: Sequence[str]
) -> ClientChange:
    if not _NAME.fullmatch(name):
        hint = "use 1 to 64 letters, digits, - and _, and no - at the start"
        raise ConfigError(f"{name!r} is not a name for a server", key="--name", hint=hint)
    client, place = CLIENTS[host], _settings(context).place
    scope = client.project if project else client.user
    file = os.path.join(project_of(place.cwd) if project else place.home, scope.file)
    program = shutil.which(client.program) if words else None
    command = (program, *_filled(words, name, line)) if program and os.path.isabs(program) else ()
    return ClientChange(host, name, "project" if project else "user", file, command, ran=False)


def _filled(words: Sequence[str], name: str, line: Sequence[str]) -> Iterator[str]:
    """The words of a client's command, with the server in the places for it."""
    entry = {"name": name, "command": line[0], "args": [*line[1:]]} if line else {}
    parts = {"name": [name], "program": [*line[:1]], "args": [*line[1:]], "line": [*line], "json": [json.dumps(entry)]}
    for word in words:
        found = _PLACEHOLDER.fullmatch(word)
        yield from parts[found[1]] if found else [word]


def _carry_out(context: Context, client: ClientProgram, change: ClientChange, yes: bool, by_hand: str) -> int:
    """Run the client's command, or say what to do by hand. Returns the exit code."""
    config = _settings(context)
    where = project_of(config.place.cwd) if change.scope == "project" else config.place.cwd
    if not change.command:
        if context.as_json:
            output.json_out(change)
        else:
            click.echo(by_hand)
            click.echo(output.safe(f"\n{change.snippet}") if change.snippet else "", nl=False)
        return 0
    if not (context.as_json or context.quiet):
        click.echo(f"{client.title} does this itself: {printable(shlex.join(change.command))}")
    if not yes:
        _confirm(context, change)
    env = {**os.environ, "HOME": config.place.home} if context.home is not None else None
    try:
        # The program is the user's own, and no shell reads the words.
        done = subprocess.run(change.command, cwd=where, env=env, capture_output=context.as_json, check=False)  # noqa: S603
    except OSError as error:
        raise ConfigError(f"{change.command[0]} cannot be started: {error.strerror}", key=client.program) from error
    if context.as_json:
        output.json_out(replace(change, ran=not done.returncode))
    return 1 if done.returncode else 0


def _confirm(context: Context, change: ClientChange) -> None:
    if not sys.stdin.isatty() or context.as_json:
        if context.as_json:
            output.json_out(change)
        message = "nothing was run: there is no terminal to ask for confirmation"
        raise ConfigError(message, key="--yes", hint="pass --yes")
    asking.forget_typed()
    if not click.confirm("Run it?", err=True):
        click.echo("nothing was run")
        raise click.exceptions.Exit(1)


def own_command(running: str, env: Mapping[str, str]) -> str:
    """The command that starts this `metier`: its name if a search of PATH finds it, else its path.

    A virtual environment that is active in this shell is not active where the client starts, so its folder in PATH does
    not count.
    """
    found = shutil.which("metier", path=env.get("PATH"))
    program = os.path.abspath(running) if os.path.dirname(running) else shutil.which(running, path=env.get("PATH"))
    if program is None or os.path.basename(program) != "metier" or not os.path.exists(program):
        program = found or os.path.join(os.path.dirname(sys.executable), "metier")
    if not os.path.exists(program):
        raise ConfigError("the program `metier` was not found", key="PATH", hint="add its folder to PATH")
    active = env.get("VIRTUAL_ENV")
    lasting = found and not (active and found.startswith(os.path.join(active, "")))
    return "metier" if lasting and found and os.path.samefile(found, program) else program


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
