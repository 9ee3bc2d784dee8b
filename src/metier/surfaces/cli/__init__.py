"""The command line. It parses arguments, calls the library and prints the result. It has no logic of its own.

The commands are listed in `registry`, and what an error prints is decided in `failure`.
"""

import importlib
import os
import sys

import click

from metier import __version__
from metier.errors import ConfigError
from metier.files.plugins import find, installed
from metier.surfaces.cli import failure, output
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.frame import SuggestingGroup, called, with_options
from metier.surfaces.cli.registry import COMMANDS, ELSEWHERE, GROUPS

_COMPLETE = "_METIER_COMPLETE"
"""The variable in which a shell asks for completions."""


class _Commands(SuggestingGroup):
    elsewhere = ELSEWHERE

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *(name for name in installed("metier.commands") if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            found = find("metier.commands", cmd_name)
            if found is not None and not isinstance(found, click.Command):
                raise ConfigError(f"the command {cmd_name} of another package is not a click.Command")
            return found
        module = importlib.import_module(f"metier.surfaces.cli.{COMMANDS[cmd_name].module}")
        return next(one for one in vars(module).values() if isinstance(one, click.Command) and one.name == cmd_name)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)  # first, because everybody looks for them
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(f"{name:<{widest}}", listed.summary) for name, listed in commands.items()])


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  metier list\n  metier show pdf\n  metier validate --strict ./skills\n\n"
    "`metier help exit-codes` lists the exit codes, `metier help json` says what --json prints.",
)
@click.version_option(__version__, prog_name="metier")
@called
def cli(context: Context) -> None:
    """The runtime for Agent Skills. Find, check, load and run skills as a host would."""


with_options(cli)


def main() -> None:
    """Run the command line. Every error is one line on stderr, or with --json one object, and a stable exit code."""
    arguments = sys.argv[1:]
    failure.open_missing_streams()
    try:
        code = _run([*arguments])  # `list` is a module here
        click.echo(nl=False)  # flushes what others printed
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does: no message, and the exit code of a program that SIGPIPE ended.
        failure.forget_streams()
        code = failure.READER_GONE
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("METIER_DEBUG") and failure.failure_of(error).code == "INTERNAL_ERROR":
            raise  # users see a traceback only on request
        code = failure.tell(error, failure.wants_json(cli, arguments))
        if not failure.flush_output():
            failure.forget_streams()
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    name = "python -m metier" if os.path.basename(sys.argv[0]) == "__main__.py" else "metier"
    if instruction := os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, name, _COMPLETE, instruction)
    try:
        with cli.make_context(name, arguments, terminal_width=output.help_width()) as context:
            cli.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return 0
