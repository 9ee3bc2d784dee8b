"""A wrong command is answered with the right one: the closest, or what it is called here."""

from collections.abc import Mapping
from typing import ClassVar

import click


class SuggestingGroup(click.Group):
    """A group that says which command was probably meant."""

    elsewhere: ClassVar[Mapping[str, str]] = {}
    """What a command of another program is called here, in words."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(f"there is no command {name!r}{self._instead(ctx, name)}", ctx)
        return super().resolve_command(ctx, args)

    def _instead(self, ctx: click.Context, name: str) -> str:
        if known := self.elsewhere.get(name.casefold()):
            return f"; use {known}."
        from difflib import get_close_matches

        names = self.list_commands(ctx)
        begun = [one for one in names if len(name) > 1 and one.startswith(name.casefold())]
        close = begun[:3] or get_close_matches(name.casefold(), names, 1)
        if close:
            return f". Did you mean {' or '.join(close)}?"
        return f". Commands: {', '.join(names)}." if len(names) <= 10 else "."
