"""What the tests of the hosts ask with: the command line in a process of its own, and an ear at the interpreter."""

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forking
from metier import Skills
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
    command = [*forking.METIER, *arguments, "--json"]
    surroundings = {**os.environ, "HOME": str(world.home), **env}
    done = forking.run(command, cwd=cwd or world.project, env=surroundings, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 or output else done.stderr


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
