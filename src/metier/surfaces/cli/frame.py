"""What commands are made with: examples for their help, the options that all share, and a `Context` to work with.

Shared options may come before or after the name of a command, and the later one wins. A command returns its exit code
if that is not 0. A wrong name of a command is answered with the right one: the closest, or what it is called here.
"""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import click

from metier import limits
from metier.errors import ConfigError
from metier.hosts.removed import removed
from metier.surfaces.cli.completion import complete_folder, complete_profile, complete_skill
from metier.surfaces.cli.context import Context

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Function = Callable[..., int | None]
CommandT = TypeVar("CommandT", bound=click.Command)
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


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
        if way_out := removed("commands").get(f"metier{ctx.command_path.partition('metier')[2]} {name}"):
            return f" any more: {way_out}."
        if known := self.elsewhere.get(name.casefold()):
            return f"; use {known}."
        from difflib import get_close_matches

        names = self.list_commands(ctx)
        begun = [one for one in names if len(name) > 1 and one.startswith(name.casefold())]
        close = begun[:3] or get_close_matches(name.casefold(), names, 1)
        if close:
            return f". Did you mean {' or '.join(close)}?"
        return f". Commands: {', '.join(names)}." if len(names) <= 10 else "."


def command(
    name: str, *examples: str, of: click.Group | None = None, sessions: bool = False
) -> Callable[[Function], click.Command]:
    """Make a function a command, which gets the `Context` as its first argument.

    With `of`, it is a command of that group. With `sessions`, it has the options of commands that open sessions.
    """

    def decorate(function: Function) -> click.Command:
        made = with_options(click.command(name, epilog=_epilog(examples))(called(function)), sessions)
        if of is not None:
            of.add_command(made)
        return made

    return decorate


def group(
    name: str,
    *examples: str,
    of: click.Group | None = None,
    cls: type[click.Group] = SuggestingGroup,
    sessions: bool = False,
    invoke_without_command: bool = False,
) -> Callable[[Function], click.Group]:
    """Make a function a group of commands, as `command` does."""
    make = click.group(name, cls, epilog=_epilog(examples), invoke_without_command=invoke_without_command)

    def decorate(function: Function) -> click.Group:
        made = with_options(make(called(function)), sessions)
        if of is not None:
            of.add_command(made)
        return made

    return decorate


def with_options(made: CommandT, sessions: bool = False) -> CommandT:
    """Add the shared options after those of the command."""
    made.params += (*_SHARED, *(_SESSIONS if sessions else ()))
    return made


def called(function: Function) -> Callable[..., None]:
    """Call a function with the `Context` of this call instead of the shared options."""

    @functools.wraps(function)
    def wrapper(**given: Any) -> None:
        context = click.get_current_context().ensure_object(Context)
        for option in (*_SHARED, *_SESSIONS):
            if option.name in given:
                value = given.pop(option.name)
                if option.multiple:
                    setattr(context, option.name, getattr(context, option.name) + value)
                elif value is not None:  # an option that was not given leaves the earlier value
                    setattr(context, option.name, value)
        if code := function(context, **given):
            raise click.exceptions.Exit(code)

    return wrapper


def _epilog(examples: Sequence[str]) -> str:
    lines = "\n".join(f"  {example}" for example in examples)
    return f"{'Example' if len(examples) == 1 else 'Examples'}:\n\n\b\n{lines}"


# --- options ---


class UsageOption(click.Option):
    """An option that is declared as its usage: `--host NAME`, or a flag such as `--yes` if nothing more is said."""

    def __init__(
        self, declared: Sequence[str], about: str, *, many: bool = False, complete: Complete | None = None, **more: Any
    ) -> None:
        usage, *name = declared
        options = [word for word in usage.split() if word.startswith("-")]
        value = usage.removeprefix(" ".join(options)).strip()
        settings = {"multiple": many, **more} if value or many or more else {"is_flag": True}
        text = f"{about} Can be repeated." if many else about
        super().__init__([*options, *name], metavar=value or None, help=text, shell_complete=complete, **settings)


def option(usage: str, about: str, *name: str, **more: Any) -> Callable[[FunctionT], FunctionT]:
    """Give a command an option. `name` is that of the parameter, if it is another one."""
    return click.option(usage, *name, cls=UsageOption, about=about, **more)


def _session_id(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an id that no store can hold before anything is opened."""
    if value is None:
        return None
    from metier.errors import StoreError
    from metier.record.store import check_name

    try:
        return check_name(value, "the session id")
    except StoreError as error:
        raise ConfigError(error.message, key="--session", hint=error.hint) from error


_SHARED: Final = (
    UsageOption(["--cwd DIR"], "Work in this folder.", complete=complete_folder),
    UsageOption(["--home DIR"], "Use this folder as the home folder.", complete=complete_folder),
    UsageOption(
        ["--profile NAME|FILE"], "Apply the rules of this host (see `metier profiles`).", complete=complete_profile
    ),
    UsageOption(["--skills DIR"], "Search this folder first.", many=True, complete=complete_folder),
    UsageOption(["--store URL"], "Use this event store (see `metier doctor`)."),
    UsageOption(["--session ID"], "Use or continue this session.", callback=_session_id),
    UsageOption(["--json", "as_json"], "Print JSON.", is_flag=True, default=None),
    UsageOption(["-q --quiet"], "Print less.", is_flag=True, default=None),
    UsageOption(["-v --verbose"], "Print more.", is_flag=True, default=None),
)

_SESSIONS: Final = (
    UsageOption(["--only NAME"], "Limit the session to this skill.", many=True, complete=complete_skill),
    UsageOption(["--preload NAME"], "Put this skill into the system prompt.", many=True, complete=complete_skill),
    UsageOption(["--no-read-tool"], "The host gives its model no tool to read files with.", is_flag=True, default=None),
)

# --- arguments and options of several commands ---


def standard_input() -> str:
    """All of standard input as text, within the bound of an operation."""
    try:
        text = sys.stdin.read(limits.OPERATION_BYTES + 1)
    except UnicodeDecodeError as error:
        raise ConfigError(f"standard input is not text in UTF-8: {error.reason} at byte {error.start:,}") from error
    if len(text) > limits.OPERATION_BYTES:
        raise ConfigError(f"standard input has more than {limits.OPERATION_BYTES:,} bytes")
    return text


name_argument = click.argument("name", shell_complete=complete_skill)
