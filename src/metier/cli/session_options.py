"""The options of commands that open sessions: what a session is limited to and begins with."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click

from metier.cli.completion import complete_skill
from metier.cli.context import Command, Context, approve_all, shared
from metier.quick_dataclass import dataclass

if TYPE_CHECKING:
    from metier.app import App
    from metier.session.session import Session

_OPTIONS: Final = (
    click.option(
        "--only",
        multiple=True,
        metavar="NAME",
        help="Limit the session to this skill. Can be repeated.",
        shell_complete=complete_skill,
    ),
    click.option(
        "--preload",
        multiple=True,
        metavar="NAME",
        help="Put this skill into the system prompt. Can be repeated.",
        shell_complete=complete_skill,
    ),
    click.option("--no-read-tool", is_flag=True, help="The host gives its model no tool to read files with."),
)


@dataclass(slots=True)
class Opening:
    """The shared options of a command, and what its sessions begin with."""

    context: Context
    only: Sequence[str]
    preload: Sequence[str]
    has_read_tool: bool

    @property
    def as_json(self) -> bool:
        return self.context.as_json

    @property
    def quiet(self) -> bool:
        return self.context.quiet

    def session(self, *, yes: bool = False, acts: bool = False) -> "Session":
        """Open the session of a command. With `yes`, everything that policy would ask about is allowed."""
        return self.context.open_session(
            approve_all if yes else None,
            acts=acts,
            only=self.only,
            preload=self.preload,
            has_read_tool=self.has_read_tool,
        )

    def app(self, surface: str) -> "App":
        """Open the app of a server, whose new sessions begin so."""
        from metier.session.load import check_preload

        check_preload(self.preload, self.only or None)  # at once, and not when the first client comes
        app = self.context.open_app(surface)
        if self.only:
            app.defaults["only"] = self.only
        if self.preload:
            app.defaults["preload"] = self.preload
        if not self.has_read_tool:
            app.defaults["has_read_tool"] = False
        return app


def opens_sessions(command: Callable[..., None]) -> Command:
    """Give a command the options of sessions, and pass it an `Opening` as its first argument."""

    @functools.wraps(command)
    def wrapper(
        context: Context,
        /,
        *args: object,
        only: Sequence[str],
        preload: Sequence[str],
        no_read_tool: bool,
        **given: object,
    ) -> None:
        command(Opening(context, only, preload, has_read_tool=not no_read_tool), *args, **given)

    decorated: Command = wrapper
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return shared(decorated)
