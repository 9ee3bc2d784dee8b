"""Processes that run the `metier` command, and a client that speaks JSON-RPC with one of them.

A process is forked from one that has imported everything and done nothing: it has no store, no thread and no open file,
and starts in some milliseconds instead of half a second. Every wait has an end.
"""

import atexit
import importlib
import io
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from metier.record import writer
from metier.surfaces.cli import main as command_line
from metier.surfaces.cli.registry import COMMANDS

for _module in (
    *(f"metier.surfaces.cli.{name}" for name in sorted({command.module for command in COMMANDS.values()})),
    "ctypes",
    "metier.app",
    "metier.search.finder",
    "metier.record.store.memory",
    "metier.record.store.sqlite",
    "metier.replay",
    "metier.surfaces.rpc.pipe",
    "metier.running.sandbox.bubblewrap",
    "metier.session.session",
):
    importlib.import_module(_module)  # before the first fork, so that a child spends its time on its work

Json = dict[str, Any]

PATIENCE: Final = 60.0
"""Seconds after which a process that does not answer is reported."""

_CLEARED: Final = ("METIER_", "XDG_", "CODELIA_", "SKILLS_")
"""Variables of the machine that a walk must not see."""


class Gone(Exception):
    """A process ended, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a process runs: its working directory, variables, and the file of its standard error."""

    cwd: str
    env: Mapping[str, str]
    errors: str
    snapshot_events: int = writer.SNAPSHOT_EVENTS
    """After how many events a process keeps a snapshot. Few, so that a short session has some."""


@dataclass(slots=True)
class Child:
    """A process with pipes to its standard input and from its standard output."""

    pid: int
    stdin: int
    stdout: int
    code: int | None = None

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
        self.wait()
        self.close()

    def wait(self, seconds: float = PATIENCE) -> int:
        """Return its exit code, negative for a signal. A process that does not end in time is killed, and reported."""
        deadline = time.monotonic() + seconds
        pause = 0.0005
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.code = -signal.SIGKILL
                raise Gone("it did not end in time")
            else:
                time.sleep(pause)
                pause = min(pause * 2, 0.02)
        return self.code

    def close(self) -> None:
        for pipe in (self.stdin, self.stdout):
            if pipe >= 0:
                os.close(pipe)
        self.stdin = self.stdout = -1


def fork(work: Callable[[], int], surroundings: Surroundings) -> Child:
    """Start a process that does some work and ends with the code that this returns."""
    input_read, input_write = os.pipe()
    output_read, output_write = os.pipe()
    pid = os.fork()
    if not pid:
        _become(work, surroundings, input_read, output_write)
    os.close(input_read)
    os.close(output_write)
    return Child(pid, input_write, output_read)


def _become(work: Callable[[], int], surroundings: Surroundings, stdin: int, stdout: int) -> NoReturn:
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        errors = os.open(surroundings.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, pipe in enumerate((stdin, stdout, errors)):
            os.dup2(pipe, number)
        os.closerange(3, 1024)  # other processes see the end of their input only if nobody else holds it
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), "utf-8")
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), "utf-8")
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(2, "w")), "utf-8", "backslashreplace", line_buffering=True
        )
        os.chdir(surroundings.cwd)
        for name in [name for name in os.environ if name.startswith(_CLEARED)]:
            del os.environ[name]
        os.environ.update(surroundings.env)
        writer.__dict__["SNAPSHOT_EVENTS"] = surroundings.snapshot_events
        code = work()
        if not sys.stdout.closed:
            sys.stdout.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()  # noqa: SLF001 - what a process does when it ends
        os._exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command in this process, and return its exit code."""
    sys.argv = ["metier", *arguments]
    try:
        command_line()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0


@dataclass(frozen=True, slots=True)
class Done:
    """What a process that has ended printed."""

    code: int
    out: str


def read_all(child: Child, seconds: float = PATIENCE) -> Done:
    """Wait for a process that reads nothing, and return what it printed."""
    os.close(child.stdin)
    child.stdin = -1
    deadline = time.monotonic() + seconds
    content = b""
    while True:
        if not select.select([child.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            child.kill()
            raise Gone("it did not end in time")
        chunk = os.read(child.stdout, 1 << 16)
        if not chunk:
            break
        content += chunk
    code = child.wait()
    child.close()
    return Done(code, content.decode("utf-8", "replace"))


def command(arguments: Sequence[str], surroundings: Surroundings) -> Child:
    """Start one command of the command line."""
    return fork(lambda: run(arguments), surroundings)


def in_child(work: Callable[[], object], surroundings: Surroundings) -> Any:
    """Do some work in a process of its own, and return its result, which must be JSON."""

    def report() -> int:
        print(json.dumps(work()))
        return 0

    done = read_all(fork(report, surroundings), 600)
    if done.code:
        with open(surroundings.errors, encoding="utf-8", errors="replace") as stream:
            raise Gone(f"the check ended with {done.code}: {stream.read()[-2000:]}")
    return json.loads(done.out)


def _no_answer(_: Json) -> object:
    return None


@dataclass(slots=True)
class Rpc:
    """A `metier rpc` process, and the messages to and from it."""

    child: Child
    on_request: Callable[[Json], object] = _no_answer
    """Answers what the process asks its client."""
    _buffer: bytes = b""
    _last: int = 0
    _answers: dict[int, Json] = field(default_factory=dict[int, Json])

    @classmethod
    def start(
        cls,
        arguments: Sequence[str],
        surroundings: Surroundings,
        on_request: Callable[[Json], object] = _no_answer,
    ) -> "Rpc":
        return cls(command(["rpc", *arguments], surroundings), on_request)

    def send(self, method: str, params: Json) -> int:
        """Send a call. Return its id."""
        self._last += 1
        self._write({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def _write(self, message: Json) -> None:
        data = json.dumps(message).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self.child.stdin, data) :]
        except OSError as error:
            raise Gone(f"it ended with {self.child.wait()}") from error

    def receive(self, id_: int, seconds: float = PATIENCE) -> Json:
        """Return the answer to a call."""
        deadline = time.monotonic() + seconds
        while id_ not in self._answers:
            message = self._message(deadline)
            if "method" in message and "id" in message:
                self._write({"jsonrpc": "2.0", "id": message["id"], "result": self.on_request(message)})
            elif isinstance(message.get("id"), int):
                self._answers[message["id"]] = message
        return self._answers.pop(id_)

    def _message(self, deadline: float) -> Json:
        while b"\n" not in self._buffer:
            if not select.select([self.child.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise Gone("it did not answer in time")
            chunk = os.read(self.child.stdout, 1 << 20)
            if not chunk:
                raise Gone(f"it ended with {self.child.wait()}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def call(self, method: str, params: Json) -> Json:
        """Send a call and return its answer, which has a result or an error."""
        return self.receive(self.send(method, params))

    def kill(self) -> dict[int, Json]:
        """End it with SIGKILL. Return the answers that it had given, by id."""
        os.kill(self.child.pid, signal.SIGKILL)
        while chunk := os.read(self.child.stdout, 1 << 20):
            self._buffer += chunk
        *lines, _ = self._buffer.split(b"\n")  # the last line may be half of one
        for message in map(json.loads, lines):
            if isinstance(message.get("id"), int) and "method" not in message:
                self._answers[message["id"]] = message
        self.child.wait()
        self.child.close()
        return self._answers

    def end(self) -> int:
        """Close its input, and return its exit code."""
        os.close(self.child.stdin)
        self.child.stdin = -1
        code = self.child.wait()
        self.child.close()
        return code
