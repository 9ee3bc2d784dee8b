"""`pick`: choose a skill on the terminal."""

import contextlib
import os
import sys
from collections.abc import Callable, Generator

import click

from metier.catalog.modes import Level
from metier.cli import asking, output
from metier.cli.context import Context, shared
from metier.cli.failure import Cancelled
from metier.errors import ConfigError, report_missing
from metier.results import Request
from metier.tui.model import ALL, Picker, PickerEntry


@click.command(
    "pick",
    epilog="Examples:\n\n\b\n"
    "  metier pick\n"
    '  metier show "$(metier pick)"\n'
    "  metier pick pdf --scope repo --print path\n"
    "  metier pick --plain",
)
@click.argument("query", required=False, default="")
@click.option(
    "--print",
    "what",
    type=click.Choice(["name", "path", "load"]),
    default="name",
    show_default=True,
    help="What to print. load prints what the model would get.",
)
@click.option("--scope", metavar="S", help="Start with the skills of this scope.")
@click.option("--project", is_flag=True, help="Save switches for everyone in this project.")
@click.option("--plain", is_flag=True, help="Use a line-by-line dialogue, for screen readers.")
@shared
def pick_command(context: Context, query: str, what: str, scope: str | None, project: bool, plain: bool) -> None:
    """Choose a skill by typing, and print its name.

    The list is filtered with every letter. You can also switch skills on and
    off and pin them. Exits with 1 if nothing was chosen.
    """
    level: Level = "project" if project else "user"
    picker = Picker(context.discover(), level)
    view = scope or ALL
    if view not in {each.name for each in picker.views}:
        known = ", ".join(each.name for each in picker.views)
        raise ConfigError(f"there are no skills in the scope {view!r}", key="scope", hint=f"known: {known}")
    entry = _ask_plainly(picker, query, view) if plain else _ask(picker, query, view)
    if entry is None:
        raise Cancelled("nothing was chosen")
    _print(context, picker, entry, what, None if plain else _confirm)


def _ask_plainly(picker: Picker, query: str, view: str) -> PickerEntry | None:
    from metier.tui.plain import Dialogue

    return Dialogue(picker, view).run(query)


def _ask(picker: Picker, query: str, view: str) -> PickerEntry | None:
    try:
        from metier.tui.screen import pick
    except ImportError as error:
        report_missing(error, "the picker", "tui")
    with _terminal():
        return pick(picker, query, view)


def _confirm(request: Request) -> str:
    """Ask on the screen where the skill was chosen."""
    from metier.tui.question import ask

    with _terminal():
        asking.forget_typed()
        return ask(request)


@contextlib.contextmanager
def _terminal() -> Generator[None]:
    """Connect all three standard streams to the terminal while the picker runs.

    Standard output too: the picker does not write to it, but reads the terminal size from it.
    """
    stray = [descriptor for descriptor in (0, 1, 2) if not os.isatty(descriptor)]
    if not stray:
        yield
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        hint = "use `metier pick --plain` or `metier search`"
        raise ConfigError("the picker needs a terminal", hint=hint) from None
    kept = {descriptor: os.dup(descriptor) for descriptor in stray}
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor in stray:
            os.dup2(terminal, descriptor)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in kept.items():
            os.dup2(original, descriptor)
            os.close(original)
        os.close(terminal)


def _print(
    context: Context, picker: Picker, entry: PickerEntry, what: str, approve: Callable[[Request], str] | None
) -> None:
    if what == "load":
        loaded = context.open_session(approve, surface="tui").load(path=entry.path)
        if context.as_json:
            output.json_out(loaded.as_dict())
        else:
            click.echo(output.safe(loaded.text))
    elif context.as_json and entry.skill is not None:
        output.json_out(entry.skill.as_dict())
    else:
        click.echo(output.safe(entry.path if what == "path" else picker.name_or_path(entry)))


COMMANDS = (pick_command,)
