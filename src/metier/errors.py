"""The errors of the library, as one small tree. Every error has its data as attributes, so no caller parses a message.

    MetierError
    ├── ConfigError            a setting, a profile or an argument is wrong: file, line, key, and a hint
    ├── SkillNotFound          no skill has that name or path: the available names, and close matches
    ├── AmbiguousSkill         several skills have the name: the paths to choose from
    ├── InvalidSkill           an explicitly requested skill did not pass validation: its diagnostics
    ├── ResourceError          a file of a skill cannot be served
    │   ├── PathEscape         the path leads outside the skill's folder
    │   ├── ResourceNotFound
    │   └── BinaryResource     the file is not text
    ├── BadArguments           an operation or a tool was called with invalid arguments
    ├── PolicyDenied           a rule of the policy refuses the request
    ├── InvocationError        skills call each other in a cycle, or too deeply
    ├── SandboxUnavailable     no sandbox works on this machine
    ├── ScriptRefused          the file is not a runnable script
    ├── InstallError           a skill was not installed, and nothing was changed: the reason
    ├── StoreError             the event store cannot be opened, read or written
    │   ├── StateConflict      another process saved a session's state first
    │   └── StreamConflict     another process appended to a stream first
    └── MissingExtra           an optional dependency is not installed: the command that installs it

Discovery never raises for a bad skill. It reports a `Diagnostic`. An explicit request for that skill raises.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NoReturn

if TYPE_CHECKING:
    from metier.values.skill import Diagnostic

StoreReason = Literal[
    "unopenable",
    "read-only",
    "full",
    "busy",
    "corrupt",
    "version",
    "lost",
    "closed",
    "invalid",
    "conflict",
    "gap",
    "missing-artifact",
    "changed-artifact",
    "changed",
    "failed",
]
"""Stable words for why a store failed."""


class MetierError(Exception):
    """The base class of all errors of this library. `exit_code` is the exit code of the command line."""

    exit_code = 1


class ConfigError(MetierError):
    """A setting, profile or argument is wrong."""

    exit_code = 2

    def __init__(self, message: str, *, file: str = "", line: int = 0, key: str = "", hint: str = "") -> None:
        self.message, self.file, self.line, self.key, self.hint = message, file, line, key, hint
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        super().__init__(f"{place}{message}{f' ({hint})' if hint else ''}")

    def at(self, file: str, line: int = 0) -> "ConfigError":
        """The same error with its place, unless it has one."""
        return self if self.file else ConfigError(self.message, file=file, line=line, key=self.key, hint=self.hint)


class SkillNotFound(MetierError):
    """No skill has the name, or none is at the path."""

    def __init__(
        self, wanted: str, available: Sequence[str] = (), close: Sequence[str] = (), why: str = "", reason: str = ""
    ) -> None:
        """`reason` tells why a skill of that name was skipped, if one was. See `Skipped.reason`."""
        self.wanted, self.available, self.close, self.why = wanted, tuple(available), tuple(close), why
        self.reason = reason
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        super().__init__(f"no skill {wanted!r}{f': {why}' if why else ''}{hint}")


class AmbiguousSkill(MetierError):
    """Several skills have the name, and the profile does not choose between them."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        self.name, self.candidates = name, tuple(candidates)
        super().__init__(f"{name!r} is ambiguous, name one by its path: {', '.join(candidates)}")


class InvalidSkill(MetierError):
    """The requested skill did not pass validation."""

    def __init__(self, path: str, diagnostics: "Sequence[Diagnostic]") -> None:
        self.path, self.diagnostics = path, tuple(diagnostics)
        reasons = "; ".join(f"{d.message}{f' (line {d.line})' if d.line else ''}" for d in diagnostics)
        super().__init__(f"{path} is not a valid skill: {reasons}")


class ResourceError(MetierError):
    """A file of a skill cannot be served. `reason` is a stable word, the same on every surface."""

    def __init__(self, message: str, *, path: str = "", reason: str = "") -> None:
        self.message, self.path, self.reason = message, path, reason
        super().__init__(message)


class PathEscape(ResourceError):
    """The path leads outside the skill's folder."""

    def __init__(self, path: str, reason: str, message: str) -> None:
        super().__init__(f"{message}: {path!r}" if path else message, path=path, reason=reason)


class ResourceNotFound(ResourceError):
    """The skill has no such file."""

    def __init__(self, path: str, available: Sequence[str] = ()) -> None:
        self.available = tuple(available)
        super().__init__(f"File not found: {path}", path=path, reason="not-found")


class BinaryResource(ResourceError):
    """The file is not text."""

    def __init__(self, path: str, size: int) -> None:
        self.size = size
        super().__init__(f"binary files are not supported: {path}", path=path, reason="binary")


