"""`pick`: choose a skill on the terminal."""

import contextlib
import os
import sys
from collections.abc import Generator

import click

from metier.catalog.modes import Level
from metier.errors import ConfigError, report_missing
from metier.surfaces.cli import asking
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.failure import Cancelled
from metier.surfaces.cli.frame import command, option
from metier.surfaces.tui.model import ALL, Picker, PickerEntry
from metier.surfaces.tui.plain import Dialogue
from metier.values.results import Request


@command(
    "pick",
    "metier pick",
    'metier show "$(metier pick)"',
    "metier pick pdf --scope repo --print path",
    "metier pick --plain",
)
@click.argument("query", required=False, default="")
@option(
    "--print",
    "What to print. load prints what the model would get.",
    "what",
    type=click.Choice(["name", "path", "load"]),
    default="name",
    show_default=True,
)
@option("--scope S", "Start with the skills of this scope.")
@option("--project", "Save switches for everyone in this project.")
@option("--plain", "Use a line-by-line dialogue, for screen readers.")
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
    entry = Dialogue(picker, view).run(query) if plain else _ask(picker, query, view)
    if entry is None or entry.skill is None:
        raise Cancelled("nothing was chosen")
    if what == "load":
        loaded = context.open_session(None if plain else _confirm, surface="tui").load(path=entry.path)
        context.answer(loaded, loaded.text)
    else:
        context.answer(entry.skill, entry.path if what == "path" else picker.name_or_path(entry))


def _ask(picker: Picker, query: str, view: str) -> PickerEntry | None:
    try:
        from metier.surfaces.tui.screen import pick
    except ImportError as error:
        report_missing(error, "the picker", "tui")
    with _terminal():
        return pick(picker, query, view)


def _confirm(request: Request) -> str:
    """Ask on the screen where the skill was chosen."""
    from metier.surfaces.tui.question import ask

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
