"""`pick`: choose a skill on the terminal."""

import contextlib
import os
import sys
from collections.abc import Generator

import click

from metier.errors import ConfigError, report_missing
from metier.surfaces.cli import asking
from metier.surfaces.cli.context import Context
from metier.surfaces.cli.failure import Cancelled
from metier.surfaces.cli.frame import command, option
from metier.surfaces.tui.model import ALL, Picker
from metier.surfaces.tui.plain import Dialogue
from metier.values.results import Request
from metier.values.skill import Skill


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
    picker = Picker(context.discover(), "project" if project else "user")
    if (scope or ALL) not in picker.scopes:
        hint = f"known: {', '.join(picker.scopes)}"
        raise ConfigError(f"there are no skills in the scope {scope!r}", key="scope", hint=hint)
    skill = Dialogue(picker, scope or ALL).run(query) if plain else _pick(picker, query, scope or ALL)
    if skill is None:
        raise Cancelled("nothing was chosen")
    if what == "load":
        loaded = context.open_session(None if plain else _confirm, surface="tui").load(path=skill.path)
        context.answer(loaded, loaded.text)
    else:
        context.answer(skill, skill.path if what == "path" else picker.name_or_path(skill))


def _pick(picker: Picker, query: str, scope: str) -> Skill | None:
    try:
        from metier.surfaces.tui.screen import pick
    except ImportError as error:
        report_missing(error, "the picker", "tui")
    with _terminal():
        return pick(picker, query, scope)


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
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        hint = "use `metier pick --plain` or `metier search`"
        raise ConfigError("the picker needs a terminal", hint=hint) from None
    kept = [os.dup(stream) for stream in range(3)]
    try:
        for stream in range(3):
            os.dup2(terminal, stream)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, original in enumerate(kept):
            os.dup2(original, stream)
            os.close(original)
        os.close(terminal)
