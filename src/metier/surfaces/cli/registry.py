"""Every command with its group, its module and its line in the list of commands.

Help is built from this table alone, so that it imports no command. A command is listed here once, in the group where a
person would look for it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class ListedCommand(NamedTuple):
    """A command in the list of commands."""

    module: str
    """The module in this package that has it. It is imported when the command is called."""
    summary: str


GROUPS: Final[Mapping[str, Mapping[str, ListedCommand]]] = {
    "Find skills": {
        "list": ListedCommand("list", "List the skills of this folder."),
        "show": ListedCommand("list", "Show one skill: its fields, files and problems."),
        "search": ListedCommand("session_commands", "Find skills by what they are for, the best first."),
        "pick": ListedCommand("pick", "Choose a skill by typing, and print its name."),
    },
    "Use skills": {
        "load": ListedCommand("session_commands", "Show what a model gets when it activates a skill."),
        "read": ListedCommand("session_commands", "Read a file of a skill."),
        "run": ListedCommand("run", "Run a script of a skill in the sandbox."),
        "artifacts": ListedCommand("run", "List the files that scripts made, and fetch them."),
        "invoke": ListedCommand("session_commands", "Show what a user's message calls."),
        "prompt": ListedCommand("session_commands", "Show what goes into the system prompt."),
        "env": ListedCommand("env", "Show and delete the packages that scripts import."),
    },
    "Write and install skills": {
        "init": ListedCommand("scaffold", "Create a folder for the project's skills, and a configuration."),
        "new": ListedCommand("scaffold", "Create a skill to start from."),
        "validate": ListedCommand("validate", "Check skills against the standard or a profile."),
        "check": ListedCommand("check", "Show how each host would treat a skill."),
        "schema": ListedCommand("profiles", "Print the JSON Schema of the frontmatter."),
        "install": ListedCommand("install", "Install a skill from a folder, an archive or a site."),
    },
    "Switches, rules and trust": {
        "enable": ListedCommand("switches", "Switch a skill on."),
        "disable": ListedCommand("switches", "Switch a skill off."),
        "mode": ListedCommand("switches", "Set how a skill is offered to the model."),
        "policy": ListedCommand("policy", "Show the rules in force, and take back remembered answers."),
        "trust": ListedCommand("switches", "Trust the project of a folder."),
        "secret": ListedCommand("secret", "Keep secrets, and give them to skills."),
        "caps": ListedCommand("caps", "Show what a skill names, may use and has used."),
    },
    "Serve other programs": {
        "serve": ListedCommand("serve", "Serve the web app, the HTTP API, JSON-RPC and MCP."),
        "mcp": ListedCommand("mcp", "Serve MCP, or add it to a client such as Claude Code."),
        "rpc": ListedCommand("serve", "Serve JSON-RPC on standard input and output."),
    },
    "What was done": {
        "events": ListedCommand("record", "Show the record: what was loaded, read, run and refused."),
        "usage": ListedCommand("usage", "Show which skills are offered, loaded and run."),
        "replay": ListedCommand("record", "Run a recorded session again, and compare every byte."),
        "store": ListedCommand("record", "Count, move and delete recorded events."),
    },
    "Build a host": {
        "tools": ListedCommand("session_commands", "List the tools that a model is given."),
        "call": ListedCommand("session_commands", "Answer one tool call in the profile's shape."),
        "commands": ListedCommand("session_commands", "List the slash commands for a user."),
        "may-use": ListedCommand("session_commands", "Say whether a tool of the host may be used now."),
        "output": ListedCommand("session_commands", "Show again what a session was given, by its ref."),
        "compact": ListedCommand("session_commands", "Show what belongs back into a compacted context."),
        "end-turn": ListedCommand("session_commands", "Begin the user's next turn."),
    },
    "Setup": {
        "doctor": ListedCommand("doctor", "Show what works here, or what a skill needs and lacks."),
        "profiles": ListedCommand("profiles", "List the known hosts, or show the rules of one."),
        "completion": ListedCommand("help", "Print the script for completion in a shell."),
        "help": ListedCommand("help", "Show help on a command, exit codes or JSON."),
    },
}

COMMANDS: Final[Mapping[str, ListedCommand]] = {name: one for group in GROUPS.values() for name, one in group.items()}

_OTHER_NAMES: Final[Mapping[str, str]] = {
    "`metier list`": "ls skills",
    "`metier show`": "info view describe",
    "`metier search`": "find grep",
    "`metier pick`": "select",
    "`metier load`": "activate use",
    "`metier read NAME FILE`": "cat get",
    "`metier run`": "exec",
    "`metier new`": "create scaffold",
    "`metier validate`": "lint test",
    "`metier check`": "compat",
    "`metier install`": "add",
    "`metier install --replace`": "update upgrade",
    "`metier disable`, or delete the folder of the skill": "rm remove uninstall delete",
    "`metier enable`": "on",
    "`metier disable`": "off",
    "`metier mode NAME pinned`": "pin",
    "`metier policy list`": "permissions rules",
    "`metier secret list`": "secrets keyring",
    "`metier caps`": "capabilities grants",
    "`metier serve`": "start server web",
    "`metier serve --open`": "ui",
    "`metier events`": "log logs history",
    "`metier store stats`": "sessions",
    "`metier store prune`": "prune",
    "`metier store export`": "export",
    "`metier artifacts`": "files",
    "`metier artifacts NAME`": "download",
    "`metier store import`": "import",
    "`metier doctor`": "status config settings",
    "`metier env show`": "venv packages dependencies",
    "`metier profiles`": "hosts",
    "`metier --version`": "version",
}

ELSEWHERE: Final[Mapping[str, str]] = {
    word: command for command, words in _OTHER_NAMES.items() for word in words.split()
}
"""What other programs call a command, and what it is here."""
