"""The programs that can start Metier's server: their files, and the form of an entry in them."""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from metier.errors import ConfigError
from metier.files.shapes import is_list

Scope = Literal["user", "project"]

NAME: Final = "skills"
"""The name of the server in the configuration of a client."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORKSPACE: Final = ("--cwd", "${workspaceFolder}")


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """A program with a file of MCP servers."""

    title: str
    section: str
    """The key of the table of servers."""
    project: str
    """The file in a project."""
    user: tuple[str, ...]
    """The file in the home folder, by its parts."""
    variable: str = ""
    """The variable that names another folder, instead of the first part of `user`, or of the home if that is kept."""
    keeps: bool = False
    """Whether all parts of `user` are below the folder of the variable."""
    extra: tuple[tuple[str, object], ...] = ()
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
        kind = {key: value for key, value in self.extra if key == "type"}
        return {**kind, **line, **dict(self.extra)}


_STDIO: Final = (("type", "stdio"),)
_CODE: Final = ("Library", "Application Support") if sys.platform == "darwin" else (".config",)

CLIENTS: Final[Mapping[str, ClientProgram]] = {
    "claude-code": ClientProgram(
        "Claude Code",
        "mcpServers",
        ".mcp.json",
        (".claude.json",),
        "CLAUDE_CONFIG_DIR",
        keeps=True,
        extra=_STDIO,
        project_note="Claude Code asks you before it starts the server of a project.",
    ),
    "codex": ClientProgram(
        "Codex",
        "mcp_servers",
        ".codex/config.toml",
        (".codex", "config.toml"),
        "CODEX_HOME",
        project_note="Codex reads this file only in projects that you trust.",
    ),
    "gemini-cli": ClientProgram(
        "Gemini CLI",
        "mcpServers",
        ".gemini/settings.json",
        (".gemini", "settings.json"),
        "GEMINI_CLI_HOME",
        keeps=True,
    ),
    "opencode": ClientProgram(
        "OpenCode",
        "mcp",
        "opencode.json",
        (".config", "opencode", "opencode.json"),
        "XDG_CONFIG_HOME",
        extra=(("type", "local"), ("enabled", True)),
        one_command=True,
        alternative="opencode.jsonc",
    ),
    "vscode": ClientProgram(
        "VS Code",
        "servers",
        ".vscode/mcp.json",
        (*_CODE, "Code", "User", "mcp.json"),
        "" if sys.platform == "darwin" else "XDG_CONFIG_HOME",
        extra=_STDIO,
        project_options=_WORKSPACE,
        user_note="VS Code starts it in your home folder. For the skills of a project, use --project there.",
    ),
    "cursor": ClientProgram(
        "Cursor",
        "mcpServers",
        ".cursor/mcp.json",
        (".cursor", "mcp.json"),
        extra=_STDIO,
        project_options=_WORKSPACE,
    ),
}


@dataclass(frozen=True, slots=True)
class ClientFile:
    """The file of a client. `base` is the folder that a link must not lead out of."""

    client: ClientProgram
    scope: Scope
    file: str
    base: str


def place_of(client: ClientProgram, *, home: str, project: str | None, env: Mapping[str, str]) -> ClientFile:
    """The file for the user, or that of a project if its folder is given."""
    if project is not None:
        return ClientFile(client, "project", _existing(os.path.join(project, client.project), client), project)
    named = env.get(client.variable, "") if client.variable else ""
    if not os.path.isabs(named):
        return ClientFile(client, "user", _existing(os.path.join(home, *client.user), client), home)
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