class BadArguments(MetierError):
    """The arguments of an operation or a tool call are invalid. `field` is the invalid one, if it is a single one."""

    exit_code = 2

    def __init__(self, message: str, *, field: str = "") -> None:
        self.message, self.field = message, field
        super().__init__(message)


class PolicyDenied(MetierError):
    """The policy, or a person, refuses the request. `rule` is why, and `way_out` how a person can allow it."""

    exit_code = 3

    def __init__(self, tool: str, skill: str = "", rule: str = "", way_out: str = "") -> None:
        self.tool, self.skill, self.rule, self.way_out = tool, skill, rule, way_out
        what = f"{tool} for {skill}" if skill else tool
        super().__init__(f"policy refuses {what}{f' ({rule})' if rule else ''}{f'; {way_out}' if way_out else ''}")


class InvocationError(MetierError):
    """Skills call each other in a cycle, or too deeply. `chain` lists the calls."""

    def __init__(self, message: str, chain: Sequence[str]) -> None:
        self.chain = tuple(chain)
        super().__init__(f"{message}: {' -> '.join(chain)}")


class SandboxUnavailable(MetierError):
    """No sandbox works here, or it cannot protect this run as promised. `tried` lists the attempts, `install` a fix."""

    exit_code = 4

    def __init__(self, message: str, *, install: str = "", tried: Sequence[str] = ()) -> None:
        self.message, self.install, self.tried = message, install, tuple(tried)
        why = f": {'; '.join(tried)}" if tried else ""
        super().__init__(f"{message}{why}{f' (to fix it: {install})' if install else ''}")


class ScriptRefused(MetierError):
    """The file is not a runnable script. `reason` is a stable word, and the message says what to do."""

    def __init__(self, script: str, reason: str, message: str) -> None:
        self.script, self.reason = script, reason
        super().__init__(f"{script}: {message}")


class InstallError(MetierError):
    """A skill was not installed, and nothing was changed. `reason` is a stable word, `hint` says what to do."""

    def __init__(self, message: str, *, reason: str, hint: str = "") -> None:
        self.message, self.reason, self.hint = message, reason, hint
        super().__init__(f"{message}{f' ({hint})' if hint else ''}")


class StoreError(MetierError):
    """The event store cannot be opened, read or written. `reason` is a stable word, `hint` says what to do."""

    def __init__(self, message: str, *, reason: StoreReason = "failed", store: str = "", hint: str = "") -> None:
        self.message, self.store, self.hint = message, store, hint
        self.reason: StoreReason = reason
        self.exit_code = 4 if reason in ("unopenable", "read-only", "version", "lost") else 1
        super().__init__(f"{f'{store}: ' if store else ''}{message}{f' ({hint})' if hint else ''}")


class StateConflict(StoreError):
    """Another process saved the document first. `actual` is the current version (0: none)."""

    def __init__(self, session_id: str, key: str, expected: int, actual: int) -> None:
        self.session_id, self.key, self.expected, self.actual = session_id, key, expected, actual
        message = f"state {key!r} of session {session_id!r} has version {actual}, not {expected}"
        super().__init__(message, reason="conflict", hint="load it again, apply the change, save")


class StreamConflict(StoreError):
    """The stream does not end where an append expected it. `found` is its last seq (-1: it has no event)."""

    def __init__(self, stream_id: str, expected: int, found: int) -> None:
        self.stream_id, self.expected, self.found = stream_id, expected, found
        message = f"the last seq of stream {stream_id!r} is {found}, not {expected}"
        super().__init__(message, reason="conflict", hint="read the new events, and append after them")


class MissingExtra(MetierError):
    """The dependency of a requested optional feature is not installed."""

    exit_code = 4

    def __init__(self, what: str, extra: str) -> None:
        self.what, self.extra, self.install = what, extra, f"pip install 'metier[{extra}]'"
        super().__init__(f"{what} needs an optional dependency; install it with: {self.install}")


def report_missing(error: ImportError, what: str, extra: str) -> NoReturn:
    """Raise `MissingExtra` where a package of others is not installed. Any other error of an import is raised again.

    An error without a name is that of a framework that asks for one of its own extras.
    """
    if error.name and not (isinstance(error, ModuleNotFoundError) and _is_absent(error.name)):
        raise error
    raise MissingExtra(what, extra) from error


def _is_absent(module: str) -> bool:
    """Whether no installed package has the module: it is not that a package is there and lacks it."""
    from importlib.util import find_spec

    shared = True
    for end in (*(at for at, sign in enumerate(module) if sign == "."), len(module)):
        found = find_spec(module[:end])
        if found is None:
            return shared
        shared = found.origin is None  # a folder of several packages, such as `google`
    return False
