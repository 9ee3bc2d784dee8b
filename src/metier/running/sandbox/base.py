"""What the runners of real processes share: what a job needs to start, supervising its process, and the outcome.

Input goes to a running script and its output to the caller. Nothing is read until the previous piece has been handled,
so a slow consumer slows down the script instead of filling memory. The bytes that are kept and the bytes that are
passed on are the same, at most the limit for both streams together; one byte more ends the run. A run is ended at its
limits in a thread of its own, so that a blocking consumer cannot delay the time limit, and the first reason is
reported. Checks are polled, so usage can exceed a limit between two polls. A check that is close to its limit asks to
be called again sooner.

The invariant: whatever happens between start and return (a limit, an exception in the consumer, an interrupt, a
stop), the process is ended and reaped before control goes back to the caller.
"""

import os
import selectors
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from subprocess import Popen
from typing import IO, TYPE_CHECKING, Final, Self

from msgspec import Struct

from metier.errors import ResourceError, ScriptRefused
from metier.files.tree import SkillTree, take
from metier.limits import KIB, MIB
from metier.running.sandbox import Ended, Job, OnOutput, Outcome, Stream, WrittenFile
from metier.running.sandbox.changes import ProjectChanges
from metier.running.sandbox.collect import collect
from metier.running.sandbox.interpreter import Program, find_program
from metier.running.sandbox.mounts import given_files
from metier.values.value import field

if TYPE_CHECKING:
    from metier.running.sandbox.proxy import HostProxy

ARGUMENT_BYTES: Final = 128 * KIB - 1
ARGUMENTS_BYTES: Final = MIB
"""The size of one argument, which Linux limits, and of all of them with the variables, which depends on the system."""
POLL_SECONDS: Final = 0.025
_CHUNK: Final = 64 * KIB
_TICK: Final = 0.1
_GRACE_TICKS: Final = 10

Check = Callable[[], Ended | float | None]
"""Returns why the run must end, or within how many seconds the check must be called again, if that is urgent."""


def prepare(job: Job) -> tuple[SkillTree, Program]:
    """The files of the job's skill and the program for its script. Raises `ScriptRefused`."""
    tree = approved_tree(job)
    return tree, find_program(tree, job.script, job.packages)


def approved_tree(job: Job) -> SkillTree:
    """The files of the job's skill. Raises `ScriptRefused`, also where the arguments of the job are too long."""
    sizes = [len(os.fsencode(word)) for word in (*job.argv, *job.env.values())]
    if max(sizes, default=0) > ARGUMENT_BYTES or sum(sizes) > ARGUMENTS_BYTES:
        message = f"its arguments have {sum(sizes):,} bytes, which is too long; pass long text as standard input"
        raise ScriptRefused(job.script, "arguments-too-long", message)
    tree = job.tree
    if tree is None:
        try:
            folder = os.open(job.skill_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ScriptRefused(job.script, "unreadable", error.strerror or "cannot be read") from error
        try:
            tree = take(folder)
        except ResourceError as error:
            raise ScriptRefused(job.script, error.reason, str(error)) from error
        finally:
            os.close(folder)
    return tree


class Watch:
    """A context in which a run is watched. `ended` is the reason if the run was ended."""

    def __init__(
        self, seconds: float, end: Callable[[], None], checks: Sequence[Check], stop: threading.Event | None = None
    ) -> None:
        self.ended: Ended | None = None
        self._seconds, self._end, self._checks, self._stop = seconds, end, checks, stop
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="metier-run-watch", daemon=True)

    def __enter__(self) -> Self:
        self._deadline = time.monotonic() + self._seconds
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def finish(self, why: Ended) -> None:
        """End the run. Only the first reason is kept."""
        with self._lock:
            if self.ended is None:
                self.ended = why
        self._end()

    def _watch(self) -> None:
        longest = pause = min(POLL_SECONDS, self._seconds)
        while not self._over.wait(pause):
            found = self._poll()
            if isinstance(found, str):
                self.finish(found)
                return
            pause = min(longest, found)

    def _poll(self) -> Ended | float:
        if self._stop is not None and self._stop.is_set():
            return "killed"
        if time.monotonic() >= self._deadline:
            return "timeout"
        soonest = POLL_SECONDS
        for check in self._checks:
            found = check()
            if isinstance(found, str):
                return found
            soonest = min(soonest, found if found is not None else soonest)
        return soonest


class PumpedOutput(Struct):
    """What was read so far."""

    limit: int
    kept: dict[Stream, bytearray] = field(default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()})
    totals: dict[Stream, int] = field(default_factory=lambda: {"stdout": 0, "stderr": 0})

    @property
    def flooded(self) -> bool:
        return sum(self.totals.values()) > self.limit

    def take(self, stream: Stream, data: bytes) -> bytes:
        """Count a piece, and keep and return the part that fits."""
        room = max(0, self.limit - sum(self.totals.values()))
        self.totals[stream] += len(data)
        fits = data[:room]
        self.kept[stream] += fits
        return fits


