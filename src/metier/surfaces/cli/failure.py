"""What went wrong, for people and for programs: one line of text or one JSON object, and a stable exit code.

This module decides which code an error has; `metier help exit-codes` and `metier help json` show its tables. A reader
that goes away is no error to tell anybody about.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click
from msgspec import Struct
from msgspec.json import decode

from metier import errors
from metier.files.shapes import is_tuple
from metier.files.text import printable
from metier.hosts.removed import removed
from metier.values.value import Value, field


class _Codes(Struct):
    exit_codes: dict[int, str]
    codes: dict[str, str]


with open(os.path.join(os.path.dirname(__file__), "codes.json"), "rb") as _file:
    _codes = decode(_file.read(), type=_Codes)

EXIT_CODES: Final[Mapping[int, str]] = _codes.exit_codes
"""`metier run` exits with the code of the script instead, once it runs."""

CODES: Final[Mapping[str, str]] = _codes.codes
"""The codes of errors with --json, and what they mean."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_LISTED: Final = 50
"""How many items of a list an error prints."""

INTERRUPTED: Final = 130
READER_GONE: Final = 141


class CommandRefusal(click.ClickException):
    """An answer of the command line itself: no, with a code of `CODES`."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Cancelled(CommandRefusal):
    """A person chose nothing. They know it, so only programs are told."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "CANCELLED")

    def show(self, file: object = None) -> None:
        pass


class CommandFailure(Value):
    """An error as it is printed. `data` has what belongs to this kind of error."""

    code: str
    message: str
    exit_code: int = 1
    data: Mapping[str, object] = field(default_factory=dict[str, object])

    def as_dict(self) -> dict[str, object]:
        told = {"code": self.code, "message": self.message, "exit_code": self.exit_code}
        return {"error": told | {key: value for key, value in self.data.items() if key not in told}}


def failure_of(error: BaseException) -> CommandFailure:
    """What an error is to a caller."""
    if isinstance(error, KeyboardInterrupt | EOFError | click.Abort):
        return CommandFailure("INTERRUPTED", "interrupted", INTERRUPTED)
    if (path := _full_path(error)) is not None:
        where = f": {path} cannot be written" if path else ""
        message = f"the disk is full{where}; free some space, then run the command again"
        return CommandFailure("DISK_FULL", message, 4, {"path": path} if path else {})
    if isinstance(error, click.ClickException):
        return _of_click(error)
    if isinstance(error, errors.MetierError):
        return CommandFailure(_code(error), str(error), error.exit_code, dict(_data(error)))
    if isinstance(error, OSError) and error.strerror:
        path = _name(error.filename)
        message = f"{path}: {error.strerror}" if path else error.strerror
        return CommandFailure("IO_ERROR", message, 1, {"path": path} if path else {})
    return CommandFailure(
        "INTERNAL_ERROR", f"this is a bug: {type(error).__name__}: {error} (METIER_DEBUG=1 shows more)"
    )


def _of_click(error: click.ClickException) -> CommandFailure:
    if isinstance(error, CommandRefusal):
        return CommandFailure(error.code, error.message, error.exit_code)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return CommandFailure("USAGE", "a command is missing; see --help", 2)
    if isinstance(error, click.UsageError):
        return CommandFailure("USAGE", error.format_message(), 2)
    if isinstance(error, click.FileError):
        return CommandFailure("NOT_FOUND", error.format_message(), error.exit_code, {"path": error.ui_filename})
    return CommandFailure("INVALID_PARAM", error.format_message(), error.exit_code)


_CODES: Final[Sequence[tuple[type[errors.MetierError], str]]] = (
    (errors.ConfigError, "INVALID_PARAM"),
    (errors.InstallError, "INSTALL_REFUSED"),
    (errors.MissingExtra, "MISSING_EXTRA"),
    (errors.SandboxUnavailable, "SANDBOX_UNAVAILABLE"),
    (errors.StoreError, "STORE_UNAVAILABLE"),
)


