"""The programs that can start Metier's server: their files, and the form of an entry in them."""

import os
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from metier.errors import ConfigError
from metier.files.shapes import is_list
from metier.values.value import Value, field

Scope = Literal["user", "project"]

NAME: Final = "skills"
"""The name of the server in the configuration of a client."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ClientProgram(Value, kw_only=True):
    """A program with a file of MCP servers, as `programs.toml` declares it."""

    title: str
    section: str
    """The key of the table of servers."""
    project: str
    """The file in a project."""
    user: tuple[str, ...]
    """The file in the home folder, by its parts."""
    user_on_mac: tuple[str, ...] = ()
    """The same on macOS, where it is another one, and no variable moves it."""
    variable: str = ""
    """The variable that names another folder, instead of the first part of `user`, or of the home if that is kept."""
    keeps: bool = False
    """Whether all parts of `user` are below the folder of the variable."""
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    """What an entry has besides its command."""
    one_command: bool = False
    """Whether `command` is the whole command line."""
    alternative: str = ""
    """Another name of the file, which is used if only that one exists."""
    project_options: tuple[str, ...] = ()
    """Options of the server in the file of a project, unless they are given."""
    user_note: str = ""
    project_note: str = ""

    @property
    def is_toml(self) -> bool:
        return self.project.endswith(".toml")

    def entry(self, command: Sequence[str]) -> dict[str, object]:
        """The entry that starts this command."""
        first, *rest = command
        line: dict[str, object] = {"command": [*command]} if self.one_command else {"command": first, "args": rest}
        kind = {key: value for key, value in self.extra.items() if key == "type"}
        return {**kind, **line, **self.extra}


with open(os.path.join(os.path.dirname(__file__), "programs.toml"), "rb") as _file:
    CLIENTS: Final[Mapping[str, ClientProgram]] = msgspec.convert(tomllib.load(_file), dict[str, ClientProgram])


class ClientFile(Value):
    """The file of a client. `base` is the folder that a link must not lead out of."""

    client: ClientProgram
    scope: Scope
    file: str
    base: str


def place_of(client: ClientProgram, *, home: str, project: str | None, env: Mapping[str, str]) -> ClientFile:
    """The file for the user, or that of a project if its folder is given."""
    if project is not None:
        return ClientFile(client, "project", _existing(os.path.join(project, client.project), client), project)
    on_mac = sys.platform == "darwin" and client.user_on_mac
    named = env.get(client.variable, "") if client.variable and not on_mac else ""
    if not os.path.isabs(named):
        return ClientFile(client, "user", _existing(os.path.join(home, *(on_mac or client.user)), client), home)
    parts = client.user if client.keeps else client.user[1:]
    return ClientFile(client, "user", _existing(os.path.join(named, *parts), client), named)


def _existing(file: str, client: ClientProgram) -> str:
    other = os.path.join(os.path.dirname(file), client.alternative)
    return other if client.alternative and not os.path.lexists(file) and os.path.lexists(other) else file


def check_name(name: str) -> str:
    """A name that every client accepts. Raises `ConfigError`."""
    if not _NAME.fullmatch(name):
        hint = "use 1 to 64 letters, digits, - and _"
        raise ConfigError(f"{name!r} is not a name for a server", key="--name", hint=hint)
    return name


def is_ours(entry: Mapping[str, object]) -> bool:
    """Whether an entry starts `metier mcp`."""
    command, args = entry.get("command"), entry.get("args")
    line = [*(command if is_list(command) else [command]), *(args if is_list(args) else [])]
    return len(line) > 1 and os.path.basename(str(line[0])) == "metier" and line[1] == "mcp"


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
