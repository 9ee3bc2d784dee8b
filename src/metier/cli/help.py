"""`help`: the help of a command, and what holds for all of them: exit codes and JSON."""

from collections.abc import Iterator, Mapping
from typing import Final

import click

from metier.cli import output
from metier.cli.context import Context, shared
from metier.cli.failure import CODES, EXIT_CODES

JSON: Final = """\
With --json, a command prints one JSON document on standard output; `events`,
`list --watch` and `store export` print one object per line. `metier COMMAND
--json-schema` prints the JSON Schema of it, and `metier --json-schema` those of
all commands and of errors.

Standard error then has JSON objects only, one per line: {"warning": {...}}
any number of times, and {"error": {...}} at most once, as the last line. An
error has a code, a message, the exit code, and the data of this error:

  {"error": {"code": "NOT_FOUND", "message": "...", "exit_code": 1, ...}}

Codes and keys are stable, messages are not.
"""


def exit_codes() -> Iterator[str]:
    """The exit codes, one per line."""
    yield from (f"{code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())


def codes() -> Iterator[str]:
    """The codes of errors, one per line."""
    widest = max(map(len, CODES))
    yield from (f"{code:<{widest}}  {meaning}" for code, meaning in CODES.items())


_TOPICS: Final[Mapping[str, str]] = {
    "exit-codes": "Exit codes:\n\n"
    + "\n".join(f"  {line}" for line in exit_codes())
    + "\n\n`metier run` exits with the code of the script, once it runs.\n",
    "json": JSON + "\nCodes of errors:\n\n" + "\n".join(f"  {line}" for line in codes()) + "\n",
}


@click.command("help", epilog="Examples:\n\n\b\n  metier help\n  metier help store prune\n  metier help exit-codes")
@click.argument("words", nargs=-1, metavar="[COMMAND|exit-codes|json]")
@shared
@click.pass_context
def help_command(click_context: click.Context, context: Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, the exit codes, or what --json prints."""
    text = _TOPICS.get(" ".join(words)) or _help(click_context.find_root(), words)
    if context.as_json:
        output.json_out({"text": text})
    else:
        click.echo(text.rstrip())


def _help(root: click.Context, words: tuple[str, ...]) -> str:
    context = root
    for word in words:
        group = context.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{context.command_path} has no commands", context)
        _, command, _ = group.resolve_command(context, [word])
        if command is not None:
            context = click.Context(command, parent=context, info_name=word)
    return context.get_help()


COMMANDS = (help_command,)
