"""What the tests of the hosts ask with: the command line, and an ear at the interpreter."""

import io
import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from metier import Skills
from metier.surfaces.cli import main
from worlds import World

Heard = list[tuple[str, str]]
_ears: list[Heard] = []
_hooked: list[bool] = []

OUTSIDE = ("socket.", "urllib.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "pty.")
"""The audit events of everything that leaves the process: connections and programs."""


def metier(
    world: World, *arguments: str, cwd: Path | None = None, code: int = 0, output: bool = False, **env: str
) -> Any:
    """Run the command in the project: its JSON, or what it says on stderr where another exit code is expected.

    `output` asks for the JSON of a command that fails.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {"HOME": str(world.home), **env}))
        stack.enter_context(patch.object(sys, "argv", ["metier", *arguments, "--json"]))
        stack.enter_context(chdir(cwd or world.project))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        ended = _exit_code(main)
    said, complained = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    assert ended == code, complained
    return json.loads(said) if code == 0 or output else complained


def _exit_code(command: Callable[[], object]) -> int:
    try:
        command()
    except SystemExit as stop:
        return int(stop.code or 0)
    raise AssertionError("the command did not exit")


@contextmanager
def listening() -> Generator[Heard, None, None]:
    """Hear each audit event of this process with its first argument, as text."""
    if not _hooked:
        sys.addaudithook(_hear)  # there is no way to take it off again, so there is only ever one
        _hooked.append(True)
    heard: Heard = []
    _ears.append(heard)
    try:
        yield heard
    finally:
        _ears.remove(heard)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    for heard in _ears:
        heard.append((event, str(arguments[0]) if arguments else ""))


def opened(heard: Heard, name: str = "SKILL.md") -> list[str]:
    """The files of a name that were opened; the attempts on files that are not there aside."""
    tried = [path for event, path in heard if event == "open" and os.path.basename(path) == name]
    return [path for path in tried if os.path.lexists(path)]


def left(heard: Heard) -> list[str]:
    """The events that go beyond the process."""
    return [event for event, _ in heard if event.startswith(OUTSIDE)]


def names(skills: Skills) -> list[str]:
    return [skill.name for skill in skills]


def codes(skills: Skills, path: Path, *severities: str) -> list[str]:
    """The codes of what is said about a path, of these severities if any are given."""
    said = [d for d in skills.diagnostics if d.path == str(path)]
    return [d.code for d in said if not severities or d.severity in severities]
