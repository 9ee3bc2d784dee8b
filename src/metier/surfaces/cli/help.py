"""`help` and `completion`: the help of a command, what holds for all of them, and the completion of command lines."""

from collections.abc import Mapping
from typing import Final

import click

from metier.surfaces.cli.context import Context
from metier.surfaces.cli.failure import CODES, EXIT_CODES
from metier.surfaces.cli.frame import command

JSON: Final = """\
With --json, a command prints one JSON document on standard output; `events`,
`list --watch` and `session store export` print one object per line.

Standard error then has JSON objects only, one per line: {"warning": {...}}
any number of times, and {"error": {...}} at most once, as the last line. An
error has a code, a message, the exit code, and the data of this error:

  {"error": {"code": "NOT_FOUND", "message": "...", "exit_code": 1, ...}}

Codes and keys are stable, messages are not.
"""


_WIDEST: Final = max(map(len, CODES))
_TOPICS: Final[Mapping[str, str]] = {
    "exit-codes": "Exit codes:\n\n"
    + "".join(f"  {code:>3}  {meaning}\n" for code, meaning in EXIT_CODES.items())
    + "\n`metier run` exits with the code of the script, once it runs.\n",
    "json": f"{JSON}\nCodes of errors:\n\n"
    + "".join(f"  {code:<{_WIDEST}}  {meaning}\n" for code, meaning in CODES.items()),
}


@command("help", "metier help", "metier help session store prune", "metier help exit-codes")
@click.argument("words", nargs=-1, metavar="[COMMAND|exit-codes|json]")
def help_command(context: Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, the exit codes, or what --json prints."""
    text = _TOPICS.get(" ".join(words)) or _help(click.get_current_context().find_root(), words)
    context.answer({"text": text}, text.rstrip())


def _help(root: click.Context, words: tuple[str, ...]) -> str:
    context = root
    for word in words:
        group = context.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{context.command_path} has no commands", context)
        _, inner, _ = group.resolve_command(context, [word])
        if inner is not None:
            context = click.Context(inner, parent=context, info_name=word)
    return context.get_help()


@command(
    "completion",
    'eval "$(metier completion bash)"        # in ~/.bashrc',
    'eval "$(metier completion zsh)"         # in ~/.zshrc, after compinit',
    "metier completion fish > ~/.config/fish/completions/metier.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(context: Context, shell: str) -> None:
    """Print the script for completion in a shell.

    It completes commands, options, profiles, skills and files of a skill.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from metier.surfaces.cli import cli

    found = get_completion_class(shell)
    assert found is not None
    # The `source` method of the bash class would start bash to check its version, and bash may not be installed.
    script = ShellComplete.source(found(cli, {}, "metier", "_METIER_COMPLETE"))
    context.answer({"shell": shell, "script": script}, script)
