"""The command line. It parses arguments, calls the library and prints the result. It has no logic of its own.

Exit codes: 0 done, 1 the answer is no, 2 wrong usage or configuration, 3 refused by policy, 4 something is missing.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Final

import click

from metier import __version__
from metier.cli.context import Context, shared
from metier.errors import MetierError

COMMANDS: Final[Mapping[str, str]] = {
    "init": "scaffold",
    "new": "scaffold",
    "list": "list",
    "show": "list",
    "profiles": "profiles",
    "pick": "pick",
    "search": "session_commands",
    "prompt": "session_commands",
    "load": "session_commands",
    "read": "session_commands",
    "run": "session_commands",
    "invoke": "session_commands",
    "end-turn": "session_commands",
    "output": "session_commands",
    "compact": "session_commands",
    "tools": "session_commands",
    "commands": "session_commands",
    "may-use": "session_commands",
    "call": "session_commands",
    "validate": "validate",
    "check": "check",
    "schema": "schema",
    "doctor": "doctor",
    "enable": "modes",
    "disable": "modes",
    "mode": "modes",
    "trust": "trust",
    "install": "install",
    "events": "events",
    "usage": "usage",
    "replay": "replay",
    "policy": "policy",
    "store": "store",
    "serve": "serve",
    "rpc": "serve",
    "mcp": "mcp",
    "completion": "completion",
}
"""The module of each command. It is imported when the command is called, so that `list` does not load `replay`."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]  # `list` is the module here

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"metier.cli.{COMMANDS[cmd_name]}")
        return next(command for command in module.COMMANDS if command.name == cmd_name)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Examples:\n\n\b\n  metier list\n  metier show pdf\n  metier validate --strict ./skills",
)
@click.version_option(__version__, prog_name="metier")
@shared
def cli(context: Context) -> None:
    """The runtime for Agent Skills. Find, check, load and run skills as a host would."""


def main() -> None:
    """Run the command line. Every error is one line on stderr and a stable exit code."""
    try:
        code = cli.main(standalone_mode=False, complete_var="_METIER_COMPLETE")
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.UsageError as error:
        error.show()
        code = 2
    except click.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except MetierError as error:
        from metier.files.text import printable

        click.echo(f"metier: {printable(str(error))}", err=True)
        code = error.exit_code
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does. Nothing is left for the interpreter to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:  # users see a traceback only on request
        if os.environ.get("METIER_DEBUG"):
            raise
        click.echo(f"metier: this is a bug: {type(error).__name__}: {error} (METIER_DEBUG=1 shows more)", err=True)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)