def pump(
    process: Popen[bytes],
    stdin: bytes,
    output: PumpedOutput,
    on_output: OnOutput | None,
    flood: Callable[[], None],
    over: Callable[[], bool],
    each: Callable[[], None],
) -> None:
    """Write input and read output until both streams have ended. `flood` is called once at the output limit.

    `each` is called several times a second. `over` returns whether the script has ended. A stream that is still open
    after that is abandoned after a moment.
    """
    assert process.stdin
    assert process.stdout
    assert process.stderr
    streams: dict[int, Stream] = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
    waiting = memoryview(stdin)
    ticks = 0
    with selectors.DefaultSelector() as selector:
        for descriptor in (*streams, process.stdin.fileno()):
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ if descriptor in streams else selectors.EVENT_WRITE)
        while streams:
            events = selector.select(_TICK)
            each()
            if not events:
                ticks += over()
                if ticks > _GRACE_TICKS:
                    return
            for key, _ in events:
                if key.fd not in streams:
                    waiting = _write(process.stdin, selector, waiting)
                    continue
                piece = _read(key.fd)
                if piece:
                    pass_on(streams[key.fd], piece, output, on_output, flood)
                elif piece is not None:
                    selector.unregister(key.fd)
                    del streams[key.fd]


def pass_on(
    stream: Stream, piece: bytes, output: PumpedOutput, on_output: OnOutput | None, flood: Callable[[], None]
) -> None:
    """Count a piece of output and pass on what fits. `flood` is called when it goes beyond the limit."""
    was_flooded = output.flooded
    fits = output.take(stream, piece)
    if fits and on_output is not None:
        on_output(stream, fits)
    if output.flooded and not was_flooded:
        flood()


def _read(descriptor: int) -> bytes | None:
    """Read a piece. It is empty at the end of the stream, and `None` if nothing is there yet."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None


def _write(pipe: IO[bytes], selector: selectors.BaseSelector, waiting: memoryview) -> memoryview:
    try:
        waiting = waiting[os.write(pipe.fileno(), waiting[:_CHUNK]) :]
    except BlockingIOError:
        return waiting
    except OSError:
        waiting = waiting[len(waiting) :]  # the script does not read its input
    if not waiting:
        selector.unregister(pipe.fileno())
        with suppress(OSError):
            pipe.close()
    return waiting


def supervise(
    process: Popen[bytes],
    job: Job,
    *,
    end: Callable[[], None],
    checks: Sequence[Check],
    on_output: OnOutput | None,
    protections: tuple[str, ...],
    proxy: "HostProxy | None" = None,
) -> tuple[Ended, PumpedOutput]:
    """Feed, read and watch a started process until it and its streams have ended. `end` ends the whole process tree."""
    output = PumpedOutput(job.limits.output_bytes)

    def report() -> None:
        if proxy is not None and job.on_attempt is not None:
            for attempt in proxy.attempts():
                job.on_attempt(attempt)

    try:
        job.started(protections)
        with Watch(job.limits.seconds, end, checks, job.stop) as watch:
            pump(
                process,
                job.stdin or b"",
                output,
                on_output,
                flood=lambda: watch.finish("output-limit"),
                over=lambda: process.poll() is not None,
                each=report,
            )
            # A script may close its streams and keep running. The time limit still applies.
            process.wait()
    finally:
        end()
        process.wait()
        close_pipes(process)
        if proxy is not None:
            proxy.close()
    report()
    return watch.ended or "exit", output


def close_pipes(process: Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def outcome(
    job: Job,
    ended: Ended,
    output: PumpedOutput,
    *,
    code: int,
    started: float,
    protections: Sequence[str],
    work: int = -1,
    made: tuple[tuple[WrittenFile, ...], tuple[str, ...]] | None = None,
    changes: ProjectChanges | None = None,
    notes: Sequence[str] = (),
    attempts_left_out: int = 0,
) -> Outcome:
    """The outcome of a process that has ended, with the files that it made: given, or those in an open work folder."""
    duration = int((time.monotonic() - started) * 1000)
    files, left_out = made or collect(work, job.limits, given_files(job) if job.cwd is None else None)
    if changes is not None and (changes.made or changes.left_out):
        taken = {file.path for file in changes.made}
        renamed = (replace(file, path=f"WORK_DIR/{file.path}") if file.path in taken else file for file in files)
        files, left_out = (*changes.made, *renamed), (*changes.left_out, *left_out)
    return Outcome(
        exit_code=code if code >= 0 else 128 - code,
        ended=ended,
        duration_ms=duration,
        stdout=bytes(output.kept["stdout"]),
        stderr=bytes(output.kept["stderr"]),
        stdout_total=output.totals["stdout"],
        stderr_total=output.totals["stderr"],
        files=files,
        left_out=left_out,
        protections=tuple(protections),
        notes=tuple(notes),
        changes=tuple(changes.applied) if changes is not None else (),
        refused=tuple(changes.refused) if changes is not None else (),
        attempts_left_out=attempts_left_out,
    )