def _code(error: errors.MetierError) -> str:
    """The code of an error of the library. Errors of sessions have the one that every surface gives them."""
    from metier.session.tools import code_of

    if isinstance(error, errors.StoreError) and error.reason == "invalid":
        return "INVALID_PARAM"
    own = next((code for kind, code in _CODES if isinstance(error, kind)), "")
    code = own or code_of(error)
    return "INVALID_SKILL" if isinstance(error, errors.InvalidSkill) and code == "INTERNAL_ERROR" else code


def _data(error: errors.MetierError) -> Iterator[tuple[str, object]]:
    """The public attributes of an error that say something."""
    attributes: dict[str, object] = vars(error)
    for name, value in attributes.items():
        if name.startswith("_") or value in ("", 0, (), None):
            continue
        yield name, [_plain(one) for one in value[:_LISTED]] if is_tuple(value) else _plain(value)


def _plain(value: object) -> object:
    from metier.values.skill import Diagnostic

    return value.as_dict() if isinstance(value, Diagnostic) else value


def _full_path(error: BaseException) -> str | None:
    """The file that had no room, or the folder of it; empty if it is not known. `None` if the disk is not full."""
    cause: BaseException | None = error
    file = ""
    seen: set[int] = set()  # an error that was raised again may be its own cause
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, errors.StoreError) and cause.reason == "full":
            return cause.store
        if isinstance(cause, errors.ConfigError):
            file = cause.file  # the file itself, where the cause may name a temporary one
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return file or _name(cause.filename) or ("standard output" if _in_echo(cause) else "")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


def _in_echo(error: OSError) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is click.echo.__code__


def _name(filename: object) -> str:
    return os.fsdecode(filename) if isinstance(filename, str | bytes) else ""


# --- printing ---


def tell(error: BaseException, as_json: bool) -> int:
    """Print an error on stderr, and return the exit code."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        path, gone = error.ctx.command_path.partition("metier")[2], removed("options")
        if way_out := gone.get(f"metier{path} {error.option_name}") or gone.get(f"metier {error.option_name}"):
            error = click.UsageError(f"there is no option {error.option_name} any more: {way_out}.", error.ctx)
    failure = failure_of(error)
    try:
        if as_json:
            import json

            click.echo(json.dumps(failure.as_dict(), default=str), err=True)
        elif failure.code == "INTERRUPTED":
            if sys.stderr.isatty():
                click.echo(err=True)  # ends the line in which the terminal shows ^C
        elif isinstance(error, click.ClickException) and failure.code != "DISK_FULL":
            error.show()
        else:
            click.echo(f"metier: {printable(failure.message)}", err=True)
    except OSError:
        forget_streams()  # nobody reads it, or there is no room for it
    return failure.exit_code


def wants_json(root: click.Group, arguments: Sequence[str]) -> bool:
    """Whether `--json` is among the options of a command line, also if the rest of it is wrong."""
    command: click.Command = root
    context = click.Context(root, info_name="metier")
    left = iter(arguments)
    for word in left:
        if word == "--":
            return False
        if word == "--json":
            return True
        if word.startswith("-"):
            if _takes_value(command, word):
                next(left, None)
        elif isinstance(command, click.Group):
            with contextlib.suppress(errors.MetierError):  # a command of another package that cannot be loaded
                command = command.get_command(context, word) or command
    return False


def _takes_value(command: click.Command, word: str) -> bool:
    known = (one for one in command.params if isinstance(one, click.Option) and word in one.opts)
    return any(not (option.is_flag or option.count) for option in known)


# --- the standard streams: none is missing, and none fails again at the very end ---


def open_missing_streams() -> None:
    """Open `/dev/null` for streams that the caller closed, so that no database gets the number of standard output."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number, which is this one
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def flush_output() -> bool:
    """Flush standard output, and return whether everything could be written."""
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def forget_streams() -> None:
    """Let the interpreter flush its streams into nothing at the end, because nobody can read them."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nothing, stream.fileno())
        except (OSError, ValueError):
            continue  # it is not a file, as in tests, or already closed
    os.close(nothing)
